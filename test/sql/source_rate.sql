-- The rate source: rows that follow from the second alone, so that every batch can be read again.
CREATE SCHEMA source_rate;
SET search_path = source_rate;
\set VERBOSITY terse
SELECT stream.create_source('steady', 'rate', options => '{"rows_per_second": 10}');
SELECT attname, atttypid::regtype FROM pg_attribute WHERE attrelid = 'steady'::regclass AND attnum > 0 ORDER BY attnum;
CREATE FUNCTION make(name text, source text, options jsonb DEFAULT '{}') RETURNS text
    LANGUAGE sql AS $$ SELECT 'made' FROM stream.create_query(name, 'SELECT ts, value, stream.batch_id() AS b, stream.batch_time() AS at FROM ' || source, stream.to_table(name || '_out'), options => options, start => false) $$;
-- The start is the first look; tests move it back instead of waiting.
CREATE FUNCTION back(name text, source text, seconds int) RETURNS void LANGUAGE sql AS $$
    UPDATE stream.query SET starts = jsonb_set(starts, ARRAY['source_rate.' || source, 'start'], to_jsonb((starts -> ('source_rate.' || source) ->> 'start')::bigint - seconds * 1000000::bigint))
    WHERE query.name = back.name $$;

SELECT make('steady', 'steady');
CALL stream.run_batch('steady', NULL);
SELECT back('steady', 'steady', 100);
CALL stream.run_batch('steady', NULL);
SELECT count(*) >= 1000 AND count(*) % 10 = 0 AS whole_seconds, min(value), max(value) + 1 = count(*) AS dense, count(DISTINCT value) = count(*) AS once FROM steady_out;
SELECT DISTINCT ts - lag(ts) OVER (ORDER BY value) AS step FROM steady_out ORDER BY 1 NULLS LAST;
SELECT max(ts) < max(at) AS in_the_past FROM steady_out;

-- The same again: after a failure, and after a rewind.
SELECT make('again', 'steady');
CALL stream.run_batch('again', NULL);
SELECT back('again', 'steady', 50);
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no'; END $$;
CREATE TRIGGER refuse BEFORE INSERT ON again_out FOR EACH STATEMENT EXECUTE FUNCTION refuse();
CALL stream.run_batch('again', NULL);
SELECT count(*) FROM again_out;
CREATE TABLE logged AS SELECT offsets FROM stream.offset_log WHERE query_id = (SELECT id FROM stream.queries WHERE name = 'again');
SELECT set_config('stream_ext.test_clock', (clock_timestamp() + interval '2 seconds')::text, false) IS NOT NULL AS two_seconds_later;
DROP TRIGGER refuse ON again_out;
CALL stream.run_batch('again', NULL);
SELECT count(*) = (offsets -> 'source_rate.steady' ->> 'second')::int * 10 AS as_logged FROM again_out, logged GROUP BY offsets;
CREATE TABLE before AS SELECT ts, value, b FROM again_out;
CALL stream.run_batch('again', NULL);
SELECT stream.rewind_query('again', 0);
DELETE FROM again_out WHERE b > 0;
CALL stream.run_batch('again', NULL);
SELECT min(value) = (SELECT max(value) + 1 FROM before) AS goes_on, min(ts) > (SELECT max(ts) FROM before) AS later FROM again_out WHERE b = 1;

RESET stream_ext.test_clock;

-- Limits: whole seconds, one at least; min_rows_per_batch knows what waits.
SELECT make('limited', 'steady', '{"max_rows_per_batch": 25}');
CALL stream.run_batch('limited', NULL);
SELECT back('limited', 'steady', 10);
CALL stream.run_batch('limited', NULL);
CALL stream.run_batch('limited', NULL);
SELECT b, count(*), min(value) FROM limited_out GROUP BY b ORDER BY b;
SELECT make('tiny', 'steady', '{"max_rows_per_batch": 1}');
CALL stream.run_batch('tiny', NULL);
SELECT back('tiny', 'steady', 10);
CALL stream.run_batch('tiny', NULL);
SELECT b, count(*) FROM tiny_out GROUP BY b ORDER BY b;

-- A ramp: each second a step more, then the full rate.
SELECT stream.create_source('ramp', 'rate', options => '{"rows_per_second": 10, "ramp_up": "4 seconds"}');
SELECT make('ramp', 'ramp', '{"max_rows_per_batch": 1}');
CALL stream.run_batch('ramp', NULL);
SELECT back('ramp', 'ramp', 7);
CALL stream.process_all_available('ramp');
SELECT b, count(*), min(value), max(value) FROM ramp_out WHERE b < 7 GROUP BY b ORDER BY b;

-- Only a streaming query reads it; its columns are its own.
SELECT * FROM steady;
SELECT stream.create_source('r', 'rate', 'a int');
SELECT stream.create_source('r', 'rate', options => '{"rows_per_second": 0}');
SELECT stream.create_source('r', 'rate', options => '{"ramp_up": "-1 second"}');
SELECT stream.create_source('r', 'rate', options => '{"rows": 1}');
CREATE FOREIGN TABLE wrong (ts timestamp, value bigint) SERVER stream_rate;
SELECT stream.create_query('r', 'SELECT * FROM wrong', stream.to_memory(), start => false);

-- Sources are made, changed and dropped under the eyes of event triggers.
CREATE TABLE seen (at int GENERATED ALWAYS AS IDENTITY, event text, tag text, what text);
CREATE FUNCTION see() RETURNS event_trigger LANGUAGE plpgsql AS $$
BEGIN
    IF tg_event = 'ddl_command_end' THEN
        INSERT INTO seen (event, tag, what) SELECT tg_event, command_tag, object_identity FROM pg_event_trigger_ddl_commands();
    ELSE
        INSERT INTO seen (event, tag) VALUES (tg_event, tg_tag);
    END IF;
END $$;
CREATE EVENT TRIGGER starts ON ddl_command_start EXECUTE FUNCTION see();
CREATE EVENT TRIGGER ends ON ddl_command_end EXECUTE FUNCTION see();
SELECT stream.create_source('watched', 'rate');
SELECT stream.alter_source('watched', '{"rows_per_second": 5}');
SELECT stream.drop_source('watched');
DROP EVENT TRIGGER starts;
DROP EVENT TRIGGER ends;
SELECT event, tag, what FROM seen ORDER BY at;

\set QUIET on
SET client_min_messages = error;
SELECT count(stream.drop_query(name)) FROM stream.queries;
DROP SCHEMA source_rate CASCADE;
