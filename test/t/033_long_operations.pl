# stream.operations: each long operation looked at while it happens, held by a lock of another session where one can wait for it. Rows done and how many there are
# of batches over each kind of source, by tasks too; loading and folding of state; rewinding.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::Bin/../lib";
use PostgreSQL::Test::Utils;
use StreamBroker;
use StreamNode;
use Test::More;

my $roots = PostgreSQL::Test::Utils::tempdir();
my $node = new_node('main', 'stream_ext.task_rows = 0', "stream_ext.file_roots = '$roots'");
my $broker = StreamBroker->new(topics => [ 'a:2', 'b:2' ]);

sub value { return $node->safe_psql('postgres', shift) }

# pass(v, at) waits before it returns $at while the gate is shut.
my $gate = $node->background_psql('postgres');
value($_) for (
	'CREATE SCHEMA gate',
	q{CREATE FUNCTION pass(v bigint, at bigint) RETURNS bigint LANGUAGE plpgsql PARALLEL SAFE AS $f$
		BEGIN IF v = at THEN PERFORM pg_advisory_xact_lock_shared(7); END IF; RETURN v; END $f$});
sub shut { return $gate->query_safe('SELECT pg_advisory_lock(7)') }
sub open_gate { return $gate->query_safe('SELECT pg_advisory_unlock(7)') }

my $operations = 'SELECT operation, batch_id, rows_done, rows_total, bytes_done, bytes_total FROM stream.operations';

# A query whose batch waits in the middle; what is seen of it then.
sub batch_shows
{
	my ($name, $sql, $expected, $what, %options) = @_;
	shut();
	create_query($node, $name, $sql, $options{more} // "start => true");
	ok(wait_for_sql($node, $operations, $expected), "$what, while it runs");
	is(value('SELECT o.query, count(*), bool_and(o.pid = q.pid AND o.started_at <= now()) FROM stream.operations o JOIN stream.queries q ON q.name = o.query GROUP BY 1'), "$name|1|t",
		"$what: one row, that of its worker");
	open_gate();
	value("CALL stream.process_all_available('$name')");
	is(value('SELECT count(*) FROM stream.operations'), '0', "$what: and none afterwards");
	is(value("SELECT sum(n) FROM ${name}_out"), $options{rows}, "$what: all rows came") if $options{rows};
	value("SELECT stream.drop_query('$name')");
	return;
}

# ---- batches
table_source($node, 'input', 'v bigint');
value('INSERT INTO input_t SELECT generate_series(1, 100)');
batch_shows('unlimited', 'SELECT pass(v, 40), 1 AS n FROM input', 'running a batch|0|32|||', 'a table without limit: nobody counts its rows', rows => 100);
batch_shows('limited', 'SELECT pass(v, 40), 1 AS n FROM input', 'running a batch|0|32|60||', 'a table with a limit', rows => 100, more => q(options => '{"max_rows_per_batch": 60}'));

for my $file ([ 'one.csv', 1 .. 50 ], [ 'two.csv', 51 .. 100 ])
{
	my ($name, @rows) = @$file;
	append_to_file("$roots/$name", join('', map { "$_\n" } @rows));
}
my $size = (-s "$roots/one.csv") + (-s "$roots/two.csv");
value(qq{SELECT stream.create_source('files', 'file', 'v bigint', '{"path": "$roots", "format": "csv"}')});
batch_shows('files', 'SELECT pass(v, 40), 1 AS n FROM files', 'running a batch|0|32||' . (-s "$roots/one.csv") . "|$size", 'files: bytes', rows => 100);

my $bootstrap = $broker->bootstrap;
for my $topic ('a', 'b')
{
	$broker->send_value($topic, $_, map { "{\"v\": $_}" } 1 .. 5000) for (0, 1);
	value(qq{SELECT stream.create_source('$topic', 'kafka', 'v bigint', '{"bootstrap.servers": "$bootstrap", "topic": "$topic", "starting_offsets": "earliest"}')});
}
$operations = 'SELECT operation, batch_id, rows_done, rows_total FROM stream.operations';
batch_shows('topic', 'SELECT pass(v, 1), 1 AS n FROM a', 'running a batch|0|1|10000', 'a topic', rows => 10000, more => q(options => '{"parallelism": 1}'));
batch_shows('left_behind', 'SELECT pass(v, 1), 1 AS n FROM a', 'running a batch|0|1|400', 'a backlog in steps', more => q(options => '{"parallelism": 1, "max_rows_per_batch": 400}'), rows => 10000);

# ---- the same by tasks: what each has read
my $two = q(options => '{"parallelism": 2}');
batch_shows('folds', 'SELECT pass(v, 4500) % 10 AS k, count(*) AS n FROM a GROUP BY 1', 'running a batch|0|8192|10000', 'tasks that fold', more => "output_mode => 'update', $two", rows => 10000);
batch_shows('scans', 'SELECT pass(v, 1), 1 AS n FROM a', 'running a batch|0|10000|10000', 'tasks that scan', more => $two, rows => 10000);
batch_shows('scans_both', 'SELECT v, 1 AS n FROM a UNION ALL SELECT pass(v, 1), 1 FROM b', 'running a batch|0|20000|20000', 'tasks that scan one source after the other', more => $two, rows => 20000);
batch_shows('folds_both', 'SELECT pass(v, 4500) % 10 AS k, count(*) AS n FROM (SELECT * FROM a UNION ALL SELECT * FROM b) x GROUP BY 1', 'running a batch|0|8192|20000', 'tasks that fold two sources',
	more => "output_mode => 'update', $two", rows => 20000);
is(value("SELECT count(*) FROM stream.running_operations()"), '0', 'tasks have no rows of their own');

# ---- who does not wait for a gate
create_query($node, 'stops', 'SELECT pg_sleep(v) IS NULL AS s FROM input');
ok(wait_for_sql($node, "SELECT operation FROM stream.operations WHERE query = 'stops'", 'running a batch'), 'a long batch');
value("SELECT stream.stop_query('stops'); SELECT stream.drop_query('stops')");
is(value('SELECT count(*) FROM stream.operations'), '0', 'that is stopped is gone');

# ---- loading of state
create_query($node, 'groups', 'SELECT v, count(*) AS n FROM input GROUP BY v', "output_mode => 'update', start => false");
value('INSERT INTO input_t SELECT generate_series(1000, 200000)');
value("CALL stream.process_all_available('groups')");
value(q{CREATE FUNCTION seen(what text) RETURNS text LANGUAGE plpgsql AS $f$
	DECLARE o record;
	BEGIN
		FOR i IN 1 .. 20000 LOOP
			PERFORM pg_stat_clear_snapshot();
			SELECT * INTO o FROM stream.operations WHERE operation = what AND rows_done > 0;
			IF FOUND THEN RETURN format('%s of %s', o.rows_done > 0, o.rows_total); END IF;
		END LOOP;
	END $f$});
my $seen = '';
for (1 .. 5)
{
	value("SELECT stream.start_query('groups')");
	$seen = value("SELECT seen('loading state')");
	value("SELECT stream.stop_query('groups')");
	last if $seen;
}
is($seen, 't of ' . value("SELECT state_rows FROM stream.queries WHERE name = 'groups'"), 'the loading of state, with how much there is') or note($seen);

# ---- folding, by the process that does it: much of it beside the worker, a little in the session that runs the batch
my $locker = $node->background_psql('postgres');
my $session = $node->background_psql('postgres', on_error_stop => 0);
sub begins { return $session->query_until(qr/sent/, "\\echo sent\n" . shift() . ";\n") }
my $who = q{SELECT o.query, o.operation, o.batch_id, o.rows_total IS NULL, a.backend_type FROM stream.operations o JOIN pg_stat_activity a USING (pid)};
sub folding_shows
{
	my ($name, $backend, $batch) = @_;
	ok(wait_for_sql($node, $who, "$name|folding state|$batch|t|$backend"), "folding by a $backend");
	$locker->query_safe('COMMIT');
	ok(wait_for_sql($node, "SELECT count(*) FROM stream.operations", '0'), 'until it is done');
	cmp_ok(value("SELECT count(*) FROM stream.state_snapshot WHERE query_id = (SELECT id FROM stream.queries WHERE name = '$name') AND batch_id = $batch"), '>', 0, 'and the snapshot is there');
	return;
}
value("SELECT stream.start_query('groups')");
$locker->query_safe('BEGIN; LOCK TABLE stream.state_snapshot IN SHARE MODE');
my $last = value("SELECT last_batch_id FROM stream.queries WHERE name = 'groups'");
value('INSERT INTO input_t SELECT generate_series(1000, 200000)');
ok(wait_for_sql($node, "SELECT last_batch_id FROM stream.queries WHERE name = 'groups'", $last + 1), 'a batch that changes all of the state');
folding_shows('groups', 'stream_ext housekeeper', $last + 1);
value("SELECT stream.stop_query('groups'); SELECT stream.drop_query('groups'); TRUNCATE input_t");
create_query($node, 'few', 'SELECT v, count(*) AS n FROM input GROUP BY v', "output_mode => 'update', start => false");
for my $batch (0, 1)
{
	$locker->query_safe('BEGIN; LOCK TABLE stream.state_snapshot IN SHARE MODE') if $batch == 1;
	value('INSERT INTO input_t SELECT generate_series(1, 20000)');
	begins("CALL stream.run_batch('few', NULL)");
}
folding_shows('few', 'client backend', 1);

# ---- rewinding: the target, then the state
create_query($node, 'once', 'SELECT DISTINCT v FROM input', 'start => false');
for my $batch (0 .. 2)
{
	value("INSERT INTO input_t VALUES (-$batch)");
	value("CALL stream.process_all_available('once')");
}
for my $step ([ 'once_out', 'rewinding the target' ], [ 'stream.state_change', 'rewinding state' ])
{
	my ($table, $operation) = @$step;
	$locker->query_safe("BEGIN; LOCK TABLE $table IN SHARE MODE");
	begins("SELECT stream.rewind_query('once', 0)");
	ok(wait_for_sql($node, 'SELECT query, operation, batch_id, rows_total IS NULL FROM stream.operations', "once|$operation|0|t"), $operation);
	$locker->query_safe('COMMIT');
	ok(wait_for_sql($node, "SELECT last_batch_id, (SELECT count(*) FROM stream.operations) FROM stream.queries WHERE name = 'once'", '0|0'), 'done and gone');
	is(value('SELECT count(*), min(v) FROM once_out'), '20001|0', 'what later batches wrote is gone, too');
	value("CALL stream.process_all_available('once')");
	is(value('SELECT count(*), min(v) FROM once_out'), '20003|-2', 'and comes again');
}

# ---- whose they are
value('CREATE ROLE stranger LOGIN; GRANT USAGE ON SCHEMA stream TO stranger');
$locker->query_safe('BEGIN; LOCK TABLE once_out IN SHARE MODE');
begins("SELECT stream.rewind_query('once', 1)");
ok(wait_for_sql($node, 'SELECT operation FROM stream.operations', 'rewinding the target'), 'the owner sees it');
is($node->safe_psql('postgres', 'SELECT count(*) FROM stream.operations', extra_params => [ '-U', 'stranger' ]), '0', 'who may not see the query does not');
value("SELECT pg_terminate_backend(pid) FROM stream.operations");
ok(wait_for_sql($node, 'SELECT count(*) FROM stream.operations', '0'), 'gone with the process');
$locker->query_safe('COMMIT');
$locker->quit;
$gate->quit;
$node->stop;
done_testing();
