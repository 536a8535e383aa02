# State in background workers: over a thousand batches the tables of state in place stay bounded; big changelogs of the memory provider are folded by a process
# of their own while batches go on, whoever is killed meanwhile.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::Bin/../lib";
use PostgreSQL::Test::Utils;
use StreamKill;
use StreamNode;
use Test::More;

my $node = node_to_kill('wal_level = minimal', 'max_wal_senders = 0', 'autovacuum_naptime = 1s', 'log_autovacuum_min_duration = -1');

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
# Half a million versions of rows would take 60 MB. Some space more than twice is the price of a snapshot held for a second meanwhile.
cmp_ok($last[1], '<', 6 * $rows_first, 'the space of old versions of the rows is used again');
cmp_ok($last[0], '<', 10_000_000, 'the space of the undo log is used again: less than half of what was written to it');
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

# Feeds until one is at work, held there by the crash point; returns its process.
sub keeper_at_work
{
	my $pid;
	set_failpoint('housekept:1:sleep');
	ok(wait_for(sub { try_psql('SELECT more(2)'); $pid = $node->safe_psql('postgres', $keeper); $pid =~ /^\d+$/ }, 90), 'a process of its own folds');
	return $pid;
}

sub whole
{
	my ($what) = @_;
	set_failpoint();
	ok(status_is($node, 'folded', 'running', 90), "the query runs after $what");
	wait_psql("CALL stream.process_all_available('folded')", 120);
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
set_failpoint('housekept:1:error');
my $failed = () = slurp_file($node->logfile) =~ /failpoint reached at step "housekept"/g;
is($failed, 0, 'none failed yet');
ok(wait_for(sub { try_psql('SELECT more(2)'); slurp_file($node->logfile) =~ /failpoint reached at step "housekept"/ }, 60), 'one fails');
$at = $node->safe_psql('postgres', $last_batch);
wait_for(sub { try_psql('SELECT more(5)'); $node->safe_psql('postgres', $last_batch) >= $at + 20 }, 60);
$failed = () = slurp_file($node->logfile) =~ /failpoint reached at step "housekept"/g;
is($failed, 1, 'it is left alone for a minute');
whole('one failed');
# ---- more state than memory may hold ----

$node->safe_psql('postgres', "SELECT stream.stop_query('folded'); INSERT INTO hit_t VALUES (1, repeat('x', 70), 1)");
my $limited = "SET stream_ext.state_memory = '1MB'; CALL stream.process_all_available('folded')";
my (undef, undef, $error) = $node->psql('postgres', $limited);
like($error, qr/the state of streaming query \d+ does not fit into memory\nDETAIL:  Operator 0 holds \d+ entries in state "default"; state takes \d+ kB, stream_ext.state_memory is 1024 kB\.\nHINT:  Keep the state in a table: SELECT stream.alter_query/,
	'too much state is an error that names the way out');
$node->safe_psql('postgres', q{SELECT stream.alter_query('folded', options => '{"state_provider": "table"}')});
$node->safe_psql('postgres', $limited);
is($node->safe_psql('postgres', "SELECT count(*), sum((value->>'n')::int) FROM stream.state('folded')"), $node->safe_psql('postgres', 'SELECT count(DISTINCT k), count(*) FROM hit_t'),
	'which works: the same state, in place, under the same limit');
# What a batch holds on to until it ends must fit, in place too: sessions and joins of what it touches.
$node->safe_psql('postgres', <<'SQL');
CREATE TABLE visit_t (k int, at timestamptz);
SELECT stream.create_source('visit', 'table', options => '{"table": "visit_t"}', event_time => 'at', watermark_delay => '1 hour');
SELECT stream.create_query('visits', $$SELECT k, stream.session(at, '1 minute') AS w, count(*) AS n FROM visit GROUP BY 1, 2$$, stream.to_table('visits_out'), 'update',
	options => '{"state_provider": "table"}', start => false);
INSERT INTO visit_t SELECT i % 10000, timestamptz '2026-03-01' + i * interval '1 second' FROM generate_series(1, 20000) i;
SQL
$limited =~ s/folded/visits/;
(undef, undef, $error) = $node->psql('postgres', $limited);
like($error, qr/does not fit into memory\nDETAIL:  .*\nHINT:  Raise stream_ext\.state_memory for this batch, whose range is logged\. Option max_rows_per_batch makes later ones smaller\./, 'a batch that holds too much in place says so');
$node->safe_psql('postgres', q{SELECT stream.alter_query('visits', options => '{"max_rows_per_batch": 200}')});
(undef, undef, $error) = $node->psql('postgres', $limited);
like($error, qr/does not fit into memory/, 'it stays as it was logged');
$node->safe_psql('postgres', $limited =~ s/1MB/64MB/r);
$node->safe_psql('postgres', "INSERT INTO visit_t SELECT i % 10000, timestamptz '2026-03-01' + i * interval '1 second' FROM generate_series(20001, 40000) i; $limited");
is($node->safe_psql('postgres', 'SELECT count(*), sum(n) FROM visits_out'), '40000|40000', 'smaller ones fit');
unlike(slurp_file($node->logfile), qr/reference leak|PANIC|TRAP/, 'nothing odd in the log');
done_testing();
