# A worker dies of SIGKILL at every step of a batch, over and over, while rows keep coming: nothing is lost, nothing comes twice, and the state is what a
# plain SELECT over the input says. STREAM_KILLS says how many kills (200 in CI), STREAM_SEED repeats a run.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::Bin/../lib";
use PostgreSQL::Test::Utils;
use StreamNode;
use Time::HiRes qw(usleep time);
use Test::More;

my $kills = $ENV{STREAM_KILLS} // 25;
my $seed = $ENV{STREAM_SEED} // time;
srand($seed);
note "seed $seed, $kills kills";

my $node = new_node('kill', 'shared_preload_libraries = stream_ext', 'restart_after_crash = on', 'max_worker_processes = 20',
	'wal_level = minimal', 'max_wal_senders = 0', 'checkpoint_timeout = 30min');
my @steps = qw(triggered planned logged executed sunk committed);

if ($node->safe_psql('postgres', "SELECT count(*) FROM pg_settings WHERE name = 'stream_ext.failpoints'") eq '0')
{
	plan skip_all => 'the extension was built without failpoints';
}

$node->safe_psql('postgres', <<'SQL');
CREATE TABLE event_t (id bigint GENERATED ALWAYS AS IDENTITY, store int, amount numeric, at timestamptz);
SELECT stream.create_source('event', 'table', options => '{"table": "event_t"}', event_time => 'at', watermark_delay => '1 hour');
SELECT stream.create_query('row', 'SELECT id, store, amount FROM event', stream.to_table('row_out'), options => '{"max_retries": 1000000}');
SELECT stream.create_query('minute', $$SELECT store, stream.tumble(at, '1 minute') AS w, count(*) AS n, sum(amount) AS total, avg(amount) AS mean FROM event GROUP BY 1, 2$$,
	stream.to_table('minute_out'), output_mode => 'update', options => '{"max_rows_per_batch": 40}');
SELECT stream.create_query('closed', $$SELECT store, stream.tumble(at, '1 minute') AS w, count(*) AS n, sum(amount) AS total FROM event GROUP BY 1, 2$$,
	stream.to_table('closed_out'));
SELECT stream.create_query('all', 'SELECT count(*) AS n, sum(amount) AS total, count(DISTINCT store) AS stores FROM event', stream.to_table('all_out'), output_mode => 'complete');
SQL

sub crashes
{
	my $log = slurp_file($node->logfile);
	return scalar(() = $log =~ /was terminated by signal 9/g);
}

# Statements that may meet a server in recovery.
sub try_psql
{
	my ($sql) = @_;
	my ($code) = $node->psql('postgres', $sql);
	return $code == 0;
}

my ($clock, $done, $died) = (0, 0, 0);
while ($done < $kills)
{
	my $before = crashes();
	my $failpoint = $steps[ int(rand(@steps)) ] . ':' . (1 + int(rand(6))) . ':kill9';
	wait_for(sub { try_psql("ALTER SYSTEM SET stream_ext.failpoints = '$failpoint'") && try_psql('SELECT pg_reload_conf()') }, 60)
	  or BAIL_OUT('the server did not come back');
	my $until = time + 15;
	while (time < $until && crashes() == $before)
	{
		my $rows = 1 + int(rand(30));
		$clock += int(rand(20));
		try_psql("INSERT INTO event_t (store, amount, at) SELECT i % 7, (i * 7919 % 1000) / 10.0, timestamptz '2026-03-01' + $clock * interval '1 second' "
			  . "- random() * interval '50 seconds' FROM generate_series(1, $rows) i");
	}
	$died += crashes() - $before;
	$done++;
}
ok($died >= $kills * 0.9, "workers were killed ($died times)");

wait_for(sub { try_psql("ALTER SYSTEM RESET stream_ext.failpoints") && try_psql('SELECT pg_reload_conf()') }, 60);
# The last rows close every window but their own.
wait_for(sub { try_psql("INSERT INTO event_t (store, amount, at) VALUES (-1, 0, '2026-06-01')") }, 60);
for my $query (qw(row minute closed all))
{
	ok(status_is($node, $query, 'running', 90), "query $query runs again");
	wait_for(sub { try_psql("CALL stream.process_all_available('$query')") }, 120);
}

sub same
{
	my ($want, $got, $what) = @_;
	is($node->safe_psql('postgres', "WITH w AS ($want), g AS ($got) SELECT (SELECT count(*) FROM (TABLE w EXCEPT ALL TABLE g) x), (SELECT count(*) FROM (TABLE g EXCEPT ALL TABLE w) x)"),
		'0|0', $what);
}
same('SELECT id, store, amount FROM event_t', 'SELECT id, store, amount FROM row_out', 'rows: none lost, none twice');
same("SELECT store, stream.tumble(at, '1 minute'), count(*), sum(amount), avg(amount) FROM event_t GROUP BY 1, 2", 'SELECT store, w, n, total, mean FROM minute_out',
	'update mode: groups as a plain SELECT has them');
same("SELECT store, stream.tumble(at, '1 minute'), count(*), sum(amount) FROM event_t WHERE store >= 0 GROUP BY 1, 2", 'SELECT store, w, n, total FROM closed_out',
	'append mode: every window once, complete');
same('SELECT count(*), sum(amount), count(DISTINCT store) FROM event_t', 'SELECT n, total, stores FROM all_out', 'complete mode: the whole result');
is($node->safe_psql('postgres', 'SELECT count(*) FROM stream.offset_log o LEFT JOIN stream.commit_log c USING (query_id, batch_id) WHERE c.batch_id IS NULL'), '0',
	'every logged batch is committed');
is($node->safe_psql('postgres', 'SELECT count(*) FROM (SELECT query_id, batch_id - lag(batch_id) OVER (PARTITION BY query_id ORDER BY batch_id) AS step FROM stream.commit_log) x WHERE step <> 1'),
	'0', 'batch ids have no gaps');
note $node->safe_psql('postgres', "SELECT count(*) || ' rows in' FROM event_t");
done_testing();
