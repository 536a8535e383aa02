-- Sinks that call functions, notify, or keep rows for tests.
CREATE SCHEMA sink_others;
SET search_path = sink_others;
\set VERBOSITY terse
CREATE TABLE input_t (k text, v int);
SELECT stream.create_source('input', 'table', options => '{"table": "input_t"}');
CREATE FUNCTION make(name text, query text, sink stream.sink, mode text DEFAULT 'append') RETURNS text
    LANGUAGE sql AS $$ SELECT 'made' FROM stream.create_query(name, query, sink, mode, start => false) $$;

-- Function sink: the rows as relation batch, in any language, as often as wanted, in the batch's transaction.
CREATE TABLE calls (batch_id bigint, what text, n bigint, s bigint);
CREATE FUNCTION plain(batch_id bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO sink_others.calls SELECT $1, string_agg(k, ',' ORDER BY v), count(*), sum(v) FROM batch;
    INSERT INTO sink_others.calls SELECT $1, 'twice', count(*), count(DISTINCT a.v) FROM batch a JOIN batch b ON a.v <= b.v WHERE a.k <> 'skip';
    IF EXISTS (SELECT FROM batch WHERE v = 13) THEN
        RAISE EXCEPTION 'thirteen' USING ERRCODE = 'P0013';
    END IF;
END $$;
SET check_function_bodies = off;
CREATE FUNCTION in_sql(bigint) RETURNS bigint LANGUAGE sql AS $$ INSERT INTO sink_others.calls SELECT $1, 'sql', count(*), max(v) FROM batch RETURNING n $$;
RESET check_function_bodies;
SELECT make('f', 'SELECT k, v FROM input', stream.to_function('plain'));
SELECT make('s', 'SELECT k, v * 10 AS v, now() AS at FROM input', stream.to_function('in_sql'));
INSERT INTO input_t VALUES ('a', 1), ('b', 2), ('c', 3);
CALL stream.process_all_available('f');
CALL stream.process_all_available('s');
-- Many batches in one session, several functions by turns, an error between: the same id and rows again.
INSERT INTO input_t VALUES ('skip', 13);
CALL stream.process_all_available('f');
CALL stream.process_all_available('s');
CREATE OR REPLACE FUNCTION plain(batch_id bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO sink_others.calls SELECT $1, 'after', count(*), sum(v) FROM batch;
END $$;
INSERT INTO input_t VALUES ('d', 4);
CALL stream.process_all_available('f');
SELECT * FROM calls ORDER BY what, batch_id;
SELECT num_output_rows FROM stream.progress WHERE query = 'f' ORDER BY batch_id;
SELECT to_regclass('pg_temp.batch') IS NULL AS gone;
-- Aggregates, complete mode; an empty batch is a call as well.
SELECT make('c', 'SELECT count(*) AS v FROM input', stream.to_function('in_sql'), 'complete');
CALL stream.process_all_available('c');
SELECT * FROM calls WHERE what = 'sql' ORDER BY batch_id, n;
-- A temporary relation of that name is in the way.
CREATE TEMP TABLE batch (x int);
INSERT INTO input_t VALUES ('e', 5);
CALL stream.process_all_available('f');
DROP TABLE pg_temp.batch;
CALL stream.process_all_available('f');
-- Read outside the call.
CREATE FOREIGN TABLE pg_temp.batch (k text, v int) SERVER stream_batch;
SELECT * FROM batch;
DROP FOREIGN TABLE batch;

-- Each sink: a record or a named type.
CREATE TYPE pair AS (k text, v int);
CREATE TABLE rows_seen (batch_id bigint, r text);
CREATE FUNCTION each_record(r record, batch_id bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO sink_others.rows_seen VALUES ($2, 'record ' || r.k || (SELECT count(*) FROM sink_others.rows_seen s WHERE s.batch_id = $2));
END $$;
CREATE FUNCTION each_pair(r pair, batch_id bigint) RETURNS int LANGUAGE sql AS $$ INSERT INTO sink_others.rows_seen VALUES ($2, 'pair ' || (r).k || (r).v) RETURNING NULL::int $$;
CREATE FUNCTION each_row(r input_t, batch_id bigint) RETURNS void LANGUAGE sql AS '';
SELECT make('er', 'SELECT k FROM input', stream.to_each('each_record'));
SELECT make('ep', 'SELECT k, v FROM input WHERE v > 3', stream.to_each('each_pair'));
CALL stream.process_all_available('er');
CALL stream.process_all_available('ep');
SELECT * FROM rows_seen ORDER BY r;
SELECT num_output_rows FROM stream.progress WHERE query = 'ep';

-- Memory sink: appended, replaced in complete mode, taken back with its batch.
SELECT make('m', 'SELECT k, v, NULL::int AS nothing FROM input WHERE v < 3', stream.to_memory());
SELECT make('mc', 'SELECT count(*) AS n FROM input', stream.to_memory(), 'complete');
CALL stream.process_all_available('m');
CALL stream.process_all_available('mc');
INSERT INTO input_t VALUES ('f', 0);
CALL stream.process_all_available('m');
CALL stream.process_all_available('mc');
SELECT * FROM stream.memory('m');
SELECT * FROM stream.memory('mc');
SELECT stream.rewind_query('m', 0);
SELECT count(*) FROM stream.memory('m');
CALL stream.process_all_available('m');
SELECT count(*) FROM stream.memory('m');
SELECT * FROM stream.memory('nobody');
SELECT stream.drop_query('mc');
SELECT count(*) FROM stream.memory_row WHERE query_id NOT IN (SELECT id FROM stream.query);

-- Channel sink (what listeners get: specs/sink_channel.spec).
SELECT make('long', 'SELECT repeat(k, 9000) AS k FROM input', stream.to_channel('sink_others'));
CALL stream.process_all_available('long');

-- Log sink: nothing to see here but its count.
SELECT make('l', 'SELECT k, v FROM input WHERE v < 3', stream.to_log());
CALL stream.process_all_available('l');
SELECT num_output_rows FROM stream.progress WHERE query = 'l';

-- Refused.
\set VERBOSITY default
CREATE FUNCTION wrong(int) RETURNS void LANGUAGE sql AS '';
CREATE FUNCTION many(bigint) RETURNS SETOF int LANGUAGE sql AS 'SELECT 1';
CREATE PROCEDURE proc(bigint) LANGUAGE sql AS '';
CREATE FUNCTION each_wrong(int, bigint) RETURNS void LANGUAGE sql AS '';
SELECT make('r', 'SELECT k FROM input', stream.to_function('wrong'));
SELECT make('r', 'SELECT k FROM input', stream.to_function('many'));
SELECT make('r', 'SELECT k FROM input', stream.to_function('proc'));
SELECT make('r', 'SELECT k FROM input', ROW('function', 'no_such(bigint)', NULL)::stream.sink);
SELECT make('r', 'SELECT k FROM input', stream.to_each('plain'));
SELECT make('r', 'SELECT k FROM input', stream.to_each('each_wrong'));
SELECT make('r', 'SELECT k FROM input', stream.to_each('each_pair'));
SELECT make('r', 'SELECT v, k FROM input', stream.to_each('each_pair'));
SELECT make('r', 'SELECT k, v FROM input', stream.to_each('each_row'));
SELECT make('r', 'SELECT k FROM input', stream.to_channel(''));
SELECT make('r', 'SELECT k FROM input', stream.to_channel(NULL));
SELECT make('r', 'SELECT k FROM input', ROW('log', NULL, '{"level": "debug"}')::stream.sink);
SELECT make('r', 'SELECT k FROM input', ROW('pigeon', NULL, NULL)::stream.sink);
-- EXECUTE and TEMP, at create and in each batch.
CREATE ROLE sink_others_user LOGIN;
GRANT USAGE ON SCHEMA sink_others TO sink_others_user;
GRANT SELECT ON input TO sink_others_user;
REVOKE EXECUTE ON FUNCTION each_record FROM PUBLIC;
SET SESSION AUTHORIZATION sink_others_user;
SELECT make('u', 'SELECT k FROM input', stream.to_each('each_record'));
RESET SESSION AUTHORIZATION;
GRANT EXECUTE ON FUNCTION each_record TO sink_others_user;
SET SESSION AUTHORIZATION sink_others_user;
SELECT make('u', 'SELECT k FROM input', stream.to_each('each_record'));
RESET SESSION AUTHORIZATION;
REVOKE EXECUTE ON FUNCTION each_record FROM sink_others_user;
SET SESSION AUTHORIZATION sink_others_user;
CALL stream.process_all_available('u');
RESET SESSION AUTHORIZATION;
SELECT current_database() AS db \gset
REVOKE TEMP ON DATABASE :"db" FROM PUBLIC;
SET SESSION AUTHORIZATION sink_others_user;
\set VERBOSITY sqlstate
SELECT make('t', 'SELECT k FROM input', stream.to_function('plain'));
RESET SESSION AUTHORIZATION;
GRANT TEMP ON DATABASE :"db" TO PUBLIC;

-- a batch that does not fit into work_mem waits on disk; read twice at once
CREATE TABLE wide_t (k int, v text);
SELECT stream.create_source('wide', 'table', options => '{"table": "wide_t"}');
CREATE TABLE wide_out (n bigint, pairs bigint, bytes bigint);
CREATE FUNCTION wide(batch_id bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE r record; n int := 0;
BEGIN
    FOR r IN SELECT * FROM batch LOOP n := n + length(r.v); END LOOP;
    INSERT INTO wide_out SELECT count(*), count(b.k), n FROM batch a LEFT JOIN LATERAL (SELECT k FROM batch WHERE k = a.k AND a.k < 5) b ON true;
END $$;
SELECT make('w', 'SELECT k, v FROM wide', stream.to_function('wide'));
INSERT INTO wide_t SELECT i, repeat('x', 100) FROM generate_series(1, 3000) i;
SET work_mem = '64kB';
CALL stream.process_all_available('w');
RESET work_mem;
TABLE wide_out;
SELECT stream.drop_query('w');

\set VERBOSITY terse
SET client_min_messages = warning;
SELECT count(stream.drop_query(name)) FROM stream.query WHERE name IN ('f', 's', 'c', 'er', 'ep', 'm', 'long', 'l', 'u');
DROP SCHEMA sink_others CASCADE;
DROP ROLE sink_others_user;
