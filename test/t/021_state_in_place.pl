# State in place, in background workers: killed at every step nothing is lost or doubled; over a thousand batches the tables stay bounded; big
# changelogs of the memory provider are folded by a process of their own while batches go on.
# STREAM_KILLS says how many kills, STREAM_SEED repeats a run.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::Bin/../lib";
use PostgreSQL::Test::Utils;
use StreamNode;
use Time::HiRes qw(time);
use Test::More;

my $kills = $ENV{STREAM_KILLS} // 12;
my $seed = $ENV{STREAM_SEED} // time;
srand($seed);
note "seed $seed, $kills kills";

my $node = new_node('in_place', 'shared_preload_libraries = stream_ext', 'restart_after_crash = on', 'max_worker_processes = 20',
	'wal_level = minimal', 'max_wal_senders = 0', 'checkpoint_timeout = 30min', 'autovacuum_naptime = 1s', 'log_autovacuum_min_duration = -1');
my @steps = qw(triggered planned logged executed sunk committed);

if ($node->safe_psql('postgres', "SELECT count(*) FROM pg_settings WHERE name = 'stream_ext.failpoints'") eq '0')
{
	plan skip_all => 'the extension was built without failpoints';
}

sub try_psql
{
	my ($sql) = @_;
	my ($code) = $node->psql('postgres', $sql);
	return $code == 0;
}

sub same
{
	my ($want, $got, $what) = @_;
	is($node->safe_psql('postgres', "WITH w AS ($want), g AS ($got) SELECT (SELECT count(*) FROM (TABLE w EXCEPT ALL TABLE g) x), (SELECT count(*) FROM (TABLE g EXCEPT ALL TABLE w) x)"),
		'0|0', $what);
}

# ---- killed ----

$node->safe_psql('postgres', <<'SQL');
CREATE TABLE event_t (id bigint GENERATED ALWAYS AS IDENTITY, store int, amount numeric, at timestamptz);
SELECT stream.create_source('event', 'table', options => '{"table": "event_t"}', event_time => 'at', watermark_delay => '1 hour');
SELECT stream.create_query('minute', $$SELECT store, stream.tumble(at, '1 minute') AS w, count(*) AS n, sum(amount) AS total FROM event GROUP BY 1, 2$$,
	stream.to_table('minute_out'), output_mode => 'update', options => '{"state_provider": "table", "max_rows_per_batch": 40}');
SELECT stream.create_query('closed', $$SELECT store, stream.tumble(at, '1 minute') AS w, count(*) AS n, sum(amount) AS total FROM event GROUP BY 1, 2$$,
	stream.to_table('closed_out'), options => '{"state_provider": "table"}');
SELECT stream.create_query('stores', 'SELECT DISTINCT store FROM event', stream.to_table('stores_out'), options => '{"state_provider": "table"}');
SQL

sub crashes
{
	my $log = slurp_file($node->logfile);
	return scalar(() = $log =~ /was terminated by signal 9/g);
}

my ($clock, $died) = (0, 0);
for (1 .. $kills)
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
}
ok($died >= $kills * 0.8, "workers were killed ($died times)");
wait_for(sub { try_psql("ALTER SYSTEM RESET stream_ext.failpoints") && try_psql('SELECT pg_reload_conf()') }, 60);
wait_for(sub { try_psql("INSERT INTO event_t (store, amount, at) VALUES (-1, 0, '2026-06-01')") }, 60);
for my $query (qw(minute closed stores))
{
	ok(status_is($node, $query, 'running', 90), "query $query runs again");
	wait_for(sub { try_psql("CALL stream.process_all_available('$query')") }, 120);
}
same("SELECT store, stream.tumble(at, '1 minute'), count(*), sum(amount) FROM event_t GROUP BY 1, 2", 'SELECT store, w, n, total FROM minute_out', 'update mode');
same("SELECT store, stream.tumble(at, '1 minute'), count(*), sum(amount) FROM event_t WHERE store >= 0 GROUP BY 1, 2", 'SELECT store, w, n, total FROM closed_out',
	'append mode: every window once, complete');
same('SELECT DISTINCT store FROM event_t', 'SELECT store FROM stores_out', 'DISTINCT');
$node->safe_psql('postgres', 'SELECT stream.drop_query(name) FROM stream.queries');

# ---- a thousand batches ----

$node->safe_psql('postgres', <<'SQL');
CREATE TABLE hit_t (k int, v int);
SELECT stream.create_source('hit', 'table', options => '{"table": "hit_t"}');
SELECT stream.create_query('hits', 'SELECT k, count(*) AS n, sum(v) AS total FROM hit GROUP BY k HAVING count(*) < 0', stream.to_table('hits_out'), output_mode => 'update',
	options => '{"state_provider": "table", "max_rows_per_batch": 500, "min_batches_to_retain": 10}', start => false);
INSERT INTO hit_t SELECT i, 1 FROM generate_series(1, 20000) i;
CALL stream.process_all_available('hits');
VACUUM hit_t;
SQL
my $tables = "SELECT pg_total_relation_size('stream.state_undo') AS undo, (SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c WHERE relname LIKE 'state_row_%' AND relkind = 'r') AS rows";
my ($undo_first, $rows_first) = split /\|/, $node->safe_psql('postgres', $tables);
$node->safe_psql('postgres', "INSERT INTO hit_t SELECT (random() * 20000)::int, 1 FROM generate_series(1, 500 * 1000) i; SELECT stream.start_query('hits')");
wait_for(sub { $node->safe_psql('postgres', "SELECT last_batch_id >= 1039 FROM stream.queries WHERE name = 'hits'") eq 't' }, 300);
my ($undo_last, $rows_last) = split /\|/, $node->safe_psql('postgres', $tables);
my $batches = $node->safe_psql('postgres', "SELECT last_batch_id FROM stream.queries WHERE name = 'hits'");
note "after $batches batches: rows $rows_first -> $rows_last bytes, undo log $undo_first -> $undo_last bytes";
cmp_ok($batches, '>=', 1039, 'a thousand batches ran');
cmp_ok($rows_last, '<', 2 * $rows_first, 'the rows take less than twice what they took when they were new');
cmp_ok($undo_last, '<', 4 * 1024 * 1024, 'the undo log is purged and its space used again');
$node->safe_psql('postgres', 'SELECT stream.drop_query(name) FROM stream.queries');

# ---- folding beside the batches ----

$node->safe_psql('postgres', <<'SQL');
SELECT stream.create_query('folded', 'SELECT k, count(*) AS n, sum(v) AS total FROM hit GROUP BY k HAVING count(*) < 0', stream.to_table('folded_out'), output_mode => 'update',
	options => '{"max_rows_per_batch": 100000, "min_batches_to_retain": 2}', start => false);
TRUNCATE hit_t;
INSERT INTO hit_t SELECT i, 1 FROM generate_series(1, 400000) i;
INSERT INTO hit_t SELECT i, 1 FROM generate_series(1, 400000) i;
SELECT stream.start_query('folded');
SQL
wait_for(sub { $node->safe_psql('postgres', "SELECT EXISTS (SELECT FROM stream.state_snapshot)") eq 't' }, 120);
is($node->safe_psql('postgres', "CALL stream.process_all_available('folded'); SELECT count(*) > 0 FROM stream.state_snapshot"), 't', 'the changelog was folded');
wait_for(sub { $node->safe_psql('postgres', "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'stream_ext housekeeper'") eq '0' }, 60);
$node->safe_psql('postgres', "SELECT stream.stop_query('folded'); SELECT stream.start_query('folded'); INSERT INTO hit_t VALUES (1, 1)");
$node->safe_psql('postgres', "CALL stream.process_all_available('folded')");
$node->safe_psql('postgres', "SELECT stream.stop_query('folded')");
is($node->safe_psql('postgres', "SELECT count(*), sum((value->>'n')::int) FROM stream.state('folded')"),
	$node->safe_psql('postgres', 'SELECT count(DISTINCT k), count(*) FROM hit_t'), 'a start from the snapshot has the whole state');
unlike(slurp_file($node->logfile), qr/reference leak|PANIC|TRAP/, 'nothing odd in the log');
done_testing();
