-- The table source: what create_source does to the table, ranges by snapshot, limits, stamps that cannot be forged, partitions, rights.
CREATE SCHEMA source_table;
SET search_path = source_table;
\set VERBOSITY terse
CREATE FUNCTION make(name text, query text, sink stream.sink, mode text DEFAULT 'append', options jsonb DEFAULT '{}') RETURNS text
    LANGUAGE sql AS $$ SELECT 'made' FROM stream.create_query(name, query, sink, mode, options => options, start => false) $$;
CREATE TABLE orders (id int, item varchar(10) COLLATE "C", price numeric(8,2), gone int, tags text[]);
ALTER TABLE orders DROP COLUMN gone;
INSERT INTO orders VALUES (1, 'pen', 1.5, '{a}'), (2, 'ink', 9, NULL);

SELECT stream.create_source('orders_stream', 'table', options => '{"table": "orders"}');
\d orders
\d orders_stream
-- A second source over the same table: nothing is added twice. Some columns only; an event time.
SELECT stream.create_source('few', 'table', 'price numeric(8,2), id int', '{"table": "source_table.orders"}');
SELECT count(*) FROM pg_trigger WHERE tgrelid = 'orders'::regclass;
SELECT * FROM few;
SELECT id, item, tags FROM orders_stream WHERE price > 2;
SELECT count(*) FROM orders_stream a JOIN few b USING (id);
EXPLAIN (COSTS off) SELECT id FROM orders_stream;

-- Rows there are the first rows; then only new ones; a read by hand moves nothing.
SELECT make('q', 'SELECT id, item, price, tags FROM orders_stream', stream.to_table('q_out'));
CALL stream.run_batch('q', NULL);
CALL stream.run_batch('q', NULL);
INSERT INTO orders VALUES (3, 'cap', NULL, '{}');
SELECT count(*) FROM orders_stream;
CALL stream.run_batch('q', NULL);
SELECT * FROM q_out ORDER BY id;
-- Two references to a source in one query read the same range, counted once.
SELECT make('self', 'SELECT id FROM orders_stream WHERE id < 3 UNION ALL SELECT id + 100 FROM orders_stream', stream.to_table('self_out'));
CALL stream.process_all_available('self');
SELECT count(*), (SELECT num_input_rows FROM stream.progress WHERE query = 'self') AS input FROM self_out;

-- Rolled back rows never come; savepoints are parts of their transaction.
BEGIN;
INSERT INTO orders VALUES (4);
ROLLBACK;
BEGIN;
INSERT INTO orders VALUES (5);
SAVEPOINT s;
INSERT INTO orders VALUES (6);
ROLLBACK TO s;
SAVEPOINT s2;
INSERT INTO orders VALUES (7);
RELEASE s2;
COMMIT;
CALL stream.process_all_available('q');
SELECT id, batch_id FROM q_out WHERE id > 3 ORDER BY 1;

-- Stamps cannot be forged: by INSERT, COPY, UPDATE, ON CONFLICT, as a replica, or with triggers of the user's role off.
INSERT INTO orders (id, stream_xid, stream_seq) VALUES (8, '1', 1), (9, '1', 1), (10, NULL, NULL);
COPY orders (id, stream_xid, stream_seq) FROM STDIN;
11	1	1
12	999999999	2
\.
COPY orders (id) FROM STDIN;
13
\.
SET session_replication_role = replica;
INSERT INTO orders (id, stream_xid, stream_seq) VALUES (14, '1', 1);
RESET session_replication_role;
INSERT INTO orders (id) SELECT g FROM generate_series(15, 17) g ORDER BY g DESC;
UPDATE orders SET stream_xid = '1', stream_seq = -5, price = 1 WHERE id IN (1, 15);
SELECT count(*), count(DISTINCT (stream_xid, stream_seq)) FROM orders;
CALL stream.process_all_available('q');
SELECT array_agg(id ORDER BY id) FROM q_out WHERE batch_id > 2;
SELECT count(*), count(DISTINCT id) FROM q_out;
ALTER TABLE orders DISABLE TRIGGER stream_stamp;
INSERT INTO orders (id) VALUES (18);
ALTER TABLE orders ENABLE ALWAYS TRIGGER stream_stamp;
CALL stream.process_all_available('q');
SELECT id FROM q_out WHERE id = 18;

-- A limit splits a transaction; the place inside it survives a rewrite of the table, updates, deletes, a change of the limit.
SELECT make('split', 'SELECT id FROM few', stream.to_table('split_out'), options => '{"max_rows_per_batch": 4}');
CALL stream.run_batch('split', NULL);
UPDATE orders SET price = 2;
VACUUM FULL orders;
CALL stream.run_batch('split', NULL);
CREATE INDEX orders_id ON orders (id);
CLUSTER orders USING orders_id;
DELETE FROM orders WHERE id = 17;
INSERT INTO orders SELECT generate_series(20, 29);
CALL stream.run_batch('split', NULL);
SELECT batch_id, array_agg(id ORDER BY id) FROM split_out GROUP BY 1 ORDER BY 1;
SELECT stream.alter_query('split', options => '{"max_rows_per_batch": 3}');
CALL stream.run_batch('split', NULL);
SELECT stream.alter_query('split', options => '{"max_rows_per_batch": null}');
CALL stream.run_batch('split', NULL);
CALL stream.run_batch('split', NULL);
SELECT count(*), count(DISTINCT id), count(DISTINCT batch_id) FROM split_out;
SELECT id FROM orders EXCEPT ALL SELECT id FROM split_out;
-- Exactly as many as the limit: no further batch.
SELECT make('exact', 'SELECT id FROM few', stream.to_table('exact_out'), options => '{"max_rows_per_batch": 12}');
CALL stream.process_all_available('exact');
INSERT INTO orders SELECT generate_series(30, 41);
CALL stream.process_all_available('exact');
SELECT batch_id, count(*) FROM exact_out GROUP BY 1 ORDER BY 1;

-- Bytes: one row at least, however large.
CREATE TABLE wide (t text);
SELECT stream.create_source('wide_stream', 'table', options => '{"table": "wide"}');
INSERT INTO wide SELECT repeat('x', n) FROM unnest(ARRAY[100, 100, 100, 900, 50, 50, 50, 50, 50, 50, 50, 50]) n;
SELECT make('wide', 'SELECT length(t) AS n FROM wide_stream', stream.to_table('wide_out'), options => '{"max_bytes_per_batch": 350}');
CALL stream.process_all_available('wide');
SELECT batch_id, count(*), sum(n) FROM wide_out GROUP BY 1 ORDER BY 1;

-- Partitions: rows by the parent or straight into one, of any partition made later; a row that moves is no new row.
CREATE TABLE parts (id int, d date) PARTITION BY RANGE (d);
CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM ('2026-01-01') TO ('2026-02-01');
INSERT INTO parts VALUES (1, '2026-01-05');
SELECT stream.create_source('parts_stream', 'table', options => '{"table": "parts"}');
SELECT stream.create_source('part_stream', 'table', options => '{"table": "parts_1"}');
SELECT make('parts', 'SELECT id, d FROM parts_stream', stream.to_table('parts_out'));
SELECT make('part', 'SELECT id, d FROM part_stream', stream.to_table('part_out'));
CREATE TABLE parts_2 PARTITION OF parts FOR VALUES FROM ('2026-02-01') TO ('2026-03-01');
INSERT INTO parts VALUES (2, '2026-02-03'), (3, '2026-01-07');
INSERT INTO parts_2 VALUES (4, '2026-02-04');
CALL stream.process_all_available('parts');
CALL stream.process_all_available('part');
UPDATE parts SET d = '2026-01-31' WHERE id = 4;
UPDATE parts SET d = '2026-02-28' WHERE id = 1;
INSERT INTO parts VALUES (5, '2026-02-20');
CALL stream.process_all_available('parts');
CALL stream.process_all_available('part');
SELECT * FROM parts_out ORDER BY id;
SELECT * FROM part_out ORDER BY id;

-- Rights and row security are those of the source's owner.
CREATE ROLE source_table_owner;
CREATE ROLE source_table_reader;
GRANT USAGE, CREATE ON SCHEMA source_table TO source_table_owner;
GRANT USAGE ON SCHEMA source_table TO source_table_reader;
SET ROLE source_table_owner;
SELECT stream.create_source('stolen', 'table', options => '{"table": "orders"}');
CREATE FOREIGN TABLE stolen (id int) SERVER stream_table OPTIONS ("table" 'source_table.orders');
SELECT count(*) FROM stolen;
DROP FOREIGN TABLE stolen;
CREATE TABLE secret (id int, who text);
INSERT INTO secret VALUES (1, 'all'), (2, 'none');
SELECT stream.create_source('secret_stream', 'table', options => '{"table": "secret"}');
GRANT SELECT ON secret_stream TO source_table_reader;
RESET ROLE;
SET ROLE source_table_reader;
SELECT stream.create_source('x', 'table', options => '{"table": "secret"}');
SELECT * FROM secret;
SELECT * FROM secret_stream;
SELECT stream.prepare_table('secret');
RESET ROLE;
ALTER TABLE secret ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
CREATE POLICY p ON secret USING (who = 'all');
SET ROLE source_table_reader;
SELECT * FROM secret_stream;
RESET ROLE;
SELECT * FROM secret_stream;
SELECT make('secret', 'SELECT id FROM secret_stream', stream.to_table('secret_out'));
CALL stream.process_all_available('secret');
SELECT id FROM secret_out;

-- strict_append: changes are refused while a source asks for it.
SELECT stream.create_source('strict', 'table', options => '{"table": "secret", "strict_append": true}');
UPDATE secret SET who = 'me';
DELETE FROM secret;
TRUNCATE secret;
ALTER TABLE secret RENAME TO renamed;
DELETE FROM renamed;
ALTER TABLE renamed RENAME TO secret;
SELECT stream.alter_source('strict', '{"strict_append": null}');
UPDATE secret SET who = 'all';
TRUNCATE secret;
-- That is for the table's owner to say, not for its readers.
GRANT SELECT ON secret TO source_table_reader;
GRANT CREATE ON SCHEMA source_table TO source_table_reader;
SET ROLE source_table_reader;
SELECT stream.create_source('no', 'table', options => '{"table": "secret", "strict_append": true}');
CREATE FOREIGN TABLE by_reader (id int) SERVER stream_table OPTIONS ("table" 'source_table.secret', strict_append 'true');
RESET ROLE;
DELETE FROM secret;
DROP FOREIGN TABLE by_reader;

-- The triggers are anybody's to put on tables of his own.
CREATE TABLE odd (stream_xid text, stream_seq int, v int);
CREATE TRIGGER t BEFORE INSERT ON odd FOR EACH ROW EXECUTE FUNCTION stream.stamp_row();
INSERT INTO odd VALUES ('a', 1, 1);
DROP TRIGGER t ON odd;
ALTER TABLE odd ALTER stream_xid TYPE xid8 USING '1', ALTER stream_seq TYPE bigint;
CREATE TRIGGER t BEFORE INSERT ON odd FOR EACH ROW EXECUTE FUNCTION stream.keep_stamp();
INSERT INTO odd VALUES ('1', 1, 1);
DROP TRIGGER t ON odd;
CREATE TRIGGER t AFTER INSERT ON odd FOR EACH ROW EXECUTE FUNCTION stream.stamp_row();
INSERT INTO odd VALUES ('1', 1, 1);
DROP TRIGGER t ON odd;
CREATE TRIGGER t BEFORE INSERT ON odd FOR EACH ROW EXECUTE FUNCTION stream.refuse_change();
INSERT INTO odd VALUES ('1', 1, 1);
DROP TABLE odd;

-- Refused.
\set VERBOSITY default
CREATE VIEW seen AS SELECT 1 AS id;
CREATE TEMP TABLE passing (id int);
CREATE TABLE parent (id int);
CREATE TABLE child () INHERITS (parent);
CREATE TABLE taken (stream_xid int);
SELECT stream.create_source('r', 'table');
SELECT stream.create_source('bad', 'table', options => '{"table": "stream.query"}');
SELECT stream.create_source('r', 'table', options => '{"table": "nothing"}');
SELECT stream.create_source('r', 'table', options => '{"table": "seen"}');
SELECT stream.create_source('r', 'table', options => '{"table": "few"}');
SELECT stream.create_source('r', 'table', options => '{"table": "passing"}');
SELECT stream.create_source('r', 'table', options => '{"table": "parent"}');
SELECT stream.create_source('r', 'table', options => '{"table": "child"}');
SELECT stream.create_source('r', 'table', options => '{"table": "taken"}');
SELECT stream.create_source('r', 'table', 'id int, other int', '{"table": "orders"}');
SELECT stream.create_source('r', 'table', 'id text', '{"table": "orders"}');
SELECT stream.create_source('r', 'table', options => '{"table": "orders", "strict_append": "maybe"}');
SELECT stream.create_source('r', 'table', options => '{"table": "orders", "topic": "x"}');
-- A foreign table by hand over a table nobody prepared: reads by hand work, streams say what to do.
CREATE TABLE unprepared (id int);
CREATE FOREIGN TABLE by_hand (id int) SERVER stream_table OPTIONS ("table" 'source_table.unprepared');
INSERT INTO unprepared VALUES (1);
SELECT * FROM by_hand;
SELECT make('by_hand', 'SELECT id FROM by_hand', stream.to_table('by_hand_out'));
CALL stream.process_all_available('by_hand');
SELECT stream.prepare_table('unprepared');
CALL stream.process_all_available('by_hand');
SELECT * FROM by_hand_out;
-- The table goes, or changes, under a source. By hand nobody knows that the source depends on it.
\set VERBOSITY terse
DROP TABLE unprepared;
CALL stream.process_all_available('by_hand');
SELECT * FROM by_hand;
CREATE TABLE unprepared (id int);
INSERT INTO unprepared VALUES (2);
CALL stream.process_all_available('by_hand');
SELECT stream.prepare_table('unprepared');
CALL stream.process_all_available('by_hand');
SELECT * FROM by_hand_out;
-- Renamed: known by the dependency; its name can be put right.
ALTER TABLE orders RENAME TO purchases;
INSERT INTO purchases (id) VALUES (49);
CALL stream.process_all_available('q');
SELECT id FROM q_out WHERE id = 49;
SELECT stream.alter_source('orders_stream', '{"table": "source_table.purchases"}');
SELECT stream.alter_source('few', '{"table": "source_table.nothing"}');
ALTER TABLE purchases RENAME TO orders;
DROP TABLE orders;
\set VERBOSITY default
ALTER TABLE orders ALTER COLUMN price TYPE int;
INSERT INTO orders VALUES (50);
CALL stream.process_all_available('q');
SELECT * FROM few;

\set VERBOSITY terse
SELECT stream.prepare_table(0);
SET client_min_messages = warning;
-- Without the extension the table takes rows still.
BEGIN;
DROP EXTENSION stream_ext CASCADE;
INSERT INTO orders (id) VALUES (60);
ROLLBACK;
SELECT count(stream.drop_query(name)) FROM stream.query WHERE name IN ('q', 'self', 'split', 'exact', 'wide', 'parts', 'part', 'secret', 'by_hand');
DROP SCHEMA source_table CASCADE;
DROP ROLE source_table_owner, source_table_reader;
