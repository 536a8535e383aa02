--
-- Changing a query that has state: what is allowed keeps the state; what is not names what differs, and nothing changes.
--
\set SHOW_CONTEXT never
CREATE SCHEMA alt;
SET search_path = alt;
CREATE TABLE hit_t (k int, name text, v int, at timestamptz);
SELECT stream.create_source('hit', 'table', options => '{"table": "hit_t"}', event_time => 'at', watermark_delay => '10 seconds');
CREATE FUNCTION make(name text, query text, mode text DEFAULT 'append', options jsonb DEFAULT '{}') RETURNS void LANGUAGE sql AS $$
    SELECT stream.create_query(name, query, stream.to_table('alt.' || name || '_out'), mode, options => options, start => false) $$;
SET client_min_messages = warning;
SELECT make('sums', 'SELECT k, sum(v) AS total, count(*) AS n FROM hit WHERE v < 100 GROUP BY k', 'update');
SELECT make('windows', 'SELECT stream.tumble(at, ''10 seconds'') AS w, count(*) AS n FROM hit GROUP BY 1');
SELECT make('first', 'SELECT DISTINCT ON (k) k, v FROM hit');
SELECT make('within', 'SELECT DISTINCT ON (k) k, v FROM hit', options => '{"dedup_within_watermark": true}');
SELECT make('pairs', 'SELECT a.k, a.v AS av, b.v AS bv FROM hit a JOIN hit b ON a.k = b.k AND b.at BETWEEN a.at AND a.at + interval ''10 seconds''');
SELECT make('sessions', 'SELECT k, stream.session(at, ''5 seconds'') AS w, count(*) AS n FROM hit GROUP BY 1, 2');
SELECT make('some', 'SELECT k, v FROM hit LIMIT 3');
SELECT make('plain', 'SELECT k, v FROM hit');
RESET client_min_messages;
INSERT INTO hit_t VALUES (1, 'a', 1, '2020-01-01 00:00:01'), (1, 'b', 2, '2020-01-01 00:00:02'), (2, 'a', 3, '2020-01-01 00:00:03');
CREATE PROCEDURE batch() LANGUAGE plpgsql AS $$
DECLARE q text;
BEGIN
    FOR q IN SELECT name FROM stream.queries ORDER BY id LOOP CALL stream.process_all_available(q); END LOOP;
END $$;
CALL batch();

--
-- Refused, each with what differs.
--
\set VERBOSITY terse
CREATE FUNCTION try(name text, query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE detail text; message text; state text;
BEGIN
    PERFORM stream.alter_query(name, query => query);
    RETURN 'allowed';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL;
    RETURN state || ' ' || CASE WHEN detail = '' THEN message ELSE detail END;
END $$;
SET client_min_messages = warning;
-- grouping keys, aggregates, their arguments, filters of aggregates, DISTINCT inside, another operator
SELECT try('sums', 'SELECT name, sum(v) AS total, count(*) AS n FROM hit WHERE v < 100 GROUP BY name');
SELECT try('sums', 'SELECT k, name, sum(v) AS total, count(*) AS n FROM hit GROUP BY k, name');
SELECT try('sums', 'SELECT k, max(v) AS total, count(*) AS n FROM hit GROUP BY k');
SELECT try('sums', 'SELECT k, sum(v + 1) AS total, count(*) AS n FROM hit GROUP BY k');
SELECT try('sums', 'SELECT k, sum(v) FILTER (WHERE v > 1) AS total, count(*) AS n FROM hit GROUP BY k');
SELECT try('sums', 'SELECT k, sum(DISTINCT v) AS total, count(*) AS n FROM hit GROUP BY k');
SELECT try('sums', 'SELECT k, sum(v) AS total FROM hit GROUP BY k');
SELECT try('sums', 'SELECT k, 1::bigint AS total, 1::bigint AS n FROM hit');
SELECT try('sums', 'SELECT k, sum(v) AS total, count(*) AS n FROM (SELECT DISTINCT k, v FROM hit) d GROUP BY k');
-- window sizes
SELECT try('windows', 'SELECT stream.tumble(at, ''20 seconds'') AS w, count(*) AS n FROM hit GROUP BY 1');
SELECT try('windows', 'SELECT stream.hop(at, ''10 seconds'', ''5 seconds'') AS w, count(*) AS n FROM hit GROUP BY 1');
SELECT try('sessions', 'SELECT k, stream.session(at, ''6 seconds'') AS w, count(*) AS n FROM hit GROUP BY 1, 2');
-- keys of deduplication, and its kind
SELECT try('first', 'SELECT DISTINCT ON (v) k, v FROM hit');
SELECT try('first', 'SELECT DISTINCT k, v FROM hit');
SELECT try('first', 'SELECT k, v FROM hit');
SELECT stream.alter_query('first', options => '{"dedup_within_watermark": true}');
SELECT stream.alter_query('within', options => '{"dedup_within_watermark": null}');
-- keys of joins, their kind, what a side keeps
SELECT try('pairs', 'SELECT a.k, a.v AS av, b.v AS bv FROM hit a JOIN hit b ON a.v = b.v AND b.at BETWEEN a.at AND a.at + interval ''10 seconds''');
SELECT try('pairs', 'SELECT a.k, a.v AS av, b.v AS bv FROM hit a LEFT JOIN hit b ON a.k = b.k AND b.at BETWEEN a.at AND a.at + interval ''10 seconds''');
SELECT try('pairs', 'SELECT a.k, a.v AS av, b.k AS bv FROM hit a JOIN hit b ON a.k = b.k AND b.at BETWEEN a.at AND a.at + interval ''10 seconds''');
-- stateful operators added, removed
SELECT try('plain', 'SELECT DISTINCT k, v FROM hit');
SELECT try('plain', 'SELECT k, v FROM hit LIMIT 5');
SELECT try('some', 'SELECT k, v FROM hit');
RESET client_min_messages;
-- all of it: message, detail, way out
\set VERBOSITY default
SELECT stream.alter_query('sums', query => 'SELECT k, max(v) AS total, count(*) AS n FROM hit GROUP BY k');
\set VERBOSITY terse
-- a refusal changes nothing, a running batch or not
INSERT INTO hit_t VALUES (1, 'c', 4, '2020-01-01 00:00:04');
CALL batch();
SELECT k, total, n FROM sums_out ORDER BY k;
SELECT k, v FROM first_out ORDER BY k;

--
-- Allowed, and the state is still there.
--
SET client_min_messages = warning;
-- filters, projections, HAVING, names that change nothing
SELECT try('sums', 'SELECT k, sum(v) AS total, count(*) AS n FROM hit WHERE v < 50 AND name <> ''z'' GROUP BY k HAVING count(*) > 1');
SELECT try('windows', 'SELECT stream.tumble(at, ''10 seconds'') AS w, count(*) * 10 AS n FROM hit WHERE name <> ''z'' GROUP BY 1');
-- payload of deduplication
SELECT try('first', 'SELECT DISTINCT ON (k) k, v * 100 AS v FROM hit WHERE k > 0');
SELECT try('within', 'SELECT DISTINCT ON (k) k, length(name) AS v FROM hit');
-- the other conditions of a join, and what is done with its columns
SELECT try('pairs', 'SELECT a.k, -a.v AS av, -b.v AS bv FROM hit a JOIN hit b ON a.k = b.k AND b.at BETWEEN a.at AND a.at + interval ''10 seconds'' AND a.v < b.v');
-- another bound of LIMIT; anything where nothing is kept
SELECT try('some', 'SELECT k, v FROM hit LIMIT 6');
SELECT try('plain', 'SELECT k, v + 1000 AS v FROM hit WHERE v > 1');
RESET client_min_messages;
-- sink, trigger, limits, retention, late rows, watermark delays
SELECT stream.alter_query('sums', sink => stream.to_table('alt.sums_out2'), trigger => stream.processing_time('1 hour'),
    options => '{"max_rows_per_batch": 2, "min_batches_to_retain": 7, "late_rows": "dead_letter", "max_retries": 1}');
SELECT stream.alter_query('windows', options => '{"watermarks": {"hit": "1 second"}, "no_data_batches": false}');
INSERT INTO hit_t VALUES (1, 'a', 10, '2020-01-01 00:00:05'), (2, 'a', 20, '2020-01-01 00:00:06'), (3, 'z', 30, '2020-01-01 00:00:07'), (4, 'a', 70, '2020-01-01 00:00:08');
CALL batch();
SELECT k, total, n FROM sums_out ORDER BY k;
SELECT k, total, n FROM sums_out2 ORDER BY k;
SELECT k, v FROM first_out ORDER BY k;
SELECT k, v FROM within_out ORDER BY k;
SELECT k, av, bv FROM pairs_out WHERE av < 0 ORDER BY 1, 2, 3;
SELECT count(*) FROM some_out;
SELECT k, v FROM plain_out WHERE v > 999 ORDER BY 1, 2;
INSERT INTO hit_t VALUES (9, 'a', 0, '2020-01-01 00:01:00');
CALL batch();
INSERT INTO hit_t VALUES (9, 'a', 0, '2020-01-01 00:01:30');
CALL batch();
INSERT INTO hit_t VALUES (9, 'a', 0, '2020-01-01 00:01:31');
CALL batch();
SELECT w, n FROM windows_out ORDER BY w;

--
-- Aggregates that are new, over windows: refused unless asked for; then they start empty in the windows that are open, whatever order they stand in.
--
SET client_min_messages = warning;
SELECT make('more_' || p, 'SELECT k, stream.tumble(at, ''1 hour'') AS w, sum(v) AS total, array_agg(v ORDER BY v) AS list FROM hit GROUP BY 1, 2', 'update', jsonb_build_object('state_provider', p)) FROM unnest(ARRAY['memory', 'table']) p;
SELECT make('more_final', 'SELECT stream.tumble(at, ''1 hour'') AS w, count(*) AS n FROM hit GROUP BY 1');
SELECT make('more_hops', 'SELECT k, stream.hop(at, ''1 hour'', ''15 minutes'') AS w, sum(v) AS total FROM hit GROUP BY 1, 2', 'update');
SELECT make('more_sessions', 'SELECT k, stream.session(at, ''1 hour'') AS w, count(*) AS n FROM hit GROUP BY 1, 2', 'update');
SELECT make('more_kinds', 'SELECT stream.tumble(at, ''1 hour'') AS w, count(DISTINCT k) AS n FROM hit GROUP BY 1', 'update');
RESET client_min_messages;
TRUNCATE hit_t;
INSERT INTO hit_t VALUES (1, 'a', 1, '2020-01-02 00:00:01'), (1, 'b', 2, '2020-01-02 00:00:02'), (2, 'a', 3, '2020-01-02 00:00:03');
CALL batch();
ALTER TABLE more_memory_out ADD smallest int, ADD n bigint, ADD mean numeric;
ALTER TABLE more_table_out ADD smallest int, ADD n bigint, ADD mean numeric;
ALTER TABLE more_final_out ADD total bigint;
ALTER TABLE more_hops_out ADD smallest int, ADD n bigint;
ALTER TABLE more_sessions_out ADD total bigint;
ALTER TABLE more_kinds_out ADD total bigint;
CREATE FUNCTION more_query() RETURNS text LANGUAGE sql AS $$ SELECT 'SELECT k, stream.tumble(at, ''1 hour'') AS w, count(*) AS n, array_agg(v ORDER BY v) AS list, min(v) AS smallest, avg(v) AS mean, sum(v) AS total FROM hit GROUP BY 1, 2' $$;
\set VERBOSITY default
SELECT stream.alter_query('more_memory', query => more_query());
\set VERBOSITY terse
SELECT stream.alter_query('more_' || p, query => more_query(), new_aggregates => true) FROM unnest(ARRAY['memory', 'table']) p;
SELECT key, value FROM stream.state('more_memory') ORDER BY key::text;
SELECT count(*) FROM (SELECT key, value FROM stream.state('more_memory') EXCEPT SELECT key, value FROM stream.state('more_table')) d;
SELECT state_name, rows, min_batch_id = max_batch_id AS only_now FROM stream.state_metadata('more_memory');
SELECT stream.alter_query('more_final', query => 'SELECT stream.tumble(at, ''1 hour'') AS w, sum(v) AS total, count(*) AS n FROM hit GROUP BY 1', new_aggregates => true);
SELECT stream.alter_query('more_hops', query => 'SELECT k, stream.hop(at, ''1 hour'', ''15 minutes'') AS w, min(v) AS smallest, count(*) AS n, sum(v) AS total FROM hit GROUP BY 1, 2', new_aggregates => true);
SELECT stream.alter_query('more_sessions', query => 'SELECT k, stream.session(at, ''1 hour'') AS w, count(*) AS n, avg(v)::bigint AS total FROM hit GROUP BY 1, 2', new_aggregates => true);
INSERT INTO hit_t VALUES (1, 'a', 10, '2020-01-02 00:00:05'), (3, 'a', 30, '2020-01-02 00:00:05');
CALL batch();
SELECT k, w, total, smallest, n FROM more_hops_out WHERE k = 1 ORDER BY w;
SELECT k, w, n, total FROM more_sessions_out ORDER BY k;
SELECT k, total, list, smallest, n, mean FROM more_memory_out ORDER BY k;
SELECT count(*) FROM (TABLE more_memory_out EXCEPT TABLE more_table_out) d;
INSERT INTO hit_t VALUES (9, 'a', 0, '2020-01-02 02:00'), (9, 'a', 0, '2020-01-02 02:01');
CALL batch();
SELECT w, n, total FROM more_final_out ORDER BY w;
-- Not with other changes, not for an aggregate that is gone, not without event time, not for sets.
SELECT stream.alter_query('more_memory', query => 'SELECT k, stream.tumble(at, ''1 hour'') AS w, count(*) AS n FROM hit GROUP BY 1, 2', new_aggregates => true);
SELECT stream.alter_query('more_final', query => 'SELECT stream.tumble(at, ''2 hours'') AS w, sum(v) AS total, count(*) AS n, max(v) AS m FROM hit GROUP BY 1', new_aggregates => true);
SELECT stream.alter_query('sums', query => 'SELECT k, sum(v) AS total, count(*) AS n, max(v) AS m FROM hit WHERE v < 50 AND name <> ''z'' GROUP BY k HAVING count(*) > 1', new_aggregates => true);
SELECT stream.alter_query('more_kinds', query => 'SELECT stream.tumble(at, ''1 hour'') AS w, count(DISTINCT k) AS n, sum(v) AS total FROM hit GROUP BY 1', new_aggregates => true);
-- A restart reads what was written.
\c
SET search_path = alt;
INSERT INTO hit_t VALUES (1, 'a', 100, '2020-01-02 02:00:05'), (9, 'a', 1, '2020-01-02 02:01');
CALL batch();
SELECT k, total, list, smallest, n, mean FROM more_memory_out ORDER BY w, k;
SELECT count(*) FROM (TABLE more_memory_out EXCEPT TABLE more_table_out) d;

-- After a reset anything goes.
SELECT stream.reset_query('sums');
SELECT try('sums', 'SELECT name, max(v) AS total, count(*) AS n FROM hit GROUP BY name');
SELECT stream.alter_query('sums', query => 'SELECT name, max(v) AS total, count(*) AS n FROM hit GROUP BY name', sink => stream.to_table('alt.sums_out3'));
CALL batch();
SELECT name, total, n FROM sums_out3 ORDER BY name;

-- A processor's variables: another type or kind is refused, more of them and other code are fine.
CREATE FUNCTION counted(key int, "rows" hit[]) RETURNS TABLE (k int, n bigint) LANGUAGE plpgsql AS $$
BEGIN
    PERFORM stream.state_update('n', coalesce(stream.state_get('n', NULL::bigint), 0) + cardinality("rows"));
    RETURN QUERY SELECT key, stream.state_get('n', NULL::bigint);
END $$;
SELECT stream.create_processor('counter', 'counted(int, hit[])', state => '{"n": {"kind": "value", "type": "bigint"}}');
SELECT stream.create_processor('counter_more', 'counted(int, hit[])', state => '{"n": {"kind": "value", "type": "bigint"}, "m": {"kind": "list", "type": "text"}}');
SELECT stream.create_processor('counter_other', 'counted(int, hit[])', state => '{"n": {"kind": "value", "type": "numeric"}}');
SELECT stream.create_processor('counter_list', 'counted(int, hit[])', state => '{"n": {"kind": "list", "type": "bigint"}}');
SELECT make('custom', 'SELECT t.k, t.n FROM hit, LATERAL stream.transform_with_state(''counter'', hit.k, hit) AS t(k int, n bigint)');
CALL batch();
SELECT try('custom', 'SELECT t.k, t.n FROM hit, LATERAL stream.transform_with_state(''counter_other'', hit.k, hit) AS t(k int, n bigint)');
SELECT try('custom', 'SELECT t.k, t.n FROM hit, LATERAL stream.transform_with_state(''counter_list'', hit.k, hit) AS t(k int, n bigint)');
SELECT try('custom', 'SELECT t.k, t.n FROM hit, LATERAL stream.transform_with_state(''counter'', hit.v, hit) AS t(k int, n bigint)');
SELECT try('custom', 'SELECT t.k, t.n * 10 AS n FROM hit, LATERAL stream.transform_with_state(''counter_more'', hit.k, hit) AS t(k int, n bigint)');
INSERT INTO hit_t VALUES (1, 'a', 1, '2020-01-01 00:01:01');
CALL batch();
SELECT k, n FROM custom_out WHERE k = 1 ORDER BY n;

-- Waiting for one that is stopped, as long as one may.
SELECT stream.await_termination('custom', '170000 years'), stream.await_termination('custom', '0');
SELECT stream.await_termination('custom', '178000000 years');
SELECT stream.await_termination('custom', '230000 years'); -- no time of our days could be added
SELECT stream.await_termination('custom', '-1 second');

SELECT count(stream.drop_query(name)) FROM stream.queries;
SELECT stream.drop_processor(name) FROM stream.processors WHERE name LIKE 'counter%';
SET client_min_messages = warning;
DROP SCHEMA alt CASCADE;
