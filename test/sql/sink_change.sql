-- Change data into a table: option op_column of table sinks. Last change of a key wins, deletes leave, truncates empty; values a change did not bring stay.
CREATE SCHEMA sink_change;
SET search_path = sink_change;
\set VERBOSITY terse
CREATE TABLE input_t (id int, v text, n int, op text, unchanged text[]);
SELECT stream.create_source('input', 'table', options => '{"table": "input_t"}');
CREATE FUNCTION make(name text, query text, target text, options jsonb, mode text DEFAULT 'append') RETURNS text
    LANGUAGE sql AS $$ SELECT 'made' FROM stream.create_query(name, query, stream.to_table(target, options), mode, start => false) $$;
-- Every query over all the changes so far, in batches of each size: always the same table.
CREATE PROCEDURE in_batches(query text, target text) LANGUAGE plpgsql AS $$
DECLARE answer jsonb; first jsonb;
BEGIN
    FOR size IN 1..12 LOOP
        PERFORM stream.reset_query(query), stream.alter_query(query, options => jsonb_build_object('max_rows_per_batch', size));
        EXECUTE 'DELETE FROM ' || target;
        COMMIT;
        CALL stream.process_all_available(query);
        EXECUTE format('SELECT jsonb_agg(to_jsonb(t) - ''batch_id'' ORDER BY t) FROM %s t', target) INTO answer;
        first := coalesce(first, answer);
        IF first IS DISTINCT FROM answer THEN RAISE WARNING 'batches of %: %', size, answer; END IF;
    END LOOP;
    RAISE NOTICE '%', first;
END $$;

-- The target is made without the column that says what to do; every word there is.
SELECT make('all', 'SELECT id, v, n, op FROM input', 'all_t', '{"key": ["id"], "op_column": "op"}');
\d all_t
INSERT INTO input_t VALUES (1, 'a', 1, 'c'), (2, 'b', 1, 'r'), (3, 'c', 1, 'I'), (4, 'd', 1, 'insert'), (5, 'e', 1, 'Update'), (6, 'f', 1, 'create'), (7, 'g', 1, 'read');
CALL stream.process_all_available('all');
SELECT * FROM all_t ORDER BY id;
-- One batch: several changes of a key, a key that comes and goes, comes back, was never there.
INSERT INTO input_t VALUES (1, 'a2', 2, 'u'), (1, 'a3', 3, 'u'), (2, NULL, NULL, 'd'), (3, NULL, NULL, 'DELETE'), (3, 'c2', 2, 'c'), (8, 'h', 1, 'c'), (8, NULL, NULL, 'd'),
    (9, NULL, NULL, 'd'), (4, 'd2', 2, 'u'), (4, NULL, NULL, 'delete');
CALL stream.process_all_available('all');
SELECT * FROM all_t ORDER BY id;
-- A truncate: what came before is gone, in the target and in the batch.
INSERT INTO input_t VALUES (10, 'x', 1, 'c'), (NULL, NULL, NULL, 't'), (11, 'y', 1, 'c'), (1, 'a4', 4, 'c');
CALL stream.process_all_available('all');
SELECT * FROM all_t ORDER BY id;
INSERT INTO input_t VALUES (NULL, NULL, NULL, 'truncate');
CALL stream.process_all_available('all');
SELECT * FROM all_t ORDER BY id;
INSERT INTO input_t VALUES (12, 'z', 1, 'c'), (11, 'w', 1, 'u');
CALL stream.process_all_available('all');
SELECT * FROM all_t ORDER BY id;
CALL in_batches('all', 'all_t');

-- Triggers of the target see inserts, updates and deletes; a delete followed by another deletes once.
CREATE TABLE watched (id int PRIMARY KEY, v text);
CREATE TABLE seen (what text, id int);
CREATE FUNCTION watch() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO seen VALUES (TG_OP, coalesce(NEW.id, OLD.id)); RETURN NULL; END $$;
CREATE TRIGGER watch AFTER INSERT OR UPDATE OR DELETE ON watched FOR EACH ROW EXECUTE FUNCTION watch();
TRUNCATE input_t;
SELECT make('watched', 'SELECT id, v, op FROM input', 'watched', '{"key": ["id"], "op_column": "op"}', 'update');
INSERT INTO input_t VALUES (1, 'a', 1, 'c'), (2, 'b', 1, 'c');
CALL stream.process_all_available('watched');
INSERT INTO input_t VALUES (1, NULL, 1, 'd'), (1, NULL, 1, 'd'), (2, 'c', 1, 'u');
CALL stream.process_all_available('watched');
INSERT INTO input_t VALUES (1, NULL, 1, 'd');
CALL stream.process_all_available('watched');
SELECT * FROM seen;
SELECT * FROM watched;

-- All columns are key; a key of two; a partitioned target; other types in the target.
TRUNCATE input_t;
CREATE TABLE pairs (id bigint, n smallint, PRIMARY KEY (id, n));
CREATE TABLE parted (n int, id numeric, v varchar, batch_id bigint, UNIQUE (id, n)) PARTITION BY LIST (n);
CREATE TABLE parted_1 PARTITION OF parted FOR VALUES IN (1);
CREATE TABLE parted_2 PARTITION OF parted FOR VALUES IN (2);
ALTER TABLE parted ALTER n SET NOT NULL, ALTER id SET NOT NULL;
SELECT make('pairs', 'SELECT id, n, op FROM input', 'pairs', '{"key": ["id", "n"], "op_column": "op"}');
SELECT make('parted', 'SELECT id, n, v, op FROM input', 'parted', '{"key": ["id", "n"], "op_column": "op"}');
INSERT INTO input_t VALUES (1, 'a', 1, 'c'), (1, 'b', 2, 'c'), (2, 'c', 1, 'c'), (1, 'a2', 1, 'u'), (1, NULL, 2, 'd'), (2, NULL, 2, 'd');
CALL stream.process_all_available('pairs');
CALL stream.process_all_available('parted');
TABLE pairs ORDER BY 1, 2;
SELECT tableoid::regclass, * FROM parted ORDER BY id, n;
CALL in_batches('parted', 'parted');

-- Values a change did not bring: of the batch the last one known, else what the target has; without a row there is none.
TRUNCATE input_t;
SELECT make('partial', 'SELECT id, v, n, op, unchanged FROM input', 'partial', '{"key": "id", "op_column": "op", "unchanged_column": "unchanged"}');
\d partial
INSERT INTO input_t VALUES (1, 'big', 1, 'c', NULL), (2, 'large', 1, 'c', '{}');
CALL stream.process_all_available('partial');
INSERT INTO input_t VALUES (1, NULL, 2, 'u', '{v}'), (2, 'new', 2, 'u', NULL), (2, NULL, 3, 'u', '{v}'), (3, 'huge', NULL, 'c', NULL), (3, NULL, 4, 'u', '{v}'), (3, NULL, NULL, 'u', '{v,n}'),
    (4, NULL, 1, 'u', '{v}'), (2, NULL, 4, 'u', '{other,v}');
CALL stream.process_all_available('partial');
SELECT id, v, n FROM partial ORDER BY id;
INSERT INTO input_t VALUES (1, NULL, NULL, 'd', NULL), (1, NULL, 9, 'c', NULL), (1, 'again', 10, 'u', NULL), (1, NULL, 11, 'u', '{v}'), (2, NULL, 5, 'u', '{v}'), (2, NULL, NULL, 'd', NULL);
CALL stream.process_all_available('partial');
SELECT id, v, n FROM partial ORDER BY id;
CALL in_batches('partial', 'partial');

-- Bad changes: no such word, NULL, a NULL in the key, what the target does not take. The batch fails, or they are put aside.
TRUNCATE input_t;
CREATE TABLE strict (id int PRIMARY KEY, v text CHECK (v <> 'bad'));
SELECT make('strict', 'SELECT id, v, op FROM input', 'strict', '{"key": ["id"], "op_column": "op"}');
SELECT make('loose', 'SELECT id, v, op FROM input', 'strict', '{"key": ["id"], "op_column": "op", "on_bad_row": "dead_letter"}');
SELECT make('loose_part', 'SELECT id, v, op, unchanged FROM input', 'strict', '{"key": ["id"], "op_column": "op", "unchanged_column": "unchanged", "on_bad_row": "dead_letter"}');
INSERT INTO input_t VALUES (1, 'a', 1, 'c'), (2, 'b', 1, 'x');
CALL stream.process_all_available('strict');
TRUNCATE input_t;
INSERT INTO input_t VALUES (1, 'a', 1, 'c'), (2, 'b', 1, NULL);
SELECT stream.reset_query('strict');
CALL stream.process_all_available('strict');
TRUNCATE input_t;
INSERT INTO input_t VALUES (1, 'a', 1, 'c'), (NULL, 'c', 1, 'u');
SELECT stream.reset_query('strict');
CALL stream.process_all_available('strict');
TRUNCATE input_t;
INSERT INTO input_t VALUES (1, 'a', 1, 'c'), (NULL, 'c', 1, 'd');
SELECT stream.reset_query('strict');
\set VERBOSITY sqlstate
CALL stream.process_all_available('strict');
\set VERBOSITY terse
SELECT count(*) FROM strict;
TRUNCATE input_t;
INSERT INTO input_t VALUES (1, 'a', 1, 'c'), (2, 'b', 1, 'x'), (NULL, 'c', 1, 'u'), (3, 'bad', 1, 'c'), (4, 'd', 1, 'c'), (1, 'bad', 1, 'u'), (4, NULL, 1, 'd'), (5, 'e', 1, NULL), (6, 'f', 1, 'c');
CALL stream.process_all_available('loose');
TABLE strict ORDER BY id;
SELECT position - 'target' AS position, convert_from(raw, 'UTF8') AS raw, error FROM stream.dead_letters WHERE query = 'loose' ORDER BY id;
SELECT num_input_rows, num_output_rows FROM stream.progress WHERE query = 'loose';
DELETE FROM strict;
CALL stream.process_all_available('loose_part');
TABLE strict ORDER BY id;

-- Refused when the query is made.
SELECT make('no', 'SELECT id, v, op FROM input', 'no', '{"op_column": "op"}');
SELECT make('no', 'SELECT id, v FROM input', 'no', '{"key": ["id"], "op_column": "op"}');
SELECT make('no', 'SELECT id, v, n FROM input', 'no', '{"key": ["id"], "op_column": "n"}');
SELECT make('no', 'SELECT id, v, op FROM input', 'no', '{"key": ["id", "op"], "op_column": "op"}');
SELECT make('no', 'SELECT id, v, op FROM input', 'no', '{"key": ["id"], "op_column": 1}');
SELECT make('no', 'SELECT id, v, op FROM input', 'no', '{"key": ["id"], "unchanged_column": "v"}');
SELECT make('no', 'SELECT id, v, op FROM input', 'no', '{"key": ["id"], "op_column": "op", "unchanged_column": "v"}');
SELECT make('no', 'SELECT id, v, op FROM input', 'no', '{"key": ["id"], "op_column": "op", "unchanged_column": "w"}');
SELECT make('no', 'SELECT id, max(op) AS op FROM input GROUP BY id', 'no', '{"key": ["id"], "op_column": "op"}', 'update');
SELECT make('no', 'SELECT op, count(*) AS n FROM input GROUP BY op', 'no', '{"key": ["n"], "op_column": "op"}', 'complete');
CREATE ROLE sink_change_writer LOGIN;
GRANT ALL ON SCHEMA sink_change TO sink_change_writer;
GRANT USAGE ON SCHEMA stream TO sink_change_writer;
GRANT SELECT ON input TO sink_change_writer;
GRANT SELECT, INSERT, UPDATE ON strict TO sink_change_writer;
SET ROLE sink_change_writer;
SELECT stream.create_query('no', 'SELECT id, v, op FROM input', stream.to_table('strict', '{"key": ["id"], "op_column": "op"}'), start => false);
RESET ROLE;
SELECT to_regclass('no');
\set VERBOSITY default
SELECT make('no', 'SELECT id, v, op FROM input', 'no', '{"op_column": "op"}');

SET client_min_messages = warning;
DO $$ DECLARE q text; BEGIN FOR q IN SELECT name FROM stream.queries LOOP PERFORM stream.drop_query(q); END LOOP; END $$;
DROP SCHEMA sink_change CASCADE;
DROP OWNED BY sink_change_writer;
DROP ROLE sink_change_writer;
