# Crashes: a worker killed with SIGKILL restarts the cluster and goes on; without a postmaster a worker is gone within a second.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::Bin/../lib";
use PostgreSQL::Test::Utils;
use StreamNode;
use Test::More;
use Time::HiRes qw(time);

my $node = new_node('main', 'restart_after_crash = on');
table_source($node, 'input', 'v int');
create_query($node, 'q', 'SELECT v FROM input');

for my $round (1 .. 3)
{
	$node->safe_psql('postgres', "INSERT INTO input_t VALUES ($round)");
	ok(status_is($node, 'q', 'running'), 'running');
	my $pid = worker_pid($node, 'q');
	my $killed = time;
	kill 'KILL', $pid;
	ok(process_gone($pid), "worker killed, round $round");
	ok(wait_for_sql($node, "SELECT status, pid <> $pid FROM stream.queries", 'running|t'), 'it is back with the cluster');
	note('back after ', time - $killed, ' s');
}
$node->safe_psql('postgres', "CALL stream.process_all_available('q')");
is($node->safe_psql('postgres', 'SELECT count(*), sum(v) FROM q_out'), '3|6', 'nothing lost, nothing twice');
is($node->safe_psql('postgres', "SELECT failures, error IS NULL FROM stream.queries WHERE name = 'q'"), '0|t', 'a success clears the failures');

# Any backend's crash restarts the workers: one each, and nothing twice.
$node->safe_psql('postgres', 'INSERT INTO input_t SELECT 1000 + i FROM generate_series(1, 100) i');
my $bystander = $node->background_psql('postgres', on_error_stop => 0);
kill 'KILL', $bystander->query_safe('SELECT pg_backend_pid()');
eval { $bystander->quit };
ok(wait_for_sql($node, "SELECT status, pid IS NOT NULL FROM stream.queries", 'running|t', 60), 'after another backend was killed the query runs again');
$node->safe_psql('postgres', 'INSERT INTO input_t SELECT 1100 + i FROM generate_series(1, 100) i');
$node->safe_psql('postgres', "CALL stream.process_all_available('q')");
is($node->safe_psql('postgres', 'SELECT count(*), count(DISTINCT v) FROM q_out WHERE v > 1000'), '200|200', 'every row once');
is(processes($node, 'worker'), 1, 'one worker');
$node->safe_psql('postgres', 'DELETE FROM q_out WHERE v > 1000');

# A query that takes the server down each time is backed off: failures are counted though no worker survives to tell.
SKIP:
{
	my ($rc) = $node->psql('postgres', "SHOW stream_ext.failpoints");
	skip 'needs a build with crash points', 6 if $rc != 0;
	$node->safe_psql('postgres', "ALTER ROLE postgres SET stream_ext.failpoints = 'executed:1:kill9'; SELECT stream.stop_query('q')");
	$node->safe_psql('postgres', "INSERT INTO input_t VALUES (4); SELECT stream.start_query('q')");
	ok(wait_for_sql($node, 'SELECT failures >= 3 FROM stream.queries', 't', 60), 'crashes are counted');
	ok(wait_for_sql($node, "SELECT error ~ 'ended without a report' FROM stream.queries", 't', 60), 'and named');
	my $waits = "SELECT bool_and(wait >= interval '700 ms') FROM (SELECT started_at - lag(ended_at) OVER (ORDER BY attempt) AS wait, row_number() OVER (ORDER BY attempt DESC) AS n
		FROM stream.attempts WHERE query = 'q') a WHERE n = 1";
	ok(wait_for_sql($node, "SELECT count(*) >= 2 FROM stream.attempts WHERE query = 'q' AND outcome = 'lost' AND sqlstate = '57P02'", 't', 60),
		'as lost attempts');
	ok(wait_for_sql($node, $waits, 't', 60), 'and the server gets a second to work in between');
	ok(wait_for(sub { my ($rc) = $node->psql('postgres', 'ALTER ROLE postgres RESET stream_ext.failpoints'); $rc == 0 }), 'crash point removed');
	ok(wait_for_sql($node, 'SELECT count(*), sum(v) FROM q_out', '4|10', 60), 'nothing lost, nothing twice');
}

# The postmaster dies: an idle worker, and one in the middle of a batch.
table_source($node, 'slow', 'v int');
create_query($node, 'busy', 'SELECT (SELECT count(*) FROM generate_series(1, 1000000000) g WHERE g % 7 = v) AS n FROM slow');
$node->safe_psql('postgres', 'INSERT INTO slow_t VALUES (1)');
ok(wait_for_sql($node, "SELECT is_trigger_active FROM stream.queries WHERE name = 'busy'", 't'), 'a batch that takes minutes');
my @pids = split /\n/, $node->safe_psql('postgres', "SELECT pid FROM pg_stat_activity WHERE backend_type LIKE 'stream_ext%'");
is(scalar(@pids), 4, 'launcher, supervisor, two workers');
my $postmaster = (split /\n/, slurp_file($node->data_dir . '/postmaster.pid'))[0];
kill 'KILL', $postmaster;
my $t = time;
ok(process_gone($_, 5), "process $_ is gone") for @pids;
cmp_ok(time - $t, '<', 5, 'within seconds');
$node->{_pid} = undef;
done_testing();
