--
-- State in its tables: what a restart reads, how it stays bounded, what it says when it cannot be used.
--
\set VERBOSITY terse
\set SHOW_CONTEXT never
CREATE SCHEMA st;
SET search_path = st;
CREATE TABLE hit_t (k int, v int);
SELECT stream.create_source('hit', 'table', options => '{"table": "hit_t"}');
SELECT stream.create_query('hits', 'SELECT k, count(*), sum(v), count(DISTINCT v) AS values FROM hit GROUP BY k', stream.to_table('got'), 'update',
    options => '{"min_batches_to_retain": 3}', start => false) > 0 AS created;

CREATE VIEW verdict AS SELECT count(*) AS differences FROM (
    (SELECT k, count, sum, values FROM got EXCEPT ALL SELECT k, count(*), sum(v), count(DISTINCT v) FROM hit_t GROUP BY k)
    UNION ALL (SELECT k, count(*), sum(v), count(DISTINCT v) FROM hit_t GROUP BY k EXCEPT ALL SELECT k, count, sum, values FROM got)) d;

-- Twenty batches that each change all of 5000 groups: folded on the way, nothing is kept that nobody can ask for.
CREATE PROCEDURE batches(first int, last int) LANGUAGE plpgsql AS $$
BEGIN
    FOR b IN first..last LOOP
        INSERT INTO st.hit_t SELECT i, b % 3 FROM generate_series(1, 5000) i;
        COMMIT;
        CALL stream.process_all_available('hits');
    END LOOP;
END $$;
CALL batches(0, 19);
SELECT differences FROM verdict;
SELECT state_name, count(DISTINCT batch_id) > 0 AS folded FROM stream.state_snapshot GROUP BY state_name ORDER BY state_name;
WITH live AS (SELECT state_bytes FROM stream.queries WHERE name = 'hits'),
retained AS (SELECT sum(length(data)) AS bytes FROM stream.state_change WHERE batch_id > (SELECT last_batch_id - 3 FROM stream.queries WHERE name = 'hits')),
tables AS (SELECT sum(length(data)) AS bytes FROM (SELECT data FROM stream.state_change UNION ALL SELECT data FROM stream.state_snapshot) d)
SELECT tables.bytes <= 2 * (live.state_bytes + retained.bytes) AS bounded FROM live, retained, tables;

-- A restart reads a snapshot and what came after.
\c -
SET search_path = st;
INSERT INTO hit_t VALUES (1, 5), (6000, 1);
CALL stream.process_all_available('hits');
SELECT differences FROM verdict;
CALL batches(20, 22);
SELECT differences FROM verdict;

-- Back to a retained batch: its state is there. Further back it is not.
INSERT INTO hit_t VALUES (7, 7), (7000, 7);
CALL stream.process_all_available('hits');
SELECT last_batch_id FROM stream.queries WHERE name = 'hits';
SELECT stream.rewind_query('hits', 22);
DELETE FROM got WHERE batch_id > 22;
SELECT stream.rewind_query('hits', 22);
SELECT stream.rewind_query('hits', 1);
SELECT last_batch_id FROM stream.queries WHERE name = 'hits';
CALL stream.process_all_available('hits');
SELECT differences FROM verdict;

-- State that cannot be read says so: of an older version, or of a later one.
\set VERBOSITY terse
SELECT current_setting('server_version_num')::int / 10000 AS major \gset
BEGIN;
UPDATE stream.state_snapshot SET data = set_byte(data, 1, 14);
UPDATE stream.state_change SET data = set_byte(data, 1, 14);
COMMIT;
INSERT INTO hit_t VALUES (8, 8);
CALL stream.process_all_available('hits');
UPDATE stream.state_snapshot SET data = set_byte(data, 1, 99);
UPDATE stream.state_change SET data = set_byte(data, 1, 99);
CALL stream.process_all_available('hits');
UPDATE stream.state_snapshot SET data = set_byte(data, 1, :major);
UPDATE stream.state_change SET data = set_byte(data, 1, :major);
CALL stream.process_all_available('hits');
SELECT differences FROM verdict;

-- So does a value whose type has changed under it; undone, all is well.
CREATE TYPE st.mood AS ENUM ('low', 'high');
CREATE TABLE st.feel_t (m st.mood, v int);
SELECT stream.create_source('st.feel', 'table', options => '{"table": "st.feel_t"}');
SELECT stream.create_query('feels', 'SELECT m, sum(v) AS total FROM st.feel GROUP BY m', stream.to_table('st.feels'), 'update', start => false) > 0 AS created;
SELECT stream.create_query('feels_table', 'SELECT m, sum(v) AS total FROM st.feel GROUP BY m', stream.to_table('st.feels_table'), 'update', options => '{"state_provider": "table"}', start => false) > 0 AS created;
INSERT INTO st.feel_t VALUES ('low', 1), ('high', 2);
CALL stream.process_all_available('feels');
CALL stream.process_all_available('feels_table');
ALTER TYPE st.mood RENAME VALUE 'low' TO 'blue';
\c
\set SHOW_CONTEXT always
\set VERBOSITY default
INSERT INTO st.feel_t VALUES ('high', 3), ('blue', 4);
CALL stream.process_all_available('feels');
CALL stream.process_all_available('feels_table');
\set SHOW_CONTEXT never
\set VERBOSITY terse
ALTER TYPE st.mood RENAME VALUE 'blue' TO 'low';
CALL stream.process_all_available('feels');
CALL stream.process_all_available('feels_table');
SELECT * FROM st.feels ORDER BY m;
SELECT * FROM st.feels_table ORDER BY m;
SELECT stream.drop_query('feels'), stream.drop_query('feels_table');
SET search_path = st;

-- The memory state may take is limited.
\set VERBOSITY sqlstate
SET stream_ext.state_memory = '1MB';
INSERT INTO hit_t VALUES (9, 9);
CALL stream.process_all_available('hits');
\set VERBOSITY terse
RESET stream_ext.state_memory;
CALL stream.process_all_available('hits');
SELECT differences FROM verdict;

-- Reset and drop leave no state behind.
SELECT stream.reset_query('hits');
SELECT count(*) FROM stream.state_change;
SELECT count(*) FROM stream.state_snapshot;
TRUNCATE got;
CALL stream.process_all_available('hits');
SELECT differences FROM verdict;
SELECT stream.drop_query('hits');
SELECT count(*) FROM stream.state_change;

-- Groups that change once and never again: after the logs were folded and purged they are there, in every batch that is retained, and after a restart.
CREATE TABLE mix_t (k int, v int);
SELECT stream.create_source('mix', 'table', options => '{"table": "mix_t"}');
SELECT stream.create_query('mixed', 'SELECT k, count(*), sum(v) FROM mix GROUP BY k', stream.to_table('mixed_out'), 'update',
    options => '{"min_batches_to_retain": 3}', start => false) > 0 AS created;
CREATE PROCEDURE mixes(first int, last int) LANGUAGE plpgsql AS $$
BEGIN
    FOR b IN first..last LOOP
        INSERT INTO st.mix_t SELECT i, b FROM generate_series(1, 3000) i UNION ALL SELECT -b, b FROM generate_series(1, 2);
        COMMIT;
        CALL stream.process_all_available('mixed');
    END LOOP;
END $$;
INSERT INTO mix_t SELECT -1000 - i, i FROM generate_series(1, 500) i;
CALL stream.process_all_available('mixed');
CALL mixes(1, 18);
SELECT count(*) > 0 AS folded, min(batch_id) > 0 AS purged, max(batch_id) < 18 AS behind FROM stream.state_snapshot;
SELECT b, (SELECT count(*) FROM stream.state('mixed', batch_id => b)) - b AS groups FROM generate_series(15, 18) b;
INSERT INTO mix_t SELECT DISTINCT k, 1 FROM mix_t;
CALL stream.process_all_available('mixed');
SELECT count(*) AS differences FROM (SELECT k, count(*), sum(v) FROM mix_t GROUP BY k EXCEPT SELECT k, count, sum FROM mixed_out) d;
SELECT stream.drop_query('mixed');
SET client_min_messages = warning;
DROP SCHEMA st CASCADE;
