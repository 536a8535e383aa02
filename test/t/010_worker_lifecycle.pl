# Start, stop, termination, restarts: a query that should run runs, one that should not does not, and an idle one costs nothing.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::Bin/../lib";
use StreamNode;
use Test::More;

my $node = new_node('main');
table_source($node, 'input', 'v int');

is(processes($node, 'supervisor'), 0, 'no supervisor while nothing should run');
create_query($node, 'q', 'SELECT v FROM input');
ok(status_is($node, 'q', 'running'), 'a created query starts by itself');
is(processes($node, 'supervisor'), 1, 'one supervisor');
$node->safe_psql('postgres', 'INSERT INTO input_t VALUES (1)');
ok(wait_for_sql($node, 'SELECT count(*) FROM q_out', '1'), 'a commit wakes the worker');

# idle
my $pid = worker_pid($node, 'q');
my $idle = "SELECT state, backend_xid IS NULL, backend_xmin IS NULL, xact_start IS NULL FROM pg_stat_activity WHERE pid = $pid";
ok(wait_for_sql($node, $idle, 'idle|t|t|t'), 'idle: no transaction, no xid, no snapshot');
$node->safe_psql('postgres', 'SELECT pg_sleep(1.2)');    # events are sent
my $xid = $node->safe_psql('postgres', 'SELECT txid_current()');
my @before = cpu($pid);
sleep 2;
my @after = cpu($pid);
is($after[0] - $before[0], 0, 'idle: no CPU time');
cmp_ok($after[1] - $before[1], '<=', 1, 'idle: no wake-ups');
is($node->safe_psql('postgres', 'SELECT txid_current()'), $xid + 1, 'idle: no transaction ids');

# stop and start
my $run = $node->safe_psql('postgres', "SELECT run_id FROM stream.queries WHERE name = 'q'");
is($node->safe_psql('postgres', "SELECT stream.stop_query('q'); SELECT count(*) FROM pg_stat_activity WHERE pid = $pid"),
	"\n0", 'stop_query returns when the worker is gone');
is($node->safe_psql('postgres', "SELECT status, pid IS NULL, error IS NULL FROM stream.queries"), 'stopped|t|t', 'status after stop');
ok(wait_for(sub { processes($node, 'supervisor') == 0 }), 'the supervisor leaves when nothing should run');
$node->safe_psql('postgres', "INSERT INTO input_t VALUES (2)");
is($node->safe_psql('postgres', 'SELECT count(*) FROM q_out'), '1', 'a stopped query does nothing');
$node->safe_psql('postgres', "SELECT stream.start_query('q')");
$node->safe_psql('postgres', "CALL stream.process_all_available('q')");
is($node->safe_psql('postgres', 'SELECT count(*) FROM q_out'), '2', 'started again, it goes on where it was');
isnt($node->safe_psql('postgres', "SELECT run_id FROM stream.queries"), $run, 'a new run has a new run_id');
for my $i (1 .. 10)
{
	$node->safe_psql('postgres', "SELECT stream.stop_query('q')");
	$node->safe_psql('postgres', "SELECT stream.start_query('q')");
}
$node->safe_psql('postgres', "CALL stream.process_all_available('q')");
is($node->safe_psql('postgres', 'SELECT status, failures FROM stream.queries'), 'running|0', 'quick stops and starts are no failures');

# transactions
$node->safe_psql('postgres', "BEGIN; SELECT stream.stop_query('q'); ROLLBACK");
ok(wait_for_sql($node, "SELECT status, pid IS NOT NULL FROM stream.queries", 'running|t'), 'a stop that is rolled back: the worker comes back');
$node->safe_psql('postgres', "SELECT stream.stop_query('q')");
$node->safe_psql('postgres', "BEGIN; SELECT stream.start_query('q'); ROLLBACK");
is($node->safe_psql('postgres', 'SELECT status FROM stream.queries'), 'stopped', 'a start that is rolled back starts nothing');
$node->safe_psql('postgres', "SELECT stream.start_query('q')");
ok(status_is($node, 'q', 'running'), 'runs again');
my (undef, undef, $err) = $node->psql('postgres', "SELECT stream.start_query('q')");
like($err, qr/NOTICE:.*running already/, 'starting a running query says so');

# terminated by hand
for my $who ('worker', 'supervisor', 'launcher')
{
	my $old = $node->safe_psql('postgres', "SELECT pid FROM pg_stat_activity WHERE backend_type = 'stream_ext $who'");
	$node->safe_psql('postgres', "SELECT pg_terminate_backend($old)");
	ok(wait_for_sql($node, "SELECT pid <> $old FROM pg_stat_activity WHERE backend_type = 'stream_ext $who'", 't', 5), "$who comes back when terminated");
}
$node->safe_psql('postgres', 'INSERT INTO input_t VALUES (3)');
$node->safe_psql('postgres', "CALL stream.process_all_available('q')");
is($node->safe_psql('postgres', 'SELECT count(*), sum(v) FROM q_out'), '3|6', 'and the query goes on');
is(processes($node, 'worker'), 1, 'with one worker');
is($node->safe_psql('postgres', 'SELECT status, failures, error IS NULL FROM stream.queries'), 'running|0|t', 'success clears the failure');

# a worker is cancelled in the middle of a batch
table_source($node, 'slow', 'v int');
create_query($node, 'sleeper', 'SELECT v, pg_sleep(60) IS NULL AS s FROM slow');
$node->safe_psql('postgres', 'INSERT INTO slow_t VALUES (1)');
ok(wait_for_sql($node, "SELECT is_trigger_active FROM stream.queries WHERE name = 'sleeper'", 't'), 'a batch runs');
my $t = time;
$node->safe_psql('postgres', "SELECT stream.stop_query('sleeper')");
cmp_ok(time - $t, '<', 5, 'stop_query rolls a long batch back');
is($node->safe_psql('postgres', "SELECT status, error IS NULL FROM stream.queries WHERE name = 'sleeper'"), 'stopped|t', 'which is no failure');
$node->safe_psql('postgres', "SELECT stream.drop_query('sleeper')");

# cancelled by hand: tried again
$pid = worker_pid($node, 'q');
my $locker = $node->background_psql('postgres');
$locker->query_safe('BEGIN; LOCK TABLE q_out IN ACCESS EXCLUSIVE MODE');
$node->safe_psql('postgres', 'INSERT INTO input_t VALUES (3)');
ok(wait_for_sql($node, "SELECT wait_event_type FROM pg_stat_activity WHERE pid = $pid", 'Lock'), 'a batch waits for a lock');
$node->safe_psql('postgres', "SELECT pg_cancel_backend($pid)");
ok(wait_for_sql($node, "SELECT failures, pid = $pid FROM stream.queries WHERE name = 'q'", '1|t'), 'a cancelled batch is a failure, the worker stays');
$locker->query_safe('COMMIT');
$locker->quit;
ok(wait_for_sql($node, "SELECT count(*) FROM q_out", '4'), 'and the batch comes again');

# ticks
create_query($node, 'ticking', 'SELECT v FROM input', "trigger => stream.processing_time('100000 days')");
$node->safe_psql('postgres', "CALL stream.process_all_available('ticking')");
$node->safe_psql('postgres', 'INSERT INTO input_t VALUES (4)');
$node->safe_psql('postgres', 'SELECT pg_sleep(0.3)');
is($node->safe_psql('postgres', 'SELECT count(*) FROM ticking_out'), '4', 'a ticking query waits for its tick');
$node->safe_psql('postgres', "CALL stream.process_all_available('ticking')");
is($node->safe_psql('postgres', 'SELECT count(*) FROM ticking_out'), '5', 'process_all_available fires it');
$node->safe_psql('postgres', "SELECT stream.drop_query('ticking')");

# finite triggers
create_query($node, 'finite', 'SELECT v FROM input', q{trigger => stream.available_now(), options => '{"max_rows_per_batch": 1}'});
is($node->safe_psql('postgres', "SELECT stream.await_termination('finite', '20 seconds')"), 't', 'available_now ends by itself');
is($node->safe_psql('postgres', "SELECT status, pid IS NULL FROM stream.queries WHERE name = 'finite'"), 'finished|t', 'status finished');
is($node->safe_psql('postgres', 'SELECT count(*) FROM finite_out'), '5', 'after all rows');
$node->safe_psql('postgres', "INSERT INTO input_t VALUES (5); SELECT stream.start_query('finite')");
is($node->safe_psql('postgres', "SELECT stream.await_termination('finite', '20 seconds')"), 't', 'started again, it ends again');
is($node->safe_psql('postgres', 'SELECT count(*) FROM finite_out'), '6', 'started again, a finished query reads what is new');

create_query($node, 'slowly', 'SELECT v, pg_sleep(0.3) IS NULL AS s FROM input', 'trigger => stream.once()');
is($node->safe_psql('postgres', "SELECT stream.await_any_termination('20 seconds')"), 'slowly', 'await_any_termination names the one that ends');
is($node->safe_psql('postgres', "SELECT stream.await_any_termination('100 milliseconds') IS NULL"), 't', 'and gives up when none does');
$node->safe_psql('postgres', "SELECT stream.drop_query('slowly')");

# the server restarts
for my $mode ('fast', 'immediate')
{
	$node->stop($mode);
	$node->start;
	ok(status_is($node, 'q', 'running'), "running again after a $mode restart");
	is($node->safe_psql('postgres', "SELECT status FROM stream.queries WHERE name = 'finite'"), 'finished', 'a finished one is not');
	$node->safe_psql('postgres', "CALL stream.process_all_available('q')");
	ok(wait_for_sql($node, "SELECT failures, error IS NULL FROM stream.queries WHERE name = 'q'", '0|t'), 'without a trace');
}
is($node->safe_psql('postgres', 'SELECT count(*), sum(v) FROM q_out'), '6|18', 'each row once');

# stop from within, and what a prepared transaction may not do
my ($rc, undef, $prepared) = $node->psql('postgres', "BEGIN; SELECT stream.stop_query('q'); PREPARE TRANSACTION 'p'");
like($prepared, qr/cannot PREPARE/, 'a prepared transaction cannot stop a query');
ok(status_is($node, 'q', 'running'), 'which goes on');
$node->stop;
done_testing();

# user + system ticks, voluntary context switches
sub cpu
{
	my ($pid) = @_;
	my @stat = split ' ', PostgreSQL::Test::Utils::slurp_file("/proc/$pid/stat");
	my ($switches) = PostgreSQL::Test::Utils::slurp_file("/proc/$pid/status") =~ /^voluntary_ctxt_switches:\s+(\d+)/m;
	return ($stat[13] + $stat[14], $switches);
}
