# Low-latency triggers. Rows are there long before their epoch ends; killed inside epochs, over and over, nothing is lost and nothing comes twice; epochs
# close when a query stops, fails or changes its trigger.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::Bin/../lib";
use PostgreSQL::Test::Utils;
use StreamKill;
use StreamNode;
use Test::More;

my $kills = kills_wanted(14, 120);
my $node = node_to_kill();

sub value { return $node->safe_psql('postgres', shift) }

# ---- inside one epoch
table_source($node, 'input', 'v int');
create_query($node, 'long', 'SELECT v + 1 AS v FROM input', "output_mode => 'update', trigger => stream.real_time('1 hour')");
for my $i (1 .. 3)
{
	value("INSERT INTO input_t VALUES ($i)");
	ok(wait_for_sql($node, 'SELECT count(*) FROM long_out', $i), "row $i is there");
}
is(value('SELECT count(*) FROM stream.offset_log'), '0', 'and the epoch is open: nothing is logged yet');
is(value('SELECT string_agg(DISTINCT batch_id::text, \',\') FROM long_out'), '0', 'its rows carry its number');
is(value('SELECT string_agg(flush::text, \',\' ORDER BY flush) FROM stream.epoch_entry'), '0,1,2', 'a flush per arrival');
value("SELECT stream.stop_query('long')");
is(value("SELECT string_agg(batch_id::text, ',') FROM stream.offset_log"), '0', 'a stop ends the epoch');
is(value("SELECT num_input_rows || ' ' || num_output_rows FROM stream.progress"), '3 3', 'its progress counts all of it');
is(value('SELECT count(*) FROM stream.epoch_entry'), '0', 'nothing is left open');

# ---- stopped in the middle of a flush, by a function that lets itself be cancelled or makes something else of it: what was flushed before is an epoch
value(q{
	CREATE FUNCTION hang(v int) RETURNS int LANGUAGE plpgsql AS $$
	BEGIN
		IF v > 0 THEN PERFORM pg_sleep(600); END IF;
		RETURN v;
	EXCEPTION WHEN query_canceled THEN
		IF v = 1 THEN RAISE; END IF;
		RAISE 'not now';
	END $$});
for my $hang (1, 2)
{
	table_source($node, 'now', 'v int');
	create_query($node, 'hang', 'SELECT hang(v) AS v FROM now', "output_mode => 'update', trigger => stream.real_time('1 hour')");
	value('INSERT INTO now_t VALUES (0)');
	ok(wait_for_sql($node, 'SELECT count(*) FROM hang_out', '1'), 'a row is there');
	value("INSERT INTO now_t VALUES ($hang)");
	ok(wait_for_sql($node, q{SELECT count(*) FROM pg_stat_activity a JOIN stream.queries q USING (pid) WHERE q.name = 'hang' AND a.wait_event = 'PgSleep'}, '1'), 'the next one hangs');
	value("SELECT stream.stop_query('hang')");
	is(value("SELECT batch_id || ' ' || num_input_rows FROM stream.progress WHERE query = 'hang'"), '0 1', 'a stop ends the epoch');
	is(value("SELECT count(*) FROM stream.commit_log JOIN stream.queries q ON q.id = query_id WHERE name = 'hang'"), '1', 'and logs it');
	is(value('SELECT count(*) FROM stream.epoch_entry'), '0', 'nothing is left open');
	value("DELETE FROM now_t; INSERT INTO now_t VALUES (-$hang); SELECT stream.start_query('hang')");
	ok(wait_for_sql($node, q{SELECT string_agg(v || '/' || batch_id, ' ' ORDER BY batch_id) FROM hang_out}, "0/0 -$hang/1"), 'it goes on behind it');

	# Who waits for it to stop holds what it reads: the epoch is not ended, and nobody is ended by force.
	value('DROP TABLE now_t CASCADE');
	ok(status_is($node, 'hang', 'failed'), 'a query without its source');
	value(q{SELECT stream.drop_query('hang'); DROP TABLE hang_out});
}
unlike(slurp_file($node->logfile), qr/terminating background worker "stream_ext/, 'each worker left by itself');

# ---- the other triggers go on where it was
value(q{INSERT INTO input_t VALUES (4); SELECT stream.alter_query('long', trigger => stream.processing_time('0 seconds'))});
value(q{CALL stream.process_all_available('long')});
is(value('SELECT string_agg(v || \'/\' || batch_id, \' \' ORDER BY v) FROM long_out'), '2/0 3/0 4/0 5/1', 'as a micro-batch');
value(q{SELECT stream.alter_query('long', trigger => stream.real_time('1 hour')); INSERT INTO input_t VALUES (5); SELECT stream.start_query('long')});
ok(wait_for_sql($node, 'SELECT string_agg(v || \'/\' || batch_id, \' \' ORDER BY v) FROM long_out', '2/0 3/0 4/0 5/1 6/2'), 'and back');

# ---- an epoch that nobody could close: the server dies, and the query is not wanted any more
value("UPDATE stream.query_run SET wanted = false, status = 'stopped'");
kill 'KILL', worker_pid($node, 'long');
ok(wait_for(sub { return crashes() == 1 }) && wait_psql('SELECT 1'), 'the server is back');
is(value('SELECT string_agg(batch_id::text, \',\') FROM stream.epoch_entry'), '2', 'the epoch is open');
value(q{INSERT INTO input_t VALUES (6); SELECT stream.alter_query('long', trigger => stream.once())});
value(q{CALL stream.run_batch('long', NULL)});
is(value('SELECT string_agg(v || \'/\' || batch_id, \' \' ORDER BY v) FROM long_out'), '2/0 3/0 4/0 5/1 6/2 7/3', 'whoever runs it next closes it first');
value("SELECT stream.drop_query('long')");

# ---- the watermark moves between epochs only; late is what was closed
value(q{
	CREATE TABLE event_t (id bigint GENERATED ALWAYS AS IDENTITY, k int, at timestamptz);
	SELECT stream.create_source('event', 'table', options => '{"table": "event_t"}', event_time => 'at', watermark_delay => '0 seconds')});
create_query($node, 'window', q{SELECT stream.tumble(at, '1 minute') AS w, count(*) AS n FROM event GROUP BY 1},
	"output_mode => 'update', trigger => stream.real_time('1 hour')");
value("INSERT INTO event_t (at) VALUES ('2026-03-01 10:00:10')");
ok(wait_for_sql($node, 'SELECT sum(n) FROM window_out', '1'), 'first row');
value("INSERT INTO event_t (at) VALUES ('2026-03-01 10:05:00')");
ok(wait_for_sql($node, 'SELECT sum(n) FROM window_out', '2'), 'a row that will close its window');
value("INSERT INTO event_t (at) VALUES ('2026-03-01 10:00:20')");
ok(wait_for_sql($node, 'SELECT sum(n) FROM window_out', '3'), 'not inside the epoch');
value("SELECT stream.stop_query('window')");
is(value("SELECT watermark FROM stream.queries WHERE name = 'window'"), '2026-03-01 10:05:00+00', 'the epoch ends: the watermark moves');
value("SELECT stream.alter_query('window', trigger => stream.real_time('1 second')); SELECT stream.start_query('window')");
ok(wait_for_sql($node, "SELECT state_rows FROM stream.queries WHERE name = 'window'", '1'), 'the next one closes the window');
value("INSERT INTO event_t (at) VALUES ('2026-03-01 10:00:30')");
ok(wait_for_sql($node, "SELECT rows_late FROM stream.queries WHERE name = 'window'", '1'), 'and counts who is late for it');
is(value('SELECT string_agg(lower(w)::time || \'=\' || n, \' \' ORDER BY w) FROM window_out'), '10:00:00=2 10:05:00=1', 'a late row does not open it again');
value("SELECT stream.drop_query('window')");

# ---- a flush that cannot succeed: its range is logged, so that it can be skipped
value(q{CREATE FUNCTION no_13(v int) RETURNS int LANGUAGE plpgsql AS $$ BEGIN IF v = 13 THEN RAISE 'thirteen'; END IF; RETURN v; END $$});
create_query($node, 'picky', 'SELECT no_13(v) AS v FROM input', q{output_mode => 'update', trigger => stream.real_time('1 hour'), options => '{"max_retries": 1}'});
ok(wait_for_sql($node, 'SELECT count(*) FROM picky_out', '6'), 'it starts well');
value('INSERT INTO input_t VALUES (13)');
ok(status_is($node, 'picky', 'failed'), 'and fails');
is(value("SELECT max(batch_id) FROM stream.offset_log JOIN stream.queries q ON q.id = query_id WHERE name = 'picky'"), '1', 'the range is logged behind the epoch');
value(q{SELECT stream.skip_batch('picky', 1); INSERT INTO input_t VALUES (14); SELECT stream.start_query('picky')});
ok(wait_for_sql($node, 'SELECT max(v) || \'/\' || count(*) FROM picky_out', '14/7'), 'skipped, it goes on');
value("SELECT stream.drop_query('picky')");

# ---- stopped and started while rows keep coming
create_query($node, 'busy', 'SELECT id, k FROM event', "output_mode => 'update', trigger => stream.real_time('1 second')");
for my $round (1 .. 8)
{
	value("INSERT INTO event_t (k, at) SELECT i % 5, '2026-03-01' FROM generate_series(1, 2000) i") for 1 .. 1 + $round % 3;
	value("SELECT stream.stop_query('busy')");
	value("SELECT stream.start_query('busy')");
}
ok(wait_for_sql($node, 'SELECT count(*) = (SELECT count(*) FROM event_t) FROM busy_out', 't'), 'all rows arrive');
is(value('SELECT count(*) - count(DISTINCT id) FROM busy_out'), '0', 'once each');
value("SELECT stream.drop_query('busy')");

# ---- killed inside epochs
my $unlimited = q{options => '{"max_retries": 1000000, "max_rows_per_batch": 40, "min_batches_to_retain": 100000}'};
value('TRUNCATE event_t');
create_query($node, 'flow', 'SELECT id, k FROM event', "output_mode => 'update', trigger => stream.real_time('700 milliseconds'), $unlimited");
create_query($node, 'cont', 'SELECT id, k FROM event', "trigger => stream.continuous('900 milliseconds'), $unlimited");
create_query($node, 'groups', 'SELECT k, count(*) AS n, sum(id) AS s FROM event GROUP BY k', "output_mode => 'update', trigger => stream.real_time('500 milliseconds'), $unlimited");
(my $in_place = $unlimited) =~ s/\{/{"state_provider": "table", /;
create_query($node, 'place', 'SELECT k, count(*) AS n, sum(id) AS s FROM event GROUP BY k', "output_mode => 'update', trigger => stream.real_time('500 milliseconds'), $in_place");

# its rows all have one time, which is late from the second epoch on: DISTINCT asks a source that has no event time
value(q{SELECT stream.create_source('timeless', 'table', options => '{"table": "event_t"}')});
create_query($node, 'seen', 'SELECT DISTINCT k FROM timeless', "output_mode => 'update', trigger => stream.real_time('500 milliseconds'), $unlimited");
value(q{
	CREATE FUNCTION number(key int, rows event[]) RETURNS TABLE (k int, n bigint, listed bigint) LANGUAGE plpgsql AS $$
	BEGIN
		n := coalesce(stream.state_get('n', NULL::bigint), 0) + cardinality(rows);
		PERFORM stream.state_update('n', n);
		PERFORM stream.list_append('ids', (rows[1]).id % 100);
		listed := (SELECT count(*) FROM stream.list_get('ids', NULL::bigint));
		k := key;
		RETURN NEXT;
	END $$;
	SELECT stream.create_processor('number', 'number(int,event[])', state => '{"n": {"kind": "value", "type": "bigint"}, "ids": {"kind": "list", "type": "bigint"}}')});
create_query($node, 'custom', q{SELECT t.k, t.n, t.listed FROM event e, LATERAL stream.transform_with_state('number', e.k, e) AS t(k int, n bigint, listed bigint)},
	"output_mode => 'update', trigger => stream.real_time('600 milliseconds'), $unlimited");

kill_workers($kills, [qw(triggered planned executed sunk flushed closed committed)], sub {
	my $rows = 1 + int(rand(30));
	try_psql("INSERT INTO event_t (k, at) SELECT i % 11, '2026-03-01' FROM generate_series(1, $rows) i");
});
my @queries = qw(flow cont groups place seen custom);
drained('', @queries);
value("SELECT stream.stop_query('$_')") for @queries;
is_same('SELECT id, k FROM event_t', 'SELECT id, k FROM flow_out', 'real_time: none lost, none twice');
is_same('SELECT id, k FROM event_t', 'SELECT id, k FROM cont_out', 'continuous: none lost, none twice');
is_same('SELECT k, count(*), sum(id) FROM event_t GROUP BY k', "SELECT k, n, s FROM ${_}_out", "$_: the groups of a plain SELECT") for qw(groups place);
is_same('SELECT k, count(*), sum(id) FROM event_t GROUP BY k',
	"SELECT (key->>'k')::int, (value->>'n')::bigint, (value->>'s')::numeric FROM stream.state('$_')", "$_: and so is its state") for qw(groups place);
is_same('SELECT DISTINCT k FROM event_t', 'SELECT k FROM seen_out', 'distinct: every key once');
is_same('SELECT k, row_number() OVER (PARTITION BY k) FROM event_t', 'SELECT k, n FROM custom_out', 'custom state: a call per row, each counted once');
is(value('SELECT count(*) FROM custom_out WHERE n <> listed'), '0', 'and listed once');
logs_are_whole();
is(value('SELECT count(*) FROM stream.epoch_entry'), '0', 'no epoch is left open');
is(value("SELECT sum(num_input_rows) FROM stream.progress WHERE query = 'flow'"), value('SELECT count(*) FROM event_t'), 'progress counts every row once');
$node->stop;
done_testing();
