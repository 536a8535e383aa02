--
-- State in place (state_provider table): the same answers and the same history as in memory, whatever the keys, and however little memory there is.
--
\set VERBOSITY terse
\set SHOW_CONTEXT never
CREATE SCHEMA place;
SET search_path = place;
CREATE TABLE hit_t (k numeric, name text, v int, at timestamptz);
SELECT stream.create_source('hit', 'table', options => '{"table": "hit_t"}', event_time => 'at', watermark_delay => '10 seconds');

-- Every query twice, once per provider, over the same batches.
CREATE FUNCTION make(name text, query text, mode text, options jsonb DEFAULT '{}') RETURNS void LANGUAGE sql AS $$
    SELECT stream.create_query(name || '_' || p, query, stream.to_table('place.' || name || '_' || p), mode,
        options => options || jsonb_build_object('state_provider', p, 'min_batches_to_retain', 5), start => false) FROM unnest(ARRAY['memory', 'table']) p $$;
SELECT make('sums', 'SELECT k, name, count(*) AS n, sum(v) AS total, count(DISTINCT v) AS kinds, array_agg(v) AS list FROM hit GROUP BY k, name', 'update');
SELECT make('whole', 'SELECT name, max(v) AS top FROM hit GROUP BY name', 'complete');
SELECT make('windows', 'SELECT stream.tumble(at, ''10 seconds'') AS w, name, sum(v) AS total FROM hit GROUP BY 1, 2', 'append');
SELECT make('first', 'SELECT DISTINCT ON (k, name) k, name, v FROM hit', 'append');
SELECT make('within', 'SELECT DISTINCT ON (k) k, v FROM hit', 'append', '{"dedup_within_watermark": true}');
SELECT make('pairs', 'SELECT a.k, a.v AS left_v, b.v AS right_v FROM hit a LEFT JOIN hit b ON a.k = b.k AND b.v > a.v AND b.at BETWEEN a.at AND a.at + interval ''20 seconds''',
    'append');
SELECT make('sessions', 'SELECT name, stream.session(at, ''5 seconds'') AS w, count(*) AS n FROM hit GROUP BY 1, 2', 'append');

CREATE PROCEDURE batch() LANGUAGE plpgsql AS $$
DECLARE q text;
BEGIN
    FOR q IN SELECT name FROM stream.queries ORDER BY id LOOP
        CALL stream.process_all_available(q);
    END LOOP;
END $$;

-- Targets, states and histories side by side: nothing may differ but the order. History is looked at from its oldest batch on, and in the middle.
CREATE FUNCTION same(sides text, name text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE n bigint;
BEGIN
    EXECUTE format('SELECT count(*) FROM (SELECT r FROM ((SELECT 1 AS side, r::text FROM %s r) UNION ALL (SELECT -1, r::text FROM %s r)) b GROUP BY r HAVING sum(side) <> 0) d',
        format(sides, name || '_memory'), format(sides, name || '_table')) INTO n;
    RETURN n;
END $$;
CREATE FUNCTION differences() RETURNS TABLE (query text, what text, n bigint) LANGUAGE plpgsql AS $$
DECLARE op int; first bigint; last bigint;
BEGIN
    FOR query IN SELECT left(name, -7) FROM stream.queries WHERE name LIKE '%_memory' LOOP
        FOR op, first, last IN SELECT operator_id, max(min_batch_id), max(max_batch_id) FROM (SELECT * FROM stream.state_metadata(query || '_memory') UNION ALL
                SELECT * FROM stream.state_metadata(query || '_table')) m GROUP BY operator_id LOOP
            what := 'target';
            n := place.same('place.%s', query);
            IF n > 0 THEN RETURN NEXT; END IF;
            what := 'state now';
            n := place.same('stream.state(''%s'', ' || op || ')', query);
            IF n > 0 THEN RETURN NEXT; END IF;
            what := 'oldest state';
            n := place.same('stream.state(''%s'', ' || op || ', ' || first || ')', query);
            IF n > 0 THEN RETURN NEXT; END IF;
            what := 'state between';
            n := place.same('stream.state(''%s'', ' || op || ', ' || (first + last) / 2 || ')', query);
            IF n > 0 THEN RETURN NEXT; END IF;
            what := 'changes';
            IF last > first THEN n := place.same('stream.state_changes(''%s'', ' || op || ', ' || first + 1 || ', ' || (first + last + 1) / 2 || ')', query); END IF;
            IF n > 0 THEN RETURN NEXT; END IF;
        END LOOP;
        what := 'size';
        SELECT count(*) INTO n FROM stream.queries m, stream.queries t WHERE m.name = query || '_memory' AND t.name = query || '_table'
            AND (m.state_rows, m.state_bytes) IS DISTINCT FROM (t.state_rows, t.state_bytes);
        IF n > 0 THEN RETURN NEXT; END IF;
    END LOOP;
END $$;

-- Equal keys with different bytes are one key; NULL keys too.
INSERT INTO hit_t VALUES (1.0, 'a', 1, '2020-01-01 00:00:01'), (1.00, 'a', 2, '2020-01-01 00:00:02'), (NULL, NULL, 3, '2020-01-01 00:00:03'), (2, 'b', 4, '2020-01-01 00:00:04');
CALL batch();
SELECT * FROM differences();
INSERT INTO hit_t VALUES (1.000, 'a', 3, '2020-01-01 00:00:12'), (NULL, NULL, 5, '2020-01-01 00:00:13'), (2.0, 'b', 6, '2020-01-01 00:00:04'), (3, 'c', 1, '2020-01-01 00:00:21');
CALL batch();
SELECT * FROM differences();
SELECT k, name, n, total FROM sums_table ORDER BY k, name;
INSERT INTO hit_t VALUES (1, 'a', 9, '2020-01-01 00:00:40');
CALL batch();
SELECT * FROM differences();

-- A restart reads nothing, and goes on.
\c -
SET search_path = place;
INSERT INTO hit_t SELECT i % 50, 'n' || i % 7, i % 13, timestamptz '2020-01-01 00:01:00' + i * interval '0.3 seconds' FROM generate_series(1, 300) i;
CALL batch();
SELECT * FROM differences();

-- Little memory: entries are written and let go of in mid-batch, several times over.
SET stream_ext.state_memory = '400kB';
INSERT INTO hit_t SELECT i % 1500, 'n' || i % 7, i % 13, timestamptz '2020-01-01 00:03:00' + i * interval '10 milliseconds' FROM generate_series(1, 6000) i;
CALL stream.process_all_available('sums_table');
CALL stream.process_all_available('whole_table');
CALL stream.process_all_available('windows_table');
CALL stream.process_all_available('first_table');
CALL stream.process_all_available('within_table');
CALL stream.process_all_available('pairs_table');
RESET stream_ext.state_memory;
CALL batch();
SELECT * FROM differences();
INSERT INTO hit_t VALUES (1, 'a', 1, '2020-01-01 00:30:00');
SET stream_ext.state_memory = '400kB';
CALL stream.process_all_available('windows_table');
CALL stream.process_all_available('within_table');
CALL stream.process_all_available('pairs_table');
RESET stream_ext.state_memory;
CALL batch();
SELECT * FROM differences();

-- What memory cannot hold fails there, and not here.
SET stream_ext.state_memory = '400kB';
\set VERBOSITY sqlstate
INSERT INTO hit_t VALUES (1, 'a', 1, '2020-01-01 00:30:01');
CALL stream.process_all_available('sums_memory');
\set VERBOSITY terse
RESET stream_ext.state_memory;
CALL batch();

-- Back to an earlier batch, and on again: the same rows.
SELECT name, last_batch_id FROM stream.queries WHERE name LIKE 'sums%' ORDER BY id;
CREATE TEMP TABLE before AS SELECT * FROM stream.state('sums_table');
DELETE FROM sums_memory WHERE batch_id > 3;
DELETE FROM sums_table WHERE batch_id > 3;
SELECT stream.rewind_query(name, 3) FROM stream.queries WHERE name LIKE 'sums%' ORDER BY id;
SELECT * FROM differences() WHERE query = 'sums';
CALL batch();
SELECT * FROM differences() WHERE query = 'sums';
SELECT count(*) FROM (TABLE before EXCEPT ALL SELECT * FROM stream.state('sums_table')) d;

-- Purged below what is retained: said so, by both.
INSERT INTO hit_t SELECT 1, 'a', i, '2020-01-01 00:30:02' FROM generate_series(1, 200) i;
SELECT stream.alter_query(name, options => '{"max_rows_per_batch": 4}') FROM stream.queries WHERE name LIKE 'sums%' ORDER BY id;
CALL batch();
SELECT * FROM differences() WHERE query = 'sums';
SELECT count(*) > 0 AS retained, min(batch_id) > 10 AS purged FROM stream.state_undo u JOIN stream.queries q ON q.id = u.query_id WHERE name = 'sums_table';
SELECT count(*) FROM stream.state('sums_table', 0, 2);
SELECT stream.rewind_query('sums_table', 2);

-- From one provider to the other and back, state in hand.
SELECT count(stream.alter_query(name, options => CASE WHEN name LIKE '%_memory' THEN '{"state_provider": "table"}' ELSE '{"state_provider": "memory"}' END::jsonb))
    FROM stream.queries;
SELECT name, count(*) FROM stream.queries q JOIN pg_class c ON c.relname = 'state_row_' || q.id GROUP BY name ORDER BY name;
SELECT * FROM differences();
INSERT INTO hit_t SELECT i % 40, 'n' || i % 7, i % 13, timestamptz '2020-01-01 00:30:00' + i * interval '0.3 seconds' FROM generate_series(1, 100) i;
CALL batch();
SELECT * FROM differences();
SELECT count(stream.alter_query(name, options => jsonb_build_object('state_provider', split_part(name, '_', 2)))) FROM stream.queries;
INSERT INTO hit_t SELECT i % 40, 'n' || i % 7, i % 13, timestamptz '2020-01-01 00:30:20' + i * interval '0.3 seconds' FROM generate_series(1, 100) i;
CALL batch();
SELECT * FROM differences();
SELECT stream.state('sums_table', 0, 3);

-- Nobody else's business.
CREATE ROLE regress_place;
SET ROLE regress_place;
\set VERBOSITY sqlstate
DO $$ BEGIN EXECUTE format('TABLE stream.state_row_%s', (SELECT split_part(relname, '_', 3) FROM pg_class WHERE relname ~ '^state_row_\d+$' LIMIT 1)); END $$;
\set VERBOSITY terse
RESET ROLE;
DROP ROLE regress_place;

-- Reset and drop leave nothing.
SELECT stream.reset_query('sums_table');
SELECT count(*) FROM stream.state('sums_table');
TRUNCATE sums_table, sums_memory;
SELECT stream.reset_query('sums_memory');
CALL batch();
SELECT * FROM differences() WHERE query = 'sums';
SELECT count(stream.drop_query(name)) FROM stream.queries;
SELECT count(*) FROM pg_class WHERE relname LIKE 'state_row_%';
SELECT (SELECT count(*) FROM stream.state_undo) + (SELECT count(*) FROM stream.state_size) + (SELECT count(*) FROM stream.state_store);
SET client_min_messages = warning;
DROP SCHEMA place CASCADE;
