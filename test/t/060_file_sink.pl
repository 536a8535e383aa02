# The file sink under SIGKILL at every step, the one between Postgres's commit and the rename included. A reader looks at the directory all the time: what it
# sees is whole, of committed batches, and never changes. At the end every row is there once.
use strict;
use warnings FATAL => 'all';
use PostgreSQL::Test::Utils;
use StreamKill;
use StreamNode;
use Test::More;

my $kills = kills_wanted(14, 70);
my $node = node_to_kill('wal_level = minimal', 'max_wal_senders = 0', 'synchronous_commit = off');
my $dir = $node->basedir . '/out';
$node->safe_psql('postgres', <<"SQL");
CREATE TABLE t (id bigint GENERATED ALWAYS AS IDENTITY);
SELECT stream.create_source('s', 'table', options => '{"table": "t"}');
SELECT stream.create_query('json', 'SELECT id, stream.batch_id() AS batch FROM s', stream.to_file('$dir'), options => '{"max_rows_per_batch": 40, "max_retries": 1000000}');
SELECT stream.create_query('csv', 'SELECT id FROM s', stream.to_file('$dir', '{"format": "csv", "compression": "gzip"}'),
	options => '{"max_rows_per_batch": 40, "max_retries": 1000000}');
SELECT stream.create_query('joined', 'SELECT id, stream.batch_id() AS batch FROM s', stream.to_file('$dir', '{"compact_every": 5}'),
	options => '{"max_rows_per_batch": 30, "max_retries": 1000000}');
SELECT stream.create_query('joined_csv', 'SELECT id, stream.batch_id() AS batch FROM s',
	stream.to_file('$dir', '{"format": "csv", "header": true, "compression": "gzip", "compact_every": 3}'), options => '{"max_rows_per_batch": 30, "max_retries": 1000000}');
SQL
my %id = map { split /\|/ } split /\n/, $node->safe_psql('postgres', 'SELECT name, id FROM stream.queries');
my $query_id = $id{json};

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
		my ($query, $first, $last) = $name =~ /-(\d+)-0-(\d+)(?:-(\d+))?\.json$/;
		push @wrong, "$name is of one batch" if $query == $id{joined} && !defined $last;
		$last //= $first;
		for my $line (split /^/, $content)
		{
			push @wrong, "$name: $line" unless $line =~ /^\{"id":\d+,"batch":(\d+)\}\n$/ && $1 >= $first && $1 <= $last;
		}
	}
	closedir($d);
	return;
}

kill_workers($kills, [qw(planned logged executed sunk renaming committed renaming)], sub {
	try_psql('INSERT INTO t SELECT FROM generate_series(1, ' . (1 + int(rand(60))) . ')');
	look();
});
wait_psql('INSERT INTO t SELECT FROM generate_series(1, 10)');
drained('', qw(json csv joined joined_csv));
$node->safe_psql('postgres', "SELECT stream.stop_query(name) FROM stream.queries WHERE name LIKE 'joined%'");
look();
is(join("\n", @wrong), '', 'a reader never saw half a file, a changed one, or rows of another batch');

# Read back by the file source.
$node->safe_psql('postgres', <<"SQL");
SELECT stream.create_source('json_files', 'file', 'id bigint, batch bigint', '{"path": "$dir/stream-*-$id{json}-0-*.json"}');
SELECT stream.create_source('joined_files', 'file', 'id bigint, batch bigint, file_path text', '{"path": "$dir/stream-*-$id{joined}-0-*.json"}');
SELECT stream.create_source('joined_csv_files', 'file', 'id bigint, batch bigint', '{"path": "$dir/stream-*-$id{joined_csv}-0-*.csv.gz", "header": true}');
SELECT stream.create_source('csv_files', 'file', 'id bigint', '{"path": "$dir/stream-*-$id{csv}-0-*.csv.gz"}');
SQL
my $rows = $node->safe_psql('postgres', 'SELECT count(*) FROM t');
is($node->safe_psql('postgres', 'SELECT count(*), count(DISTINCT id) FROM json_files'), "$rows|$rows", 'JSON: every row once');
is($node->safe_psql('postgres', 'SELECT count(*), count(DISTINCT id) FROM csv_files'), "$rows|$rows", 'CSV, compressed: every row once');
is($node->safe_psql('postgres', "SELECT count(*) FROM (SELECT DISTINCT batch FROM json_files) f FULL JOIN (SELECT batch_id FROM stream.commit_log WHERE query_id = $query_id) c ON f.batch = c.batch_id WHERE f.batch IS NULL OR c.batch_id IS NULL AND f.batch >= (SELECT min(batch_id) FROM stream.commit_log WHERE query_id = $query_id)"),
	'0', 'one file a committed batch');

is($node->safe_psql('postgres', "SELECT count(*), count(DISTINCT id) FROM $_"), "$rows|$rows", "$_: every row once") for qw(joined_files joined_csv_files);
is($node->safe_psql('postgres', 'SELECT count(*) FROM (SELECT count(DISTINCT batch) AS n, max(batch) / 5 - min(batch) / 5 AS over FROM joined_files GROUP BY file_path) f WHERE n > 5 OR over > 0'),
	'0', 'a file holds five batches at most');
cmp_ok($node->safe_psql('postgres', 'SELECT count(DISTINCT batch)::float / count(DISTINCT file_path) FROM joined_files'), '>', 3, 'and as a rule so many');
opendir(my $hidden, $dir) or die $!;
is(join(' ', grep { /^\.(part|new)/ } readdir($hidden)), '', 'nothing waits when the queries have stopped');
closedir($hidden);

# Back to a batch that shares its file: not possible, but to those around it.
my ($batch, $last) = split /\|/, $node->safe_psql('postgres', 'SELECT min(batch), max(batch) FROM joined_files GROUP BY file_path HAVING max(batch) > min(batch) ORDER BY 1 DESC LIMIT 1');
my (undef, undef, $shared) = $node->psql('postgres', "SELECT stream.rewind_query('joined', $batch)");
like($shared, qr/shares file .* with others.*batches $batch to $last.*Go back to batch ${\($batch - 1)} or $last/s, 'a rewind into a file says where it can go');
$node->safe_psql('postgres', "SELECT stream.rewind_query('joined', $batch - 1); CALL stream.process_all_available('joined')");
is($node->safe_psql('postgres', 'SELECT count(*), count(DISTINCT id) FROM joined_files'), "$rows|$rows", 'and what comes again comes once');

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


# Options that say nothing.
for my $wrong ([ '{"compact_every": 0}', qr/compact_every/ ], [ '{"compact_every": "often"}', qr/compact_every/ ], [ '{"header": true}', qr/"header" of the file sink .* is for format csv/ ],
	[ '{"rows": 1}', qr/Valid options are: .*compact_every/s ])
{
	my (undef, undef, $error) = $node->psql('postgres', "SELECT stream.create_query('wrong', 'SELECT id FROM s', stream.to_file('$dir', '$wrong->[0]'))");
	like($error, $wrong->[1], "refused: $wrong->[0]");
}

# A query that is stopped hands out what it has gathered, also when that cancels a batch.
$node->safe_psql('postgres', qq{CREATE TABLE hang_t (id int);
	CREATE FUNCTION hang(id int) RETURNS int LANGUAGE sql AS 'SELECT CASE WHEN id = 2 THEN length(pg_sleep(600)::text) ELSE id END';
	SELECT stream.create_source('now', 'table', options => '{"table": "hang_t"}');
	SELECT stream.create_query('hang', 'SELECT hang(id) AS id FROM now', stream.to_file('$dir', '{"compact_every": 1000}'));
	INSERT INTO hang_t VALUES (1)});
ok(wait_for_sql($node, q{SELECT last_batch_id FROM stream.queries WHERE name = 'hang'}, '0'), 'a batch is gathered');
my $hang = $node->safe_psql('postgres', "SELECT id FROM stream.queries WHERE name = 'hang'");
is(scalar(() = glob("$dir/stream-*-$hang-0-*")), 0, 'and not handed out');
$node->safe_psql('postgres', 'INSERT INTO hang_t VALUES (2)');
ok(wait_for_sql($node, q{SELECT count(*) FROM pg_stat_activity a JOIN stream.queries q USING (pid) WHERE q.name = 'hang' AND a.wait_event = 'PgSleep'}, '1'), 'the next one hangs');
$node->safe_psql('postgres', "SELECT stream.stop_query('hang')");
is(join('', map { slurp_file($_) } glob("$dir/stream-*-$hang-0-*")), qq({"id":1}\n), 'the query stops, and hands it out');

# A finite query hands out what it has gathered when it ends.
$node->safe_psql('postgres', "SELECT stream.create_query('finite', 'SELECT id FROM s', stream.to_file('$dir', '{\"compact_every\": 1000}'), trigger => stream.available_now(), options => '{\"max_rows_per_batch\": 1000}')");
ok(status_is($node, 'finite', 'finished', 60), 'a finite query ends');
my $finite = $node->safe_psql('postgres', "SELECT id FROM stream.queries WHERE name = 'finite'");
$node->safe_psql('postgres', qq(SELECT stream.create_source('finite_files', 'file', 'id bigint, file_path text', '{"path": "$dir/stream-*-$finite-0-*.json"}')));
is($node->safe_psql('postgres', 'SELECT count(DISTINCT id) = (SELECT count(*) FROM t), count(*) = count(DISTINCT id), count(DISTINCT file_path) FROM finite_files'), 't|t|1', 'and its rows are in one file');
$node->stop;
done_testing();
