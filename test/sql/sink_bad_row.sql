-- Option on_bad_row of table sinks: rows a target does not take fail the batch, or are put aside while the others are written.
CREATE SCHEMA sink_bad_row;
SET search_path = sink_bad_row;
\set VERBOSITY terse
CREATE TABLE input_t (id int, v text);
SELECT stream.create_source('input', 'table', options => '{"table": "input_t"}');
CREATE FUNCTION make(name text, query text, target text, options jsonb, mode text DEFAULT 'append') RETURNS text
    LANGUAGE sql AS $$ SELECT 'made' FROM stream.create_query(name, query, stream.to_table(target, options), mode, start => false) $$;
CREATE VIEW letters AS
    SELECT query, batch_id, reason, position - 'target' AS position, convert_from(raw, 'UTF8') AS raw, error FROM stream.dead_letters WHERE reason = 'rejected' ORDER BY id;

-- Strict, the default: nothing is written, the batch comes again.
CREATE TABLE strict (id int, v text NOT NULL);
SELECT make('strict', 'SELECT id, v FROM input', 'strict', '{}');
SELECT make('same', 'SELECT id, v FROM input', 'strict', '{"on_bad_row": "fail"}');
INSERT INTO input_t VALUES (1, 'ok'), (2, NULL), (3, 'ok');
\set VERBOSITY sqlstate
CALL stream.process_all_available('strict');
CALL stream.process_all_available('same');
\set VERBOSITY terse
SELECT count(*) FROM strict;
SELECT count(*) FROM stream.commit_log c JOIN stream.queries q ON q.id = c.query_id WHERE q.name IN ('strict', 'same');

-- Put aside: the row as JSON, why, and where it did not fit. Counted, and not as output.
CREATE TABLE loose (id int CHECK (id < 100), v varchar(4) NOT NULL UNIQUE, batch_id bigint);
SELECT make('loose', 'SELECT id, v FROM input', 'loose', '{"on_bad_row": "dead_letter"}');
TRUNCATE input_t;
INSERT INTO input_t VALUES (1, 'a'), (2, NULL), (3, 'c'), (100, 'd'), (4, 'a'), (5, 'too long'), (6, 'f'), (NULL, 'g');
CALL stream.process_all_available('loose');
TABLE loose ORDER BY v;
SELECT * FROM letters;
SELECT rows_bad FROM stream.queries WHERE name = 'loose';
SELECT num_input_rows, num_output_rows FROM stream.progress WHERE query = 'loose';
-- All of a batch, and none; the plan is kept.
INSERT INTO input_t VALUES (200, 'x'), (201, 'y');
CALL stream.process_all_available('loose');
INSERT INTO input_t VALUES (7, 'h');
CALL stream.process_all_available('loose');
SELECT id, batch_id FROM loose WHERE id = 7;
SELECT rows_bad FROM stream.queries WHERE name = 'loose';

-- Many rows, some of them bad.
CREATE TABLE many (id int PRIMARY KEY CHECK (id % 1000 <> 7));
SELECT make('many', 'SELECT id FROM input', 'many', '{"on_bad_row": "dead_letter"}');
TRUNCATE input_t;
INSERT INTO input_t SELECT i FROM generate_series(1, 10000) i;
CALL stream.process_all_available('many');
SELECT count(*), sum(id) FROM many;
SELECT count(*), min(raw), max(raw) FROM letters WHERE query = 'many';

-- Upserts: a NULL key where the target has none; the last change of a key wins over those before it.
CREATE TABLE keyed (id int PRIMARY KEY, v text CHECK (v <> 'bad'));
SELECT make('keyed', 'SELECT id, v FROM input', 'keyed', '{"on_bad_row": "dead_letter", "key": ["id"]}', 'update');
TRUNCATE input_t;
INSERT INTO input_t VALUES (1, 'a'), (NULL, 'n'), (2, 'bad'), (1, 'b'), (3, 'c'), (3, 'bad'), (4, 'bad'), (4, 'd');
CALL stream.process_all_available('keyed');
TABLE keyed ORDER BY id;
SELECT raw, error FROM letters WHERE query = 'keyed';

-- Foreign keys, partitions without a place, and the checks of views and triggers that raise such errors.
CREATE TABLE parent (id int PRIMARY KEY);
INSERT INTO parent VALUES (1);
CREATE TABLE child (id int REFERENCES parent, v text) PARTITION BY LIST (v);
CREATE TABLE child_a PARTITION OF child FOR VALUES IN ('a');
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF new.id = 13 THEN RAISE 'not thirteen' USING ERRCODE = 'check_violation'; END IF; RETURN new; END $$;
CREATE TRIGGER refuse BEFORE INSERT ON child FOR EACH ROW EXECUTE FUNCTION refuse();
SELECT make('child', 'SELECT id, v FROM input', 'child', '{"on_bad_row": "dead_letter"}');
TRUNCATE input_t;
INSERT INTO input_t VALUES (1, 'a'), (2, 'a'), (1, 'b'), (13, 'a');
CALL stream.process_all_available('child');
TABLE child;
SELECT position, raw, error FROM letters WHERE query = 'child';

-- What no row is to blame for is never caught: privileges, missing columns, a trigger that fails.
CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'closed for today'; END $$;
CREATE TRIGGER fail BEFORE INSERT ON keyed FOR EACH ROW EXECUTE FUNCTION fail();
INSERT INTO input_t VALUES (9, 'z');
CALL stream.process_all_available('keyed');
SELECT count(*) FROM letters WHERE query = 'keyed';
ALTER TABLE keyed DISABLE TRIGGER fail;
SET lock_timeout = '100ms';
CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'waited too long' USING ERRCODE = 'lock_not_available'; END $$;
CREATE TRIGGER wait BEFORE INSERT ON keyed FOR EACH ROW EXECUTE FUNCTION wait();
CALL stream.process_all_available('keyed');
SELECT count(*) FROM letters WHERE query = 'keyed';
DROP TRIGGER wait ON keyed;
CALL stream.process_all_available('keyed');
SELECT id FROM keyed WHERE id = 9;

-- With state below and complete mode.
CREATE TABLE sums (k int, n bigint CHECK (n < 3));
SELECT make('sums', 'SELECT id AS k, count(*) AS n FROM input GROUP BY id', 'sums', '{"on_bad_row": "dead_letter"}', 'complete');
TRUNCATE input_t;
INSERT INTO input_t VALUES (1), (1), (2);
CALL stream.process_all_available('sums');
INSERT INTO input_t VALUES (1);
CALL stream.process_all_available('sums');
TABLE sums;
SELECT batch_id, raw FROM letters WHERE query = 'sums';

SELECT make('x', 'SELECT id, v FROM input', 'x', '{"on_bad_row": "skip"}');

\set QUIET on
SET client_min_messages = error;
SELECT count(stream.drop_query(name)) FROM stream.queries;
DROP SCHEMA sink_bad_row CASCADE;
