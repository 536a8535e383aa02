--
-- Going back: state, logs and target of a query as they were after a batch; the batches after it come again, the same ids over the same ranges.
--
\set VERBOSITY terse
\set SHOW_CONTEXT never
CREATE SCHEMA back;
SET search_path = back;
CREATE TABLE hit_t (k int, v int, at timestamptz DEFAULT '2020-01-01');
SELECT stream.create_source('hit', 'table', options => '{"table": "hit_t"}');
CREATE FUNCTION make(name text, query text, mode text, provider text, sink stream.sink DEFAULT NULL) RETURNS void LANGUAGE sql AS $$
    SELECT stream.create_query(name, query, coalesce(sink, stream.to_table('back.' || name || '_out')), mode,
        options => jsonb_build_object('state_provider', provider, 'max_rows_per_batch', 2), start => false) $$;
SET client_min_messages = warning;
SELECT make('rows', 'SELECT k, v FROM hit', 'append', 'memory');
SELECT make('first_' || p, 'SELECT DISTINCT ON (k) k, v FROM hit', 'append', p) FROM unnest(ARRAY['memory', 'table']) p;
SELECT make('sums_' || p, 'SELECT k, sum(v) AS total FROM hit GROUP BY k', 'update', p) FROM unnest(ARRAY['memory', 'table']) p;
SELECT make('whole_' || p, 'SELECT count(*) AS n, sum(v) AS total FROM hit', 'complete', p) FROM unnest(ARRAY['memory', 'table']) p;
CREATE TABLE bare (k int, v int);
SELECT make('bare', 'SELECT k, v FROM hit', 'append', 'memory', stream.to_table('back.bare', '{"batch_id_column": null}'));
CREATE TABLE shared (k int, v int, batch_id bigint);
SELECT make('left', 'SELECT k, v FROM hit WHERE k = 1', 'append', 'memory', stream.to_table('back.shared'));
SELECT make('right', 'SELECT k, v FROM hit WHERE k > 1', 'append', 'memory', stream.to_table('back.shared'));
SELECT make('kept', 'SELECT k, v FROM hit', 'append', 'memory', stream.to_memory());
RESET client_min_messages;
CREATE PROCEDURE batch() LANGUAGE plpgsql AS $$
DECLARE q text;
BEGIN
    FOR q IN SELECT name FROM stream.queries ORDER BY id LOOP CALL stream.process_all_available(q); END LOOP;
END $$;
INSERT INTO hit_t VALUES (1, 1), (2, 2), (3, 3), (1, 4), (2, 5), (4, 6);
CALL batch();

-- Batches 0 to 2; back to 0. Rows that were replaced must go first.
SELECT stream.rewind_query('sums_memory', 0);
SELECT stream.rewind_query('whole_table', 0);
DELETE FROM sums_memory_out WHERE batch_id > 0;
DELETE FROM sums_table_out WHERE batch_id > 0;
DELETE FROM whole_memory_out WHERE batch_id > 0;
DELETE FROM whole_table_out WHERE batch_id > 0;
SELECT stream.rewind_query(name, 0) FROM stream.queries WHERE name ~ '^(rows|first|sums|whole|kept)' ORDER BY id;
SELECT name, last_batch_id, state_rows FROM stream.queries WHERE name ~ '^(rows|first|sums|whole|kept)' ORDER BY id;
SELECT k, v, batch_id FROM rows_out ORDER BY v;
SELECT k, v, batch_id FROM first_memory_out ORDER BY v;
SELECT k, v, batch_id FROM first_table_out ORDER BY v;
SELECT count(*) FROM stream.memory('kept');
SELECT key, value FROM stream.state('sums_memory') ORDER BY key::text;
SELECT key, value FROM stream.state('sums_table') ORDER BY key::text;
SELECT value FROM stream.state('whole_table');

-- On again: nothing lost, nothing twice.
CALL stream.run_batch('rows', NULL);
SELECT k, v, batch_id FROM rows_out ORDER BY v;
CALL batch();
SELECT k, v, batch_id FROM rows_out ORDER BY v;
SELECT k, v, batch_id FROM first_memory_out ORDER BY v;
SELECT k, v, batch_id FROM first_table_out ORDER BY v;
SELECT k, total, batch_id FROM sums_memory_out ORDER BY k;
SELECT k, total, batch_id FROM sums_table_out ORDER BY k;
SELECT n, total, batch_id FROM whole_memory_out, LATERAL (SELECT 1) x;
SELECT n, total, batch_id FROM whole_table_out;
SELECT count(*) FROM stream.memory('kept');
SELECT key, value FROM stream.state('sums_table') ORDER BY key::text;

-- Rows of the target that are not the query's stay.
INSERT INTO rows_out VALUES (99, 99, NULL);
SELECT stream.rewind_query('rows', 1);
SELECT k, v, batch_id FROM rows_out ORDER BY v;

-- Refused, with the reason.
\set VERBOSITY default
SELECT stream.rewind_query('bare', 0);
SELECT stream.rewind_query('sums_memory', 1);
SELECT stream.rewind_query('left', 0);
SELECT stream.rewind_query('rows', 7);
SELECT stream.rewind_query('rows', -1);
CREATE ROLE regress_back SUPERUSER LOGIN;
SET SESSION AUTHORIZATION regress_back;
SELECT stream.rewind_query('rows', 0);
SELECT stream.rewind_query('sums_table', 1);
RESET SESSION AUTHORIZATION;
\set VERBOSITY terse
DROP ROLE regress_back;
SELECT name, last_batch_id FROM stream.queries WHERE name IN ('bare', 'left', 'rows', 'sums_table') ORDER BY name;

-- The same with the state gone on its way: batches 0 to 9, three of them retained.
SELECT stream.alter_query('sums_' || p, options => '{"min_batches_to_retain": 3, "max_rows_per_batch": 1}') FROM unnest(ARRAY['memory', 'table']) p;
INSERT INTO hit_t SELECT i % 3, i FROM generate_series(1, 60) i;
CALL batch();
DELETE FROM sums_memory_out USING stream.queries WHERE name = 'sums_memory' AND batch_id > last_batch_id - 3;
DELETE FROM sums_table_out USING stream.queries WHERE name = 'sums_table' AND batch_id > last_batch_id - 3;
SELECT name, stream.rewind_query(name, last_batch_id - 3) FROM stream.queries WHERE name LIKE 'sums%' ORDER BY name;
CALL batch();
SELECT count(*) FROM (SELECT k, total FROM sums_memory_out EXCEPT SELECT k, sum(v) FROM hit_t GROUP BY k) d;
SELECT count(*) FROM (SELECT k, total FROM sums_table_out EXCEPT SELECT k, sum(v) FROM hit_t GROUP BY k) d;
SELECT stream.rewind_query('sums_memory', 1);
SELECT stream.rewind_query('sums_table', 1);

SELECT count(stream.drop_query(name)) FROM stream.queries;
SET client_min_messages = warning;
DROP SCHEMA back CASCADE;
