-- Sliding windows from panes: a row goes into one pane, windows are put together when they are emitted. Nobody can tell from the results.
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE SCHEMA hop;
SET search_path = hop;
CREATE TABLE reading_t (id int, k text, v int, f float8, ts timestamptz, local timestamp);
SELECT stream.create_source('reading', 'table', options => '{"table": "reading_t"}', event_time => 'ts', watermark_delay => '1 minute');
SELECT stream.create_source('plain', 'table', options => '{"table": "reading_t"}');
CREATE FUNCTION add_readings(first int, last int) RETURNS void LANGUAGE sql
BEGIN ATOMIC
    INSERT INTO reading_t SELECT i, 'k' || i % 3, i % 17, i % 10, '2030-01-01'::timestamptz + i * interval '7 seconds', '2030-01-01'::timestamp + i * interval '7 seconds'
    FROM generate_series(first, last) i;
END;
CREATE TABLE question (name text PRIMARY KEY, mode text, query text);
INSERT INTO question VALUES
('hour_by_minute', 'update', 'SELECT k, stream.hop(ts, ''1 hour'', ''1 minute'') AS w, count(*), sum(v), avg(v), min(v), max(f), sum(f) AS sum_f, bool_or(v > 15) AS any, stddev(v), count(*) FILTER (WHERE v > 8) AS many FROM reading GROUP BY k, w'),
('alone', 'update', 'SELECT stream.hop(ts, ''1 minute'', ''10 seconds'') AS w, sum(v), count(DISTINCT k) AS keys FROM reading GROUP BY w'),
('uneven', 'update', 'SELECT stream.hop(ts, ''50 seconds'', ''20 seconds'', ''2030-01-01 00:00:03'') AS w, sum(v) FROM reading GROUP BY w'),
('local', 'update', 'SELECT stream.hop(local, ''1 minute'', ''15 seconds'') AS w, k IS NULL AS none, avg(f) FROM plain GROUP BY w, none'),
('all_of_it', 'complete', 'SELECT k, stream.hop(ts, ''5 minutes'', ''30 seconds'') AS w, sum(v), max(ts) FROM reading GROUP BY k, w'),
('started', 'update', 'SELECT lower(stream.hop(ts, ''2 minutes'', ''1 minute'')) AS begins, count(*) FROM reading GROUP BY begins'),
('lists', 'update', 'SELECT stream.hop(ts, ''2 minutes'', ''1 minute'') AS w, array_agg(v ORDER BY id) FROM reading GROUP BY w'),
('many_of_them', 'update', 'SELECT k, stream.hop(ts, ''2 minutes'', ''1 minute'') AS w, count(*) FROM reading GROUP BY k, w HAVING count(*) > 4');
SELECT name, stream.create_query(name, query, stream.to_table('got_' || name), mode, options => jsonb_build_object('state_provider', CASE WHEN name IN ('alone', 'all_of_it') THEN 'table' ELSE 'memory' END,
    'watermarks', '{"reading": "1 day"}'::jsonb), start => false) > 0 AS created FROM question WHERE name <> 'local' ORDER BY name;
SELECT stream.create_query(name, query, stream.to_table('got_' || name), mode, start => false) > 0 AS created FROM question WHERE name = 'local';
-- Which of them go by panes.
SELECT name, coalesce((SELECT trim(l) FROM stream.explain_query(name) l WHERE l ~ 'panes'), 'a row for each window') AS how FROM question ORDER BY name;
CREATE PROCEDURE run_all() LANGUAGE plpgsql AS $$
DECLARE q text;
BEGIN
    FOR q IN SELECT name FROM stream.queries ORDER BY name LOOP
        CALL stream.process_all_available(q);
    END LOOP;
END $$;
CREATE FUNCTION differences(query text, target regclass) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    columns text := (SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum) FROM pg_attribute WHERE attrelid = target AND attnum > 0 AND attname <> 'batch_id');
    answer bigint;
BEGIN
    EXECUTE format('WITH a AS (SELECT %1$s FROM (%2$s) q), b AS (SELECT %1$s FROM %3$s) SELECT count(*) FROM ((TABLE a EXCEPT ALL TABLE b) UNION ALL (TABLE b EXCEPT ALL TABLE a)) d',
                   columns, query, target) INTO answer;
    RETURN answer;
END $$;
SELECT add_readings(1, 100);
INSERT INTO reading_t VALUES (0, NULL, 1, NULL, '2030-01-01 00:05', '2030-01-01 00:05'), (0, 'k1', NULL, 1, NULL, NULL);
CALL run_all();
SELECT name, differences(query, ('got_' || name)::regclass) FROM question ORDER BY name;
\c -
SET search_path = hop;
SELECT add_readings(101, 103);
CALL run_all();
SELECT add_readings(400, 700);
SELECT add_readings(104, 110);
CALL run_all();
SELECT name, differences(query, ('got_' || name)::regclass), (SELECT state_rows FROM stream.queries q WHERE q.name = question.name) AS held FROM question ORDER BY name;
SELECT stream.drop_query(name) FROM stream.queries;

-- Windows that end are emitted once; a row counts in those of its windows that are still open, and is late for the others, one by one.
SELECT stream.create_query('closing', 'SELECT k, stream.hop(ts, ''30 seconds'', ''10 seconds'') AS w, count(*) AS n, sum(v) AS s FROM reading GROUP BY k, w', stream.to_table('closed'),
    options => '{"late_rows": "dead_letter", "watermarks": {"reading": "10 seconds"}}', start => false) > 0 AS created;
TRUNCATE reading_t;
INSERT INTO reading_t VALUES (1, 'a', 1, 0, '2030-01-02 00:00:05'), (2, 'a', 2, 0, '2030-01-02 00:00:15'), (3, 'b', 3, 0, '2030-01-02 00:00:25'), (4, 'a', 4, 0, '2030-01-02 00:00:34');
CALL stream.process_all_available('closing');
SELECT k, lower(w)::time AS begins, upper(w)::time AS ends, n, s FROM closed ORDER BY 2, 1;
SELECT key ->> 'k' AS k, key ->> 'w' AS pane, value, expires_at FROM stream.state('closing') ORDER BY 2, 1;
\c -
SET search_path = hop;
-- The watermark stands at 00:00:24: of the windows of 00:00:12 one is over; of 00:00:05 all but one; of 23:59:50 all.
INSERT INTO reading_t VALUES (5, 'a', 100, 0, '2030-01-02 00:00:12'), (6, 'a', 1000, 0, '2030-01-02 00:00:05'), (7, 'a', 10000, 0, '2030-01-01 23:59:50'), (8, 'b', 1, 0, NULL),
    (9, 'b', 1, 0, 'infinity');
CALL stream.process_all_available('closing');
INSERT INTO reading_t VALUES (10, 'c', 5, 0, '2030-01-02 00:10');
CALL stream.process_all_available('closing');
SELECT k, lower(w)::time AS begins, upper(w)::time AS ends, n, s, batch_id FROM closed ORDER BY 2, 1;
SELECT reason, convert_from(raw, 'UTF8')::jsonb - 'start' AS late FROM stream.dead_letters ORDER BY id;
SELECT rows_late, state_rows FROM stream.queries;
SELECT key ->> 'w' AS pane, value FROM stream.state('closing');
SELECT stream.rewind_query('closing', 1);
CALL stream.process_all_available('closing');
SELECT count(*), count(DISTINCT (k, w, n, s)) AS once FROM closed;
-- A query that must keep its inputs cannot become one of panes, nor the other way round.
SELECT stream.alter_query('closing', 'SELECT k, stream.hop(ts, ''30 seconds'', ''15 seconds'') AS w, count(*) AS n, sum(v) AS s FROM reading GROUP BY k, w');
SELECT stream.alter_query('closing', 'SELECT k, stream.hop(ts, ''30 seconds'', ''10 seconds'') AS w, count(*) AS n, sum(v ORDER BY id) AS s FROM reading GROUP BY k, w');
SELECT stream.drop_query('closing');

-- Neither where the window is the only key, and new aggregates are welcome: windows are not made of panes afterwards.
SELECT stream.create_query('alone', 'SELECT stream.hop(ts, ''30 seconds'', ''10 seconds'') AS w, count(*) AS n FROM reading GROUP BY w', stream.to_table('alone'), 'update', start => false) > 0 AS created;
CALL stream.process_all_available('alone');
SELECT stream.alter_query('alone', 'SELECT stream.hop(ts, ''30 seconds'', ''10 seconds'') AS w, count(*) AS n, array_agg(v) AS vs FROM reading GROUP BY w', stream.to_table('alone_on'), new_aggregates => true);
SELECT stream.drop_query('alone');

-- New aggregates over windows that are open; other triggers.
SELECT stream.create_query('flowing', 'SELECT k, stream.hop(ts, ''30 seconds'', ''10 seconds'') AS w, count(*) AS n FROM reading GROUP BY k, w', stream.to_table('flowed'), 'update',
    trigger => stream.real_time('1 hour'), start => false) > 0 AS created;
CALL stream.process_all_available('flowing');
SELECT stream.alter_query('flowing', 'SELECT k, stream.hop(ts, ''30 seconds'', ''10 seconds'') AS w, count(*) AS n, array_agg(v) AS vs FROM reading GROUP BY k, w', new_aggregates => true);
SELECT stream.alter_query('flowing', 'SELECT k, stream.hop(ts, ''30 seconds'', ''10 seconds'') AS w, count(*) AS n, sum(v) AS s FROM reading GROUP BY k, w', stream.to_table('flowed_on'),
    new_aggregates => true);
INSERT INTO reading_t VALUES (11, 'c', 6, 0, '2030-01-02 00:10:01');
CALL stream.process_all_available('flowing');
SELECT k, lower(w)::time AS begins, n, s FROM flowed_on ORDER BY 1, 2;
SELECT stream.drop_query('flowing');

-- A row for each pane, and windows that begin many panes apart: those that leave make room before others come in.
CREATE TABLE second_t (v int, ts timestamptz);
SELECT stream.create_source('second', 'table', options => '{"table": "second_t"}', event_time => 'ts', watermark_delay => '1 day');
INSERT INTO second_t SELECT i % 13, '2030-01-01'::timestamptz + i * interval '1 second' FROM generate_series(0, 999) i;
CREATE TABLE dense (name text, query text);
INSERT INTO dense SELECT format('dense_%s_%s', size, slide), format('SELECT stream.hop(ts, ''%s seconds'', ''%s seconds'') AS w, count(*), sum(v), max(v) FROM second GROUP BY w', size, slide)
    FROM (VALUES (32, 1), (32, 3), (64, 3), (128, 3), (512, 3), (35, 2)) h (size, slide);
SELECT count(stream.create_query(name, query, stream.to_table(name), 'update', start => false)) AS created FROM dense;
SELECT count(*) AS by_panes FROM dense, stream.explain_query(name) l WHERE l ~ 'panes';
CALL run_all();
SELECT name, differences(query, name::regclass) FROM dense ORDER BY name;
SELECT count(stream.drop_query(name)) FROM dense;
