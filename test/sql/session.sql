-- Session windows: rows of a key no further apart than the gap are one group, whatever the batches they come in.
CREATE SCHEMA session;
SET search_path = session;
\set VERBOSITY default
\set SHOW_CONTEXT never
CREATE FUNCTION at(minute numeric) RETURNS timestamptz LANGUAGE sql IMMUTABLE AS $$ SELECT timestamptz '2026-03-01 10:00+00' + minute * interval '1 minute' $$;
CREATE FUNCTION make(name text, query text, mode text DEFAULT 'append', sink stream.sink DEFAULT NULL) RETURNS text
    LANGUAGE sql AS $$ SELECT 'made ' || name FROM stream.create_query(name, query, coalesce(sink, stream.to_table('got_' || name)), mode, start => false) $$;

--
-- A row exactly one gap after another one joins it: in one batch, in two, in two the other way round.
--
CREATE TABLE touch_t (u text, ts timestamptz);
SELECT stream.create_source('touch', 'table', options => '{"table": "touch_t"}', event_time => 'ts', watermark_delay => '10 minutes');
SELECT make('touching', 'SELECT u, stream.session(ts, ''5 minutes'') AS s, count(*) AS n FROM touch GROUP BY u, s', 'update');
INSERT INTO touch_t VALUES ('one batch', at(0)), ('one batch', at(5)), ('two', at(0)), ('two reversed', at(5)), ('apart', at(0));
CALL stream.process_all_available('touching');
INSERT INTO touch_t VALUES ('two', at(5)), ('two reversed', at(0)), ('apart', at(5) + '1 us');
CALL stream.process_all_available('touching');
SELECT u, s, n FROM got_touching ORDER BY u, s;

--
-- Sessions grow at both ends and swallow each other. Update mode takes the pieces out of the target in the same batch, also under a target's own
-- key; append mode writes a session once, when it has closed; complete mode shows all.
--
CREATE TABLE click_t (u text, ts timestamptz, v int);
SELECT stream.create_source('click', 'table', options => '{"table": "click_t"}', event_time => 'ts', watermark_delay => '30 minutes');
CREATE TABLE got_by_start (u text, begins timestamptz, ends timestamptz, n bigint, batch_id bigint, UNIQUE NULLS NOT DISTINCT (u, begins));
SELECT make('updates', 'SELECT u, stream.session(ts, ''5 minutes'') AS s, count(*) AS n, sum(v), array_agg(v) AS vs FROM click GROUP BY u, s', 'update');
SELECT make('by_start', 'SELECT u, lower(stream.session(ts, ''5 minutes'')) AS begins, upper(stream.session(ts, ''5 minutes'')) AS ends, count(*) AS n FROM click GROUP BY u, stream.session(ts, ''5 minutes'')',
            'update', stream.to_table('got_by_start', '{"key": ["u", "begins"]}'));
SELECT make('appends', 'SELECT u, stream.session(ts, ''5 minutes'') AS s, count(*) AS n, sum(v), array_agg(v) AS vs FROM click GROUP BY u, s');
SELECT make('completes', 'SELECT u, stream.session(ts, ''5 minutes'') AS s, count(*) AS n, sum(v), array_agg(v) AS vs FROM click GROUP BY u, s', 'complete');
SELECT make('long_ones', 'SELECT u, stream.session(ts, ''5 minutes'') AS s, count(*) AS n FROM click GROUP BY u, s HAVING count(*) BETWEEN 2 AND 4', 'update');
CREATE PROCEDURE process_all() LANGUAGE plpgsql AS $$
DECLARE q text;
BEGIN
    FOREACH q IN ARRAY ARRAY['updates', 'by_start', 'appends', 'completes', 'long_ones'] LOOP
        CALL stream.process_all_available(q);
    END LOOP;
END $$;
INSERT INTO click_t VALUES ('a', at(0), 1), ('a', at(8), 2), ('a', at(16), 3), (NULL, at(0), 4), ('b', at(4), 5);
CALL process_all();
TABLE got_updates ORDER BY u, s;
TABLE got_by_start ORDER BY u, begins;
TABLE got_completes ORDER BY u, s;
-- forwards, backwards; the NULL key is a key like others
INSERT INTO click_t VALUES ('a', at(18), 6), ('b', at(1), 7), (NULL, at(5), 8);
CALL process_all();
TABLE got_updates ORDER BY u, s;
TABLE got_by_start ORDER BY u, begins;
-- two rows of one batch bring three sessions together; inputs are in the order they arrived in
INSERT INTO click_t VALUES ('a', at(12), 9), ('a', at(4), 10);
CALL process_all();
TABLE got_updates ORDER BY u, s;
TABLE got_by_start ORDER BY u, begins;
TABLE got_completes ORDER BY u, s;
TABLE got_long_ones ORDER BY u, s;
TABLE got_appends;
-- a sum that has seen only NULL takes what it is merged with
INSERT INTO click_t VALUES ('n', at(0), NULL), ('n', at(8), 5), ('m', at(0), 5), ('m', at(8), NULL);
CALL stream.process_all_available('updates');
INSERT INTO click_t VALUES ('n', at(4), NULL), ('m', at(4), NULL);
CALL process_all();
SELECT u, s, n, sum FROM got_updates WHERE u IN ('m', 'n') ORDER BY u;
SELECT state_rows FROM stream.queries WHERE name IN ('updates', 'appends', 'completes') ORDER BY name;
-- the watermark passes them; what is open stays
INSERT INTO click_t VALUES ('c', at(56), 11);
CALL process_all();
TABLE got_appends ORDER BY u, s;
SELECT name, state_rows FROM stream.queries WHERE name IN ('updates', 'appends', 'completes') ORDER BY name;
SELECT (progress->'stateOperators'->0->>'operatorName') AS operator, sum((progress->'stateOperators'->0->>'numRowsRemoved')::int) AS removed
FROM stream.progress WHERE query = 'appends' GROUP BY 1;

--
-- Closed is closed: a row that is not late by itself but touches a session already written is late; it opens no second one beside it. That holds
-- over a restart, and for as long as such rows can come.
--
CREATE TABLE close_t (u text, ts timestamptz);
SELECT stream.create_source('close', 'table', options => '{"table": "close_t"}', event_time => 'ts', watermark_delay => '0 seconds');
SELECT make('closed', 'SELECT u, stream.session(ts, ''5 minutes'') AS s, count(*) AS n FROM close GROUP BY u, s');
INSERT INTO close_t VALUES ('u1', at(0)), ('u3', at(0));
CALL stream.process_all_available('closed');
INSERT INTO close_t VALUES ('u2', at(5));
CALL stream.process_all_available('closed');
TABLE got_closed ORDER BY u, s;
\c -
SET search_path = session;
SELECT key, value, expires_at FROM stream.state('closed', state_name => 'closed') ORDER BY key::text;
INSERT INTO close_t VALUES ('u1', at(5)), ('u3', at(5) + '1 us');
CALL stream.process_all_available('closed');
INSERT INTO close_t VALUES ('u2', at(30));
CALL stream.process_all_available('closed');
TABLE got_closed ORDER BY u, s;
SELECT rows_late, state_rows FROM stream.queries WHERE name = 'closed';
SELECT operator_name, state_name, rows FROM stream.state_metadata('closed') ORDER BY 2;
-- rows of which nobody knows when they were, or how long they last
INSERT INTO close_t VALUES ('u2', NULL);
CALL stream.process_all_available('closed');
SELECT rows_late, state_rows FROM stream.queries WHERE name = 'closed';

--
-- The gap may depend on the row. A row whose gap or time makes no session is late. Sessions of plain timestamps are tsranges.
--
CREATE TABLE gap_t (u text, ts timestamp, gap interval);
SELECT stream.create_source('gap', 'table', options => '{"table": "gap_t"}', event_time => 'ts', watermark_delay => '1 hour');
SELECT make('gaps', 'SELECT u, stream.session(ts, gap) AS s, count(*) AS n FROM gap GROUP BY u, s', 'update');
INSERT INTO gap_t VALUES ('a', '2026-03-01 10:00', '10 minutes'), ('a', '2026-03-01 10:01', '1 minute'), ('a', '2026-03-01 10:09', '1 minute'), ('a', '2026-03-01 10:11', '1 minute'),
                         ('b', '2026-03-01 10:00', '1 day'), ('b', '2026-03-01 10:00', NULL);
CALL stream.process_all_available('gaps');
SELECT u, s, pg_typeof(s), n FROM got_gaps ORDER BY u, s;
INSERT INTO gap_t VALUES ('c', '2026-03-01 10:00', '0'), ('c', '2026-03-01 10:00', '-1 minute'), ('c', '2026-03-01 10:00', '1 month'),
                         ('c', 'infinity', '1 minute'), ('c', '-infinity', '1 minute');
CALL stream.process_all_available('gaps');
UPDATE gap_t SET gap = '200000000 days' WHERE gap = '1 month';
CALL stream.process_all_available('gaps');
SELECT rows_late FROM stream.queries WHERE name = 'gaps';
INSERT INTO gap_t VALUES ('c', '2026-03-01 10:00', '1 minute');
CALL stream.process_all_available('gaps');
SELECT u, s, n FROM got_gaps WHERE u = 'c';

--
-- All that aggregates can be: combined where they have a function for it, else from their inputs; with FILTER, DISTINCT, ORDER BY, of an ordered set,
-- of the user's own with and without a combine function, by reference and opaque.
--
CREATE AGGREGATE product(numeric) (SFUNC = numeric_mul, STYPE = numeric, INITCOND = '1');
CREATE AGGREGATE product_combined(numeric) (SFUNC = numeric_mul, STYPE = numeric, COMBINEFUNC = numeric_mul, INITCOND = '1');
CREATE TABLE item_t (i int, u text, at timestamptz, v int, w numeric, k text);
SELECT stream.create_source('item', 'table', options => '{"table": "item_t"}', event_time => 'at', watermark_delay => '1 day');
CREATE TABLE question (name text, list text);
INSERT INTO question VALUES
('combined', 'count(*), count(v) AS cv, sum(v), avg(v), min(k), max(k), sum(w) AS sw, avg(w) AS aw, stddev(v), bool_and(v > 2), bit_xor(v), product_combined(w)'),
('inputs', 'string_agg(k, '','') AS ks, array_agg(v) AS vs, string_agg(k, ''|'' ORDER BY v, i) AS ordered, product(w), percentile_disc(0.5) WITHIN GROUP (ORDER BY v) AS median'),
('distinct', 'count(DISTINCT v) AS dv, sum(DISTINCT w) AS dw, array_agg(DISTINCT k ORDER BY k DESC) AS dk, avg(DISTINCT v) FILTER (WHERE i % 2 = 0) AS da'),
('filtered', 'count(*) FILTER (WHERE v > 3) AS f, sum(w) FILTER (WHERE k = ''x'') AS fw, array_agg(i) FILTER (WHERE v < 3) AS fi, max(w) - min(w) AS spread');
SELECT make(name || '_' || mode, format('SELECT u, stream.session(at, ''30 seconds'') AS s, %s FROM item GROUP BY u, s', list), mode)
FROM question, unnest(ARRAY['update', 'complete']) mode ORDER BY 1;
CREATE PROCEDURE feed(from_batch int, to_batch int) LANGUAGE plpgsql AS $$
DECLARE q text;
BEGIN
    FOR b IN from_batch .. to_batch LOOP
        INSERT INTO item_t SELECT (SELECT count(*) FROM item_t) + i, chr(97 + (i * 7 + b) % 3), timestamptz '2026-03-01 00:00+00' + ((i * i * 37 + b * 53) % 1200) * interval '1 second',
                                  nullif((i * 5 + b) % 7, 6), nullif((i + b) % 5, 4) + 0.5, nullif(substr('xyzx ', i % 6, 1), ' ')
        FROM generate_series(1, 25) i;
        FOR q IN SELECT name FROM stream.queries WHERE name ~ '_(update|complete)$' ORDER BY name LOOP
            CALL stream.process_all_available(q);
        END LOOP;
    END LOOP;
END $$;
CALL feed(1, 3);
\c -
SET search_path = session, public;
CALL feed(4, 6);
CREATE VIEW by_hand AS
    SELECT i, u, at, v, w, k, count(*) FILTER (WHERE fresh) OVER (PARTITION BY u ORDER BY at, i) AS session FROM
        (SELECT *, (at <= lag(at) OVER (PARTITION BY u ORDER BY at, i) + '30 seconds') IS NOT TRUE AS fresh FROM item_t) x;
CREATE FUNCTION difference(list text, target text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE n int; wrong int;
BEGIN
    EXECUTE format('CREATE TEMP TABLE want AS SELECT u, tstzrange(min(at), max(at) + ''30 seconds'') AS s, %s FROM (SELECT * FROM by_hand ORDER BY u, session, i) x GROUP BY u, session', list);
    EXECUTE format('ALTER TABLE %s DROP COLUMN batch_id', target);
    EXECUTE format('SELECT count(*) FROM ((TABLE want EXCEPT ALL TABLE %1$s) UNION ALL (TABLE %1$s EXCEPT ALL TABLE want)) x', target) INTO wrong;
    SELECT count(*) INTO n FROM want;
    DROP TABLE want;
    RETURN format('%s sessions, %s differ', n, wrong);
END $$;
SELECT name, mode, difference(list, 'got_' || name || '_' || mode) FROM question, unnest(ARRAY['update', 'complete']) mode ORDER BY 1, 2;

--
-- Closed sessions go on: their end is event time for the next operator.
--
SELECT make('chained', 'SELECT stream.tumble(stream.window_time(s), ''1 hour'') AS w, count(*) AS sessions, sum(n) AS clicks FROM
    (SELECT u, stream.session(ts, ''5 minutes'') AS s, count(*) AS n FROM click GROUP BY u, s) x GROUP BY 1');
INSERT INTO click_t VALUES ('c', at(200), 1);
CALL stream.process_all_available('chained');
SELECT w, sessions, clicks FROM got_chained;

--
-- What a failed batch did to sessions is undone, in the same process and after it.
--
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('session.fail', true) = 'on' THEN
        RAISE EXCEPTION 'not today';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER refuse BEFORE INSERT OR UPDATE ON got_touching FOR EACH ROW EXECUTE FUNCTION refuse();
SET session.fail = on;
INSERT INTO touch_t VALUES ('apart', at(2)), ('new', at(3));
CALL stream.process_all_available('touching');
SELECT count(*) FROM got_touching;
SET session.fail = off;
CALL stream.process_all_available('touching');
SELECT u, s, n FROM got_touching WHERE u IN ('apart', 'new') ORDER BY u, s;

--
-- State and explain.
--
SELECT key, value FROM stream.state('touching') WHERE key->>'u' IN ('apart', 'new') ORDER BY key::text;
SELECT batch_id, change_type, key, value FROM stream.state_changes('touching', 0, 1, 2) ORDER BY 1, 2, key::text;
SELECT * FROM stream.explain_query('long_ones');

--
-- Two sessions of which no row went to the aggregate become one: its state is of no row as well, and nothing is written for it. (An empty one of
-- type internal is a null pointer for some combine functions of earlier minor versions, not a NULL.)
--
CREATE TABLE sparse_t (u text, v numeric, b boolean, ts timestamptz);
SELECT stream.create_source('sparse', 'table', options => '{"table": "sparse_t"}', event_time => 'ts', watermark_delay => '1 hour');
SELECT make('sparse_' || provider, $$SELECT u, stream.session(ts, '5 minutes') AS s, count(*) AS n, sum(v) FILTER (WHERE b) AS sum, avg(v::bigint) FILTER (WHERE b) AS avg,
    var_pop(v) FILTER (WHERE b) AS var, stddev(v::int) FILTER (WHERE b) AS stddev, sum(v::bigint) FILTER (WHERE b) AS big FROM sparse GROUP BY u, s$$, 'update')
FROM unnest('{memory,table}'::text[]) provider;
SELECT stream.alter_query('sparse_table', options => '{"state_provider": "table"}');
INSERT INTO sparse_t SELECT u, 2, false, at(minute) FROM unnest('{filled,empty}'::text[]) u, unnest('{0,8}'::int[]) minute;
CALL stream.process_all_available('sparse_memory');
CALL stream.process_all_available('sparse_table');
INSERT INTO sparse_t SELECT u, 2, false, at(4) FROM unnest('{filled,empty}'::text[]) u;
CALL stream.process_all_available('sparse_memory');
CALL stream.process_all_available('sparse_table');
INSERT INTO sparse_t VALUES ('filled', 3, true, at(6)), ('filled', 5, true, at(7));
CALL stream.process_all_available('sparse_memory');
CALL stream.process_all_available('sparse_table');
SELECT u, s, n, sum, round(avg, 1) AS avg, round(var, 1) AS var, round(stddev, 3) AS stddev, big FROM got_sparse_memory ORDER BY u;
SELECT count(*) FROM (TABLE got_sparse_memory INTERSECT TABLE got_sparse_table) same;

--
-- Refused.
--
CREATE FUNCTION fn(bigint) RETURNS void LANGUAGE sql AS '';
SELECT make('q', 'SELECT stream.session(ts, ''5 minutes'') AS s, count(*) AS n FROM click GROUP BY s');
SELECT make('q', 'SELECT u, stream.session(ts, ''5 minutes'') AS s FROM click');
SELECT make('q', 'SELECT u, count(*) AS n FROM click WHERE upper(stream.session(ts, ''5 minutes'')) > now() GROUP BY u', 'update');
SELECT make('q', 'SELECT u, lower(stream.session(ts, ''5 minutes'')) AS s, count(*) AS n FROM click GROUP BY 1, 2');
SELECT make('q', 'SELECT u, stream.session(ts, ''5 minutes'') AS s, stream.session(ts, ''6 minutes'') AS s2, count(*) AS n FROM click GROUP BY u, s, s2');
SELECT make('q', 'SELECT u, stream.session(ts, ''5 minutes'') AS s, count(stream.session(ts, ''5 minutes'')) AS n FROM click GROUP BY u, s');
SELECT make('q', 'SELECT s, count(*) AS n FROM (SELECT u, stream.session(ts, ''5 minutes'') AS s FROM click) x GROUP BY u, s');
SELECT make('q', 'SELECT u, stream.session(ts, ''0 minutes'') AS s, count(*) AS n FROM click GROUP BY u, s');
SELECT make('q', 'SELECT u, stream.session(ts, ''1 month'') AS s, count(*) AS n FROM click GROUP BY u, s');
SELECT make('q', 'SELECT u, count(*) AS n FROM click GROUP BY u, stream.session(ts, ''5 minutes'')', 'update');
SELECT make('q', 'SELECT u, stream.session(ts, ''5 minutes'') AS s, count(*) AS n FROM click GROUP BY u, s', 'update', stream.to_function('session.fn'));
SELECT make('q', 'SELECT u, stream.session(ts, ''5 minutes'') AS s, count(*) AS n FROM click GROUP BY u, s', 'update', stream.to_memory());
SELECT make('q', 'SELECT u, stream.session(ts, ''5 minutes'') AS s, count(*) AS n FROM click GROUP BY u, s', 'update', stream.to_table('got_q', '{"key": ["u", "n"]}'));
SELECT make('q', 'SELECT x.u, x.s, n FROM (SELECT u, stream.session(ts, ''5 minutes'') AS s, count(*) AS n FROM click GROUP BY u, s) x JOIN question ON name = u', 'update');
SELECT make('q', 'SELECT u, stream.session(date_trunc(''minute'', ts), ''5 minutes'') AS s, count(*) AS n FROM click GROUP BY u, s');
SELECT stream.alter_query('touching', 'SELECT u, stream.session(ts, ''6 minutes'') AS s, count(*) AS n FROM touch GROUP BY u, s');

SELECT count(stream.drop_query(name)) FROM stream.queries;
SELECT count(*) FROM stream.state_change;
SET client_min_messages = warning;
DROP SCHEMA session CASCADE;
