# StreamKill.pm: workers that die of SIGKILL at chosen steps while input keeps coming, and the count afterwards: nothing lost, nothing twice.
# STREAM_KILLS says how many kills (200 in CI), STREAM_SEED repeats a run.
# Danger: between two kills the server recovers; statements may meet it then, so input goes through try_psql or knows what it has sent.
package StreamKill;
use strict;
use warnings FATAL => 'all';
use PostgreSQL::Test::Utils;
use StreamNode;
use Time::HiRes qw(time);
use Test::More;
use Exporter 'import';
our @EXPORT = qw(kills_wanted node_to_kill try_psql wait_psql crashes set_failpoint kill_workers drained is_same logs_are_whole ledger_queries ledger_count);

my $node;

# How many kills, at most so many; the seed is noted.
sub kills_wanted
{
	my ($default, $most) = @_;
	my $kills = $ENV{STREAM_KILLS} // $default;
	$kills = $most if defined $most && $kills > $most;
	my $seed = $ENV{STREAM_SEED} // int(time);
	srand($seed);
	note "seed $seed, $kills kills";
	return $kills;
}

# The cluster all of this is about; the script is skipped where crash points are not compiled in.
sub node_to_kill
{
	my (@lines) = @_;
	$node = new_node('kill', 'shared_preload_libraries = stream_ext', 'restart_after_crash = on', 'max_worker_processes = 40', 'checkpoint_timeout = 30min', @lines);
	plan skip_all => 'the extension was built without failpoints'
	  if $node->safe_psql('postgres', "SELECT count(*) FROM pg_settings WHERE name = 'stream_ext.failpoints'") eq '0';
	return $node;
}

# Statements that may meet a server in recovery. psql turned away there dies of its own input (EPIPE): that is a no, too.
sub try_psql { my ($sql) = @_; return eval { ($node->psql('postgres', $sql))[0] == 0 }; }

sub wait_psql { my ($sql, $timeout) = @_; return wait_for(sub { try_psql($sql) }, $timeout // 60); }

sub crashes { return scalar(() = slurp_file($node->logfile) =~ /was terminated by signal 9/g); }

# 'step:count:effect', or nothing: none.
sub set_failpoint
{
	my ($failpoint) = @_;
	my $what = $failpoint ? "SET stream_ext.failpoints = '$failpoint'" : 'RESET stream_ext.failpoints';
	wait_psql("ALTER SYSTEM $what") && wait_psql('SELECT pg_reload_conf()') or BAIL_OUT('the server did not come back');
	return;
}

# Kills workers at the steps, in a random order; feed is called again and again until one has died. How many died.
sub kill_workers
{
	my ($kills, $steps, $feed) = @_;
	my $died = 0;
	for (1 .. $kills)
	{
		my $before = crashes();
		set_failpoint($steps->[ int(rand(@$steps)) ] . ':' . (1 + int(rand(6))) . ':kill9');
		my $until = time + 15;
		$feed->() while time < $until && crashes() == $before;
		$died += crashes() - $before;
	}
	ok($died >= $kills * 0.9, "workers were killed ($died times)");
	set_failpoint();
	return $died;
}

# Every query runs again and has seen everything. That they come back by themselves, each kill has shown; now that nothing kills them any more they are
# started as an operator would: who was hit many times in a row waits for up to five minutes.
sub drained
{
	my ($what, @queries) = @_;
	my $these = sprintf("FROM stream.queries WHERE name IN (%s) AND status <> 'failed'", join(', ', map { "'$_'" } @queries));
	note eval { $node->safe_psql('postgres', "SELECT concat_ws(' ', name, status, failures, retry_at - now()) $these") } // 'the server recovers';
	ok(wait_psql("SELECT stream.start_query(name) $these"), "${what}queries that wait are started");
	for my $query (@queries)
	{
		ok(status_is($node, $query, 'running', 400), "${what}query $query runs again");
		ok(wait_psql("CALL stream.process_all_available('$query')", 120), "${what}query $query is through");
	}
	return;
}

sub is_same
{
	my ($want, $got, $what) = @_;
	is($node->safe_psql('postgres', "WITH w AS ($want), g AS ($got) SELECT (SELECT count(*) FROM (TABLE w EXCEPT ALL TABLE g) x), (SELECT count(*) FROM (TABLE g EXCEPT ALL TABLE w) x)"),
		'0|0', $what);
	return;
}

sub logs_are_whole
{
	is($node->safe_psql('postgres', 'SELECT count(*) FROM stream.offset_log o LEFT JOIN stream.commit_log c USING (query_id, batch_id) WHERE c.batch_id IS NULL'), '0',
		'every logged batch is committed');
	is($node->safe_psql('postgres', 'SELECT count(*) FROM (SELECT query_id, batch_id - lag(batch_id) OVER (PARTITION BY query_id ORDER BY batch_id) AS step FROM stream.commit_log) x WHERE step <> 1'),
		'0', 'batch ids have no gaps');
	return;
}

# Queries of every kind over source event(id, store, amount, at), event time at, an hour of delay; each run by so many tasks.
sub ledger_queries
{
	my ($tasks) = @_;
	my $sql = <<'SQL';
SELECT stream.create_query('row', 'SELECT id, store, amount FROM event', stream.to_table('row_out'), options => '{"max_retries": 1000000}');
SELECT stream.create_query('minute', $$SELECT store, stream.tumble(at, '1 minute') AS w, count(*) AS n, sum(amount) AS total, avg(amount) AS mean FROM event GROUP BY 1, 2$$,
	stream.to_table('minute_out'), output_mode => 'update', options => '{"max_rows_per_batch": 40, "max_retries": 1000000}');
SELECT stream.create_query('closed', $$SELECT store, stream.tumble(at, '1 minute') AS w, count(*) AS n, sum(amount) AS total FROM event GROUP BY 1, 2$$,
	stream.to_table('closed_out'), options => '{"max_retries": 1000000}');
SELECT stream.create_query('all', 'SELECT count(*) AS n, sum(amount) AS total, count(DISTINCT store) AS stores FROM event', stream.to_table('all_out'),
	output_mode => 'complete', options => '{"max_retries": 1000000}');
SQL
	$sql =~ s/"max_retries"/"parallelism": $tasks, "max_retries"/g if $tasks;
	$node->safe_psql('postgres', $sql);
	return;
}

# What those queries made of the rows of table event_t, of which those with store -1 are the last and close all windows but their own.
sub ledger_count
{
	drained('', qw(row minute closed all));
	is_same('SELECT id, store, amount FROM event_t', 'SELECT id, store, amount FROM row_out', 'rows: none lost, none twice');
	my $groups = "SELECT store, stream.tumble(at, '1 minute'), count(*), sum(amount)%s FROM event_t %s GROUP BY 1, 2";
	is_same(sprintf($groups, ', avg(amount)', ''), 'SELECT store, w, n, total, mean FROM minute_out', 'update mode: groups as a plain SELECT has them');
	is_same(sprintf($groups, '', 'WHERE store >= 0'), 'SELECT store, w, n, total FROM closed_out', 'append mode: every window once, complete');
	is_same(sprintf($groups, '', 'WHERE store < 0'),
		q{SELECT (key->>'store')::int, (key->>'w')::tstzrange, (value->>'n')::bigint, (value->>'total')::numeric FROM stream.state('closed')}, 'and what is open is its state');
	is_same('SELECT count(*), sum(amount), count(DISTINCT store) FROM event_t', 'SELECT n, total, stores FROM all_out', 'complete mode: the whole result');
	logs_are_whole();
	note $node->safe_psql('postgres', "SELECT count(*) || ' rows in' FROM event_t");
	return;
}

1;
