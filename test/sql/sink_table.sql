-- The table sink: targets made and matched, keys, upserts, folding, replacing; what is refused, and how it is said.
CREATE SCHEMA sink_table;
SET search_path = sink_table;
\set VERBOSITY terse
CREATE TABLE input_t (id int, k text, v int, note varchar(8));
SELECT stream.create_source('input', 'table', options => '{"table": "input_t"}');
-- create_query without its number
CREATE FUNCTION make(name text, query text, sink stream.sink, mode text DEFAULT 'append', options jsonb DEFAULT '{}') RETURNS text
    LANGUAGE sql AS $$ SELECT 'made' FROM stream.create_query(name, query, sink, mode, options => options, start => false) $$;

-- Made when missing: columns, types, collation, batch_id; a name with everything in it.
SELECT make('made', 'SELECT id, k COLLATE "C" AS "Key ""1""", note, v::numeric(6,2) AS amount FROM input', stream.to_table('"Odd "" Name"'));
\d "Odd "" Name"
INSERT INTO input_t VALUES (1, 'a', 10, 'one'), (2, 'b', NULL, 'two');
CALL stream.process_all_available('made');
INSERT INTO input_t VALUES (3, NULL, 30, NULL);
CALL stream.process_all_available('made');
TABLE "Odd "" Name" ORDER BY id;
SELECT sink FROM stream.queries WHERE name = 'made';

-- Another name for batch_id, or none.
SELECT make('named', 'SELECT id FROM input', stream.to_table('named', '{"batch_id_column": "batch"}'));
SELECT make('none', 'SELECT id, id AS batch_id FROM input', stream.to_table('none', '{"batch_id_column": null}'));
CALL stream.process_all_available('named');
CALL stream.process_all_available('none');
SELECT * FROM named ORDER BY 1;
SELECT * FROM none ORDER BY 1;

-- A table that is there: columns by name, defaults, generated and identity columns, triggers, assignment casts.
CREATE TABLE present (serial int GENERATED ALWAYS AS IDENTITY, v bigint, doubled bigint GENERATED ALWAYS AS (v * 2) STORED, id text, since date DEFAULT '2026-03-01');
CREATE FUNCTION present_trigger() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.id := NEW.id || '!'; RETURN NEW; END $$;
CREATE TRIGGER t BEFORE INSERT ON present FOR EACH ROW EXECUTE FUNCTION present_trigger();
SELECT make('present', 'SELECT id, v FROM input', stream.to_table('sink_table.present'));
CALL stream.process_all_available('present');
SELECT * FROM present ORDER BY 1;

-- Altered while the query lives: by name again.
ALTER TABLE present DROP COLUMN v CASCADE, ADD COLUMN v int, ADD COLUMN extra text DEFAULT 'x';
INSERT INTO input_t VALUES (4, 'd', 40, NULL);
CALL stream.process_all_available('present');
SELECT * FROM present WHERE id = '4!';
ALTER TABLE present ALTER COLUMN v TYPE point USING NULL;
INSERT INTO input_t VALUES (5, 'e', 50, NULL);
CALL stream.process_all_available('present');
ALTER TABLE present DROP COLUMN v;
CALL stream.process_all_available('present');
ALTER TABLE present ADD COLUMN v int;
ALTER TABLE present RENAME TO moved;
CALL stream.process_all_available('present');
ALTER TABLE moved RENAME TO present;
CALL stream.process_all_available('present');
SELECT id, v FROM present ORDER BY 1;

-- Update mode: one unique index with NULLs equal; upserts; the batch id moves on; untouched rows keep theirs.
SELECT make('totals', 'SELECT k, sum(v) AS total, count(*) AS n FROM input GROUP BY k', stream.to_table('totals'), 'update');
\d totals
CALL stream.process_all_available('totals');
INSERT INTO input_t VALUES (6, NULL, 1, NULL), (7, 'a', 1, NULL), (8, NULL, 1, NULL);
CALL stream.process_all_available('totals');
SELECT * FROM totals ORDER BY k;
-- No GROUP BY: one row. All columns key: nothing to set but the batch.
SELECT make('one', 'SELECT count(*) AS n FROM input', stream.to_table('one'), 'update');
SELECT make('keys', 'SELECT k FROM input GROUP BY k', stream.to_table('keys'), 'update');
SELECT make('keys0', 'SELECT k FROM input GROUP BY k', stream.to_table('keys0', '{"batch_id_column": null}'), 'update');
CALL stream.process_all_available('one');
CALL stream.process_all_available('keys');
CALL stream.process_all_available('keys0');
INSERT INTO input_t VALUES (9, 'a', 1, NULL);
CALL stream.process_all_available('one');
CALL stream.process_all_available('keys');
CALL stream.process_all_available('keys0');
TABLE one;
SELECT * FROM keys WHERE k = 'a';
SELECT count(*) FROM keys0 WHERE k = 'a';
-- Without GROUP BY and without a key rows are just added.
SELECT make('added', 'SELECT k FROM input WHERE k = ''a''', stream.to_table('added'), 'update');
CALL stream.process_all_available('added');
SELECT * FROM added;

-- Keys by option: several rows of a key in one batch, the last to arrive wins; also under a limit.
SELECT make('latest', 'SELECT k, v, id FROM input', stream.to_table('latest', '{"key": ["k"]}'), 'update');
SELECT make('latest2', 'SELECT k, v, id FROM input', stream.to_table('latest2', '{"key": "k"}'), 'update', '{"max_rows_per_batch": 2}');
CALL stream.process_all_available('latest');
CALL stream.process_all_available('latest2');
SELECT * FROM latest ORDER BY k;
SELECT k, v, id FROM latest EXCEPT SELECT k, v, id FROM latest2;

-- Existing targets for upserts: a usable index is taken, a missing one is made, an unusable one is refused.
CREATE TABLE pk (k text PRIMARY KEY, n bigint, note text DEFAULT 'kept');
SELECT make('pk', 'SELECT k, count(*) AS n FROM input WHERE k IS NOT NULL GROUP BY k', stream.to_table('pk'), 'update');
CALL stream.process_all_available('pk');
UPDATE pk SET note = 'mine';
INSERT INTO input_t VALUES (10, 'a', 1, NULL), (11, 'f', 1, NULL);
CALL stream.process_all_available('pk');
SELECT * FROM pk ORDER BY 1;
CREATE TABLE bare (k text, n bigint);
SELECT make('bare', 'SELECT k, count(*) AS n FROM input GROUP BY k', stream.to_table('bare'), 'update');
SELECT indexdef FROM pg_indexes WHERE tablename = 'bare' AND schemaname = 'sink_table';
CREATE TABLE repeats (k text UNIQUE, n bigint);
\set VERBOSITY default
SELECT make('repeats', 'SELECT k, count(*) AS n FROM input GROUP BY k', stream.to_table('repeats'), 'update');
\set VERBOSITY terse
CREATE TABLE dups (k text, n bigint);
INSERT INTO dups VALUES ('a', 1), ('a', 2);
SELECT make('dups', 'SELECT k, count(*) AS n FROM input GROUP BY k', stream.to_table('dups'), 'update');
CREATE TABLE deferred (k text NOT NULL, n bigint, UNIQUE (k) DEFERRABLE);
SELECT make('deferred', 'SELECT k, count(*) AS n FROM input WHERE k IS NOT NULL GROUP BY k', stream.to_table('deferred'), 'update');
-- The index goes while the query lives: said, not worked around.
DROP INDEX bare_k_idx;
CALL stream.process_all_available('bare');

-- Groups that look alike in the output: said when the query is made as far as it can be known, an error of the batch else.
\set VERBOSITY default
SELECT make('hidden', 'SELECT k, count(*) AS n FROM input GROUP BY k, v, v % 2', stream.to_table('hidden'), 'update');
SELECT make('alike', 'SELECT v / 100 AS v, count(*) AS n FROM input GROUP BY v', stream.to_table('alike'), 'update');
SELECT make('many', 'SELECT k, generate_series(1, count(*)) AS n FROM input GROUP BY k', stream.to_table('many'), 'update');
SELECT make('chosen', 'SELECT v / 100 AS v, max(v) AS n FROM input GROUP BY v', stream.to_table('chosen', '{"key": "v"}'), 'update');
\set VERBOSITY terse
INSERT INTO input_t VALUES (90, 'many', 1), (91, 'many', 2);
CALL stream.process_all_available('alike');
CALL stream.process_all_available('chosen');
SELECT v, n FROM chosen ORDER BY v;
DELETE FROM input_t WHERE k = 'many';

-- Complete mode replaces the contents, and the rest of the table with them.
SELECT make('whole', 'SELECT k, count(*) AS n FROM input GROUP BY k', stream.to_table('whole'), 'complete');
INSERT INTO whole VALUES ('left over', 1, 1);
CALL stream.process_all_available('whole');
SELECT * FROM whole ORDER BY k;

-- Partitioned targets, also for upserts; a key without the partition key is refused by Postgres.
CREATE TABLE parts (k text, n bigint, batch_id bigint) PARTITION BY LIST (k);
CREATE TABLE parts_a PARTITION OF parts FOR VALUES IN ('a', NULL);
CREATE TABLE parts_x PARTITION OF parts DEFAULT;
SELECT make('parts', 'SELECT k, count(*) AS n FROM input GROUP BY k', stream.to_table('parts'), 'update');
CALL stream.process_all_available('parts');
INSERT INTO input_t VALUES (12, 'a', 1, NULL), (13, NULL, 1, NULL);
CALL stream.process_all_available('parts');
SELECT tableoid::regclass, * FROM parts ORDER BY k;
CREATE TABLE by_n (k text, n bigint) PARTITION BY RANGE (n);
SELECT make('by_n', 'SELECT k, count(*) AS n FROM input GROUP BY k', stream.to_table('by_n'), 'update');

-- Refused.
\set VERBOSITY default
CREATE VIEW seen AS SELECT id FROM input_t;
CREATE TEMP TABLE passing (id int);
CREATE TABLE ruled (id int);
CREATE RULE r AS ON INSERT TO ruled DO ALSO NOTIFY x;
SELECT make('r', 'SELECT id FROM input', stream.to_table('seen'));
SELECT make('r', 'SELECT id FROM input', stream.to_table('passing'));
SELECT make('r', 'SELECT id FROM input', stream.to_table('ruled'));
SELECT make('r', 'SELECT id FROM input', stream.to_table('input'));
SELECT make('r', 'SELECT id FROM input', stream.to_table('input_t'));
SELECT make('r', 'SELECT id FROM input', stream.to_table('pg_catalog.pg_class'));
SELECT make('r', 'SELECT id FROM input', stream.to_table('stream.query'));
SELECT make('r', 'SELECT id FROM input', stream.to_table(NULL));
SELECT make('r', 'SELECT id FROM input', stream.to_table('nowhere.t'));
SELECT make('r', 'SELECT id FROM input', stream.to_table('a.b.c'));
SELECT make('r', 'SELECT id, id AS batch_id FROM input', stream.to_table('r'));
SELECT make('r', 'SELECT id, k AS id FROM input', stream.to_table('r'));
SELECT make('r', 'SELECT id AS missing FROM input', stream.to_table('pk'));
SELECT make('r', 'SELECT k, point(1, 1) AS n FROM input', stream.to_table('pk'));
SELECT make('r', 'SELECT id::text AS id, 1::bigint AS doubled FROM input', stream.to_table('present'));
SELECT make('r', 'SELECT id FROM input', stream.to_table('r', '{"keys": ["id"]}'));
SELECT make('r', 'SELECT id FROM input', stream.to_table('r', '{"key": ["id", 1]}'));
SELECT make('r', 'SELECT id FROM input', stream.to_table('r', '{"key": []}'));
SELECT make('r', 'SELECT id FROM input', stream.to_table('r', '{"key": ["k"]}'), 'update');
SELECT make('r', 'SELECT id FROM input', stream.to_table('r', '{"batch_id_column": 1}'));
SELECT make('r', 'SELECT id FROM input', stream.to_table('r', '[]'));
SELECT make('r', 'SELECT count(*) AS n FROM input', stream.to_table('r', '{"key": ["n"]}'), 'complete');
SELECT make('r', 'SELECT id FROM input', stream.to_table('pk', '{"batch_id_column": "batch"}'));
SELECT make('r', 'SELECT id FROM input', NULL);
SELECT make('r', 'SELECT id FROM input', stream.to_kafka('topic'));
SELECT to_regclass('r') IS NULL AS nothing_left;

-- The target goes.
DROP TABLE named;
INSERT INTO input_t VALUES (14, 'a', 1, NULL);
CALL stream.process_all_available('named');
-- A row breaks a constraint: nothing of its batch is written.
CREATE TABLE strict (id int, v int NOT NULL);
SELECT make('strict', 'SELECT id, v FROM input', stream.to_table('strict'));
CALL stream.process_all_available('strict');
SELECT count(*) FROM strict;
ALTER TABLE strict ALTER v DROP NOT NULL;
CALL stream.process_all_available('strict');
SELECT count(*) > 10 AS all_there FROM strict;

-- Triggers: what they refuse. Other sinks: what is called.
SELECT stream.processing_time('-1 second');
SELECT stream.processing_time('1 month -40 days');
SELECT stream.processing_time('40 days -960 hours'), stream.processing_time('0');
SELECT stream.processing_time(NULL);
SELECT stream.continuous('0');
SELECT stream.real_time('-1 minute');
SELECT stream.real_time('1 minute'), stream.continuous('1 hour'), stream.available_now(), stream.once();
SELECT stream.to_function(NULL);
SELECT stream.to_function('no_such_function');
SELECT stream.to_function('sink_table.present_trigger'), stream.to_each('sink_table.present_trigger');
SELECT stream.to_log(), stream.to_memory(), stream.to_channel('c');

\set VERBOSITY terse
SET client_min_messages = warning;
SELECT count(stream.drop_query(name)) FROM stream.query WHERE name IN ('made', 'named', 'none', 'present', 'totals', 'one', 'keys', 'keys0', 'added', 'latest', 'latest2', 'pk', 'bare', 'hidden', 'alike', 'chosen', 'whole', 'parts', 'strict');
DROP SCHEMA sink_table CASCADE;
