# Custom state in background workers: timers and TTL by the clock without rows, kills in the middle of handlers, state read while the query runs.
use strict;
use warnings FATAL => 'all';
use FindBin;
use lib "$FindBin::Bin/../lib";
use StreamNode;
use Test::More;
use Time::HiRes qw(usleep);

my $node = new_node('main', 'restart_after_crash = on');
table_source($node, 'input', 'k text, v int');

sub batches { return $node->safe_psql('postgres', "SELECT count(*) FROM stream.progress WHERE query = '$_[0]'") }

# A timer fires by the clock, once; before and after it the query sleeps.
$node->safe_psql('postgres', q{
	CREATE FUNCTION remind(key text, rows input[]) RETURNS TABLE (k text, what text) LANGUAGE plpgsql AS $f$
	BEGIN
		PERFORM stream.register_timer(stream.processing_time_now() + interval '2 seconds');
		k := key; what := 'row'; RETURN NEXT;
	END $f$;
	CREATE FUNCTION reminded(key text, expires_at timestamptz) RETURNS TABLE (k text, what text) LANGUAGE sql AS $f$ SELECT key, 'timer' $f$;
	SELECT stream.create_processor('remind', 'remind(text,input[])', 'reminded(text,timestamptz)', time_mode => 'processing_time')});
create_query($node, 'remind', q{SELECT t.* FROM input i, LATERAL stream.transform_with_state('remind', i.k, i) AS t(k text, what text)});
$node->safe_psql('postgres', q{INSERT INTO input_t VALUES ('a', 1)});
ok(wait_for_sql($node, q{SELECT string_agg(what, ' ' ORDER BY batch_id) FROM remind_out}, 'row timer', 15), 'a timer fires without rows');
is($node->safe_psql('postgres', q{SELECT extract(epoch FROM max(batch_time) - min(batch_time)) BETWEEN 2 AND 4 FROM stream.offset_log}), 't', 'when it is due');
is(batches('remind'), '2', 'and wakes the query once');
usleep(1_500_000);
is(batches('remind'), '2', 'afterwards it sleeps');
is($node->safe_psql('postgres', q{SELECT count(*) FROM stream.state('remind')}), '0', 'a timer that has fired is gone');
is($node->safe_psql('postgres', q{SELECT status FROM stream.queries WHERE name = 'remind'}), 'running', 'all of it read while the query runs');

# A timer outlives a restart, and what became due meanwhile fires at once.
$node->safe_psql('postgres', q{INSERT INTO input_t VALUES ('b', 1)});
ok(wait_for_sql($node, q{SELECT count(*) FROM remind_out}, '3', 15), 'another row');
$node->safe_psql('postgres', q{SELECT stream.stop_query('remind')});
usleep(2_200_000);
is($node->safe_psql('postgres', q{SELECT count(*) FROM remind_out}), '3', 'a stopped query fires nothing');
$node->safe_psql('postgres', q{SELECT stream.start_query('remind')});
ok(wait_for_sql($node, q{SELECT count(*) FILTER (WHERE what = 'timer') FROM remind_out}, '2', 15), 'a timer due while the query was stopped fires at its start');
$node->safe_psql('postgres', q{SELECT stream.drop_query('remind')});

# Elements of a list expire one by one, hidden when read and removed without rows.
$node->safe_psql('postgres', q{
	TRUNCATE input_t;
	CREATE FUNCTION keep(key text, rows input[]) RETURNS TABLE (what text) LANGUAGE plpgsql AS $f$
	BEGIN
		IF (rows[1]).v > 0 THEN PERFORM stream.list_append('l', (rows[1]).v); END IF;
		what := (SELECT string_agg(e::text, ' ') FROM stream.list_get('l', NULL::int) e); RETURN NEXT;
	END $f$;
	SELECT stream.create_processor('keep', 'keep(text,input[])', state => '{"l": {"kind": "list", "type": "int", "ttl": "4 seconds"}}', time_mode => 'processing_time')});
create_query($node, 'keep', q{SELECT t.what FROM input i, LATERAL stream.transform_with_state('keep', i.k, i) AS t(what text)});
$node->safe_psql('postgres', q{INSERT INTO input_t VALUES ('a', 1)});
ok(wait_for_sql($node, q{SELECT what FROM keep_out}, '1', 15), 'the first element');
usleep(2_000_000);
$node->safe_psql('postgres', q{INSERT INTO input_t VALUES ('a', 2)});
ok(wait_for_sql($node, q{SELECT what FROM keep_out WHERE batch_id = 1}, '1 2', 15), 'the second');
ok(wait_for_sql($node, q{SELECT string_agg(value::text, ' ') FROM stream.state('keep')}, '2', 15), 'the first goes, by itself');
$node->safe_psql('postgres', q{INSERT INTO input_t VALUES ('a', 0)});
ok(wait_for_sql($node, q{SELECT what FROM keep_out ORDER BY batch_id DESC LIMIT 1}, '2', 15), 'and the second stays');
ok(wait_for_sql($node, q{SELECT state_rows FROM stream.queries WHERE name = 'keep'}, '0', 15), 'for its own time');
is($node->safe_psql('postgres', q{SELECT count(*) FROM stream.state('keep')}), '0', 'nothing is left');
$node->safe_psql('postgres', q{SELECT stream.drop_query('keep')});

# Kills in the middle of handlers: every row counts once, in every kind of state.
$node->safe_psql('postgres', q{
	TRUNCATE input_t;
	CREATE FUNCTION tally(key text, rows input[]) RETURNS TABLE (k text, n bigint) LANGUAGE plpgsql AS $f$
	DECLARE r input;
	BEGIN
		PERFORM stream.state_update('n', coalesce(stream.state_get('n', NULL::bigint), 0) + cardinality(rows));
		FOREACH r IN ARRAY rows LOOP
			PERFORM stream.list_append('l', r.v);
			PERFORM stream.map_put('m', r.v % 7, coalesce(stream.map_get('m', r.v % 7, NULL::bigint), 0) + 1);
		END LOOP;
		PERFORM pg_sleep(0.005);
		k := key; n := stream.state_get('n', NULL::bigint); RETURN NEXT;
	END $f$;
	SELECT stream.create_processor('tally', 'tally(text,input[])', state => '{"n": {"kind": "value", "type": "bigint"}, "l": {"kind": "list", "type": "int"},
		"m": {"kind": "map", "key_type": "int", "type": "bigint"}}')});
create_query($node, 'tally', q{SELECT t.* FROM input i, LATERAL stream.transform_with_state('tally', i.k, i) AS t(k text, n bigint)}, q{options => '{"max_rows_per_batch": 150}'});
for my $round (1 .. 4)
{
	$node->safe_psql('postgres', "INSERT INTO input_t SELECT 'k' || v % 50, v FROM generate_series($round * 1000, $round * 1000 + 599) v");
	usleep(300_000 + 100_000 * $round);
	my $pid = wait_for(sub { return ($node->psql('postgres', "SELECT pid FROM stream.queries WHERE name = 'tally'"))[1] }, 30) && worker_pid($node, 'tally');
	kill 'KILL', $pid if $pid;
	ok(wait_for(sub { my ($rc) = $node->psql('postgres', 'SELECT 1'); return $rc == 0 }, 30), "up again after kill $round");
}
ok(wait_for_sql($node, q{SELECT sum(n) FROM (SELECT DISTINCT ON (k) n FROM tally_out ORDER BY k, batch_id DESC) t}, '2400', 60), 'rows out count every row in, once');
is($node->safe_psql('postgres', q{SELECT string_agg(state || ' ' || sum, ', ' ORDER BY state) FROM (SELECT state, sum(CASE WHEN state = 'l' THEN 1 ELSE value::text::bigint END) FROM stream.state('tally') GROUP BY state) s}),
	'l 2400, m 2400, n 2400', 'so does state of every kind');
is($node->safe_psql('postgres', q{SELECT count(*) FROM (SELECT value::text::int FROM stream.state('tally', state_name => 'l') EXCEPT SELECT v FROM input_t) d}), '0', 'with the values that came');
$node->stop;
done_testing();
