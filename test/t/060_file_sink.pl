# The file sink under SIGKILL at every step, the one between Postgres's commit and the rename included. A reader looks at the directory all the time: what it
# sees is whole, of committed batches, and never changes. At the end every row is there once.
use strict;
use warnings FATAL => 'all';
use PostgreSQL::Test::Utils;
use StreamNode;
use Time::HiRes qw(time);
use Test::More;

my $kills = $ENV{STREAM_KILLS} // 14;
my $seed = $ENV{STREAM_SEED} // time;
srand($seed);
note "seed $seed, $kills kills";

my $node = new_node('files', 'restart_after_crash = on', 'wal_level = minimal', 'max_wal_senders = 0', 'synchronous_commit = off');
if ($node->safe_psql('postgres', "SELECT count(*) FROM pg_settings WHERE name = 'stream_ext.failpoints'") eq '0')
{
	plan skip_all => 'the extension was built without failpoints';
}
my $dir = $node->basedir . '/out';
$node->safe_psql('postgres', <<"SQL");
CREATE TABLE t (id bigint GENERATED ALWAYS AS IDENTITY);
SELECT stream.create_source('s', 'table', options => '{"table": "t"}');
SELECT stream.create_query('json', 'SELECT id, stream.batch_id() AS batch FROM s', stream.to_file('$dir'), options => '{"max_rows_per_batch": 40, "max_retries": 1000000}');
SELECT stream.create_query('csv', 'SELECT id FROM s', stream.to_file('$dir', '{"format": "csv", "compression": "gzip"}'),
	options => '{"max_rows_per_batch": 40, "max_retries": 1000000}');
SQL
my $query_id = $node->safe_psql('postgres', "SELECT id FROM stream.queries WHERE name = 'json'");

sub crashes { my $log = slurp_file($node->logfile); return scalar(() = $log =~ /was terminated by signal 9/g); }

sub try_psql { my ($code) = $node->psql('postgres', $_[0]); return $code == 0; }

# What a reader finds: nothing half, nothing changed.
my (%seen, @wrong);

sub look
{
	opendir(my $d, $dir) or die "$dir: $!";
	for my $name (sort grep { !/^\./ } readdir($d))
	{
		my $content = slurp_file("$dir/$name");
		push @wrong, "$name changed" if exists $seen{$name} && $seen{$name} ne $content;
		$seen{$name} = $content;
		next if $name !~ /\.json$/;
		my ($batch) = $name =~ /-(\d+)\.json$/;
		$batch += 0;
		for my $line (split /^/, $content)
		{
			push @wrong, "$name: $line" unless $line =~ /^\{"id":\d+,"batch":$batch\}\n$/;
		}
	}
	closedir($d);
	return;
}

my @steps = qw(planned logged executed sunk renaming committed renaming);
my $died = 0;
for my $round (1 .. $kills)
{
	my $before = crashes();
	my $failpoint = $steps[ $round % @steps ] . ':' . (1 + int(rand(4))) . ':kill9';
	wait_for(sub { try_psql("ALTER SYSTEM SET stream_ext.failpoints = '$failpoint'") && try_psql('SELECT pg_reload_conf()') }, 60)
	  or BAIL_OUT('the server did not come back');
	my $until = time + 20;
	while (time < $until && crashes() == $before)
	{
		try_psql('INSERT INTO t SELECT FROM generate_series(1, ' . (1 + int(rand(60))) . ')');
		look();
	}
	$died += crashes() - $before;
}
ok($died >= $kills * 0.9, "workers were killed ($died times)");
wait_for(sub { try_psql('ALTER SYSTEM RESET stream_ext.failpoints') && try_psql('SELECT pg_reload_conf()') }, 60);
wait_for(sub { try_psql('INSERT INTO t SELECT FROM generate_series(1, 10)') }, 60);
for my $query (qw(json csv))
{
	ok(status_is($node, $query, 'running', 90), "query $query runs again");
	wait_for(sub { try_psql("CALL stream.process_all_available('$query')") }, 90);
}
look();
is(join("\n", @wrong), '', 'a reader never saw half a file, a changed one, or rows of another batch');

# Read back by the file source.
$node->safe_psql('postgres', <<"SQL");
SELECT stream.create_source('json_files', 'file', 'id bigint, batch bigint', '{"path": "$dir/*.json"}');
SELECT stream.create_source('csv_files', 'file', 'id bigint', '{"path": "$dir/*.csv.gz"}');
SQL
my $rows = $node->safe_psql('postgres', 'SELECT count(*) FROM t');
is($node->safe_psql('postgres', 'SELECT count(*), count(DISTINCT id) FROM json_files'), "$rows|$rows", 'JSON: every row once');
is($node->safe_psql('postgres', 'SELECT count(*), count(DISTINCT id) FROM csv_files'), "$rows|$rows", 'CSV, compressed: every row once');
is($node->safe_psql('postgres', "SELECT count(*) FROM (SELECT DISTINCT batch FROM json_files) f FULL JOIN (SELECT batch_id FROM stream.commit_log WHERE query_id = $query_id) c ON f.batch = c.batch_id WHERE f.batch IS NULL OR c.batch_id IS NULL AND f.batch >= (SELECT min(batch_id) FROM stream.commit_log WHERE query_id = $query_id)"),
	'0', 'one file a committed batch');

# A rename that cannot happen: the batch is committed, the file follows as soon as it can.
$node->safe_psql('postgres', q(SELECT stream.stop_query('json'); SELECT stream.stop_query('csv')));
my $next = $node->safe_psql('postgres', "SELECT max(batch_id) + 1 FROM stream.commit_log WHERE query_id = $query_id");
my ($series) = map { /^(stream-[0-9a-f]{8}-$query_id-0-)/ ? $1 : () } keys %seen;
my $blocked = sprintf('%s/%s%012d.json', $dir, $series, $next);
mkdir($blocked) or die $!;
$node->safe_psql('postgres', "INSERT INTO t DEFAULT VALUES; CALL stream.process_all_available('json')");
like(slurp_file($node->logfile), qr/could not rename file .*\n.*The batch is committed/, 'the log says so');
rmdir($blocked) or die $!;
$node->safe_psql('postgres', "CALL stream.process_all_available('json')");
ok(-f $blocked, 'and it appears with the next start');

# A batch given up: what it had written goes.
$node->safe_psql('postgres', 'INSERT INTO t DEFAULT VALUES');
my ($ret) = $node->psql('postgres', "SET stream_ext.failpoints = 'sunk:1:error'; CALL stream.process_all_available('json')");
isnt($ret, 0, 'a batch fails');
opendir(my $d, $dir);
is(join(' ', grep { /^\.stream/ } readdir($d)), '', 'and leaves nothing');
closedir($d);

$node->stop;
done_testing();
