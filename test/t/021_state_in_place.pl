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

# Two hundred at a time, with vacuum in between: what they leave behind is used again by the next.
$node->safe_psql('postgres', <<'SQL');
CREATE TABLE hit_t (k int, pad text, v int);
SELECT stream.create_source('hit', 'table', options => '{"table": "hit_t"}');
SELECT stream.create_query('hits', 'SELECT k, count(*) AS n, sum(v) AS total FROM hit GROUP BY k HAVING count(*) < 0', stream.to_table('hits_out'), output_mode => 'update',
	options => '{"state_provider": "table", "max_rows_per_batch": 500, "min_batches_to_retain": 10}', start => false);
INSERT INTO hit_t SELECT i, '', 1 FROM generate_series(1, 20000) i;
CALL stream.process_all_available('hits');
SQL

sub sizes
{
	return split /\|/, $node->safe_psql('postgres', "SELECT pg_total_relation_size('stream.state_undo'), (SELECT sum(pg_total_relation_size(oid)) FROM pg_class "
		  . "WHERE relname LIKE 'state_row_%' AND relkind = 'r')");
}

sub vacuumed
{
	return $node->safe_psql('postgres', "SELECT autovacuum_count FROM pg_stat_all_tables WHERE relid = 'stream.state_undo'::regclass");
}

my ($undo_first, $rows_first) = sizes();
my (@early, @last);
$node->safe_psql('postgres', "SELECT stream.start_query('hits')");
for my $round (1 .. 5)
{
	my $vacuumed = vacuumed();
	$node->safe_psql('postgres', "INSERT INTO hit_t SELECT (random() * 20000)::int, '', 1 FROM generate_series(1, 500 * 200) i");
	wait_for(sub { $node->safe_psql('postgres', "SELECT last_batch_id >= 39 + 200 * $round FROM stream.queries WHERE name = 'hits'") eq 't' }, 120);
	ok(wait_for(sub { vacuumed() > $vacuumed }, 60), "autovacuum knows what batches leave behind ($round)") or last;
	@early = sizes() if $round == 1;
	@last = sizes();
}
note "rows $rows_first, after 200 batches $early[1], after 1000 $last[1] bytes; undo log $undo_first, $early[0], $last[0]";
cmp_ok($last[1], '<', 1.6 * $rows_first, 'the rows take little more than when they were new');
cmp_ok($last[0], '<', 1.5 * $early[0], 'the space of the undo log is used again');
ok(wait_for(sub { $node->safe_psql('postgres', "SELECT bool_and(autovacuum_count > 0) FROM pg_stat_all_tables WHERE relid::regclass IN ('stream.offset_entry', 'stream.commit_entry', 'stream.progress_entry')") eq 't' }, 60),
	'the other logs are vacuumed, too');
$node->safe_psql('postgres', 'SELECT stream.drop_query(name) FROM stream.queries');

# ---- folding beside the batches ----

# Twelve megabytes of state, a fifth of it changed in each batch.
$node->safe_psql('postgres', <<'SQL');
CREATE FUNCTION more(batches int) RETURNS void LANGUAGE sql AS
	$$INSERT INTO hit_t SELECT b * 20000 % 100000 + i, repeat('x', 70), 1 FROM generate_series(1, batches) b, generate_series(1, 20000) i$$;
TRUNCATE hit_t;
SELECT stream.create_query('folded', 'SELECT k, pad, count(*) AS n, sum(v) AS total FROM hit GROUP BY k, pad HAVING count(*) < 0', stream.to_table('folded_out'), output_mode => 'update',
	options => '{"max_rows_per_batch": 20000, "min_batches_to_retain": 2}');
SQL
my $keeper = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'stream_ext housekeeper'";
my $last_batch = "SELECT last_batch_id FROM stream.queries WHERE name = 'folded'";

sub point
{
	my ($failpoint) = @_;
	wait_for(sub { try_psql("ALTER SYSTEM SET stream_ext.failpoints = '$failpoint'") && try_psql('SELECT pg_reload_conf()') }, 60);
}

# Feeds until one is at work, held there by the crash point; returns its process.
sub keeper_at_work
{
	my $pid;
	point('housekept:1:sleep');
	ok(wait_for(sub { try_psql('SELECT more(2)'); $pid = $node->safe_psql('postgres', $keeper); $pid =~ /^\d+$/ }, 90), 'a process of its own folds');
	return $pid;
}

sub whole
{
	my ($what) = @_;
	point('');
	ok(status_is($node, 'folded', 'running', 90), "the query runs after $what");
	wait_for(sub { try_psql("CALL stream.process_all_available('folded')") }, 120);
	is($node->safe_psql('postgres', "SELECT count(*), sum((value->>'n')::int) FROM stream.state('folded')"),
		$node->safe_psql('postgres', 'SELECT count(DISTINCT k), count(*) FROM hit_t'), "the state is whole after $what");
}

my $pid = keeper_at_work();
my $at = $node->safe_psql('postgres', $last_batch);
$node->safe_psql('postgres', 'SELECT more(3)');
ok(wait_for(sub { $node->safe_psql('postgres', $last_batch) >= $at + 3 }, 30), 'batches go on while it does');
is($node->safe_psql('postgres', $keeper), $pid, 'it is still at it');

my $crashed = crashes();
kill 'KILL', $pid;
wait_for(sub { crashes() > $crashed }, 60);
whole('it was killed');

keeper_at_work();
$crashed = crashes();
kill 'KILL', $node->safe_psql('postgres', "SELECT pid FROM stream.queries WHERE name = 'folded'");
wait_for(sub { crashes() > $crashed }, 60);
whole('the worker was killed');

keeper_at_work();
$node->safe_psql('postgres', "SELECT stream.stop_query('folded')");
ok(wait_for(sub { $node->safe_psql('postgres', $keeper) eq '' }, 30), 'it ends with the worker');
$node->safe_psql('postgres', "SELECT stream.start_query('folded')");
whole('it was stopped in the middle');

my $folded = $node->safe_psql('postgres', 'SELECT coalesce(max(batch_id), -1) FROM stream.state_snapshot');
ok(wait_for(sub { try_psql('SELECT more(2)'); $node->safe_psql('postgres', 'SELECT coalesce(max(batch_id), -1) FROM stream.state_snapshot') > $folded }, 60), 'undisturbed it folds');
ok(wait_for(sub { $node->safe_psql('postgres', $keeper) eq '' }, 30), 'and is gone');
$node->safe_psql('postgres', "CALL stream.process_all_available('folded'); SELECT stream.stop_query('folded'); SELECT stream.start_query('folded')");
whole('a start from the snapshot');

# One that fails is not tried again at once.
point('housekept:1:error');
my $failed = () = slurp_file($node->logfile) =~ /failpoint reached at step "housekept"/g;
is($failed, 0, 'none failed yet');
ok(wait_for(sub { try_psql('SELECT more(2)'); slurp_file($node->logfile) =~ /failpoint reached at step "housekept"/ }, 60), 'one fails');
$at = $node->safe_psql('postgres', $last_batch);
wait_for(sub { try_psql('SELECT more(5)'); $node->safe_psql('postgres', $last_batch) >= $at + 20 }, 60);
$failed = () = slurp_file($node->logfile) =~ /failpoint reached at step "housekept"/g;
is($failed, 1, 'it is left alone for a minute');
whole('one failed');
unlike(slurp_file($node->logfile), qr/reference leak|PANIC|TRAP/, 'nothing odd in the log');
done_testing();
