-- Changes of a table as rows: what was there first, then inserts, updates, deletes, in the order transactions committed.
\set VERBOSITY default
CREATE VIEW slots AS SELECT q.name, s.source, r.slot_name IS NOT NULL AS there FROM stream.change_slot s JOIN stream.query q ON q.id = s.query_id
	LEFT JOIN pg_replication_slots r ON r.slot_name = s.slot ORDER BY 1, 2;
CREATE VIEW our_slots AS SELECT count(*) FROM pg_replication_slots WHERE database = current_database();

CREATE TABLE orders (id int PRIMARY KEY, item text, price numeric(8,2));
INSERT INTO orders VALUES (1, 'pen', 1.5), (2, 'ink', 20), (3, NULL, NULL);
SELECT stream.create_source('change', 'changes', options => '{"table": "orders"}');
\d change
SELECT stream.create_query('q', 'SELECT * FROM change', stream.to_table('q_out'), start => false);
SELECT * FROM our_slots; -- made by the first batch
CALL stream.process_all_available('q');
SELECT * FROM q_out ORDER BY batch_id, id;
TABLE slots;
SELECT count(*) FROM stream.change_row; -- goes with the first changes

UPDATE orders SET price = 2 WHERE id = 1;
DELETE FROM orders WHERE id = 2;
UPDATE orders SET id = 30 WHERE id = 3;
INSERT INTO orders VALUES (4, 'cap', 4);
BEGIN; INSERT INTO orders VALUES (5, 'rolled back', 5); ROLLBACK;
BEGIN; INSERT INTO orders VALUES (6, 'kept', 6); SAVEPOINT s; UPDATE orders SET item = 'not kept' WHERE id = 6; ROLLBACK TO s; UPDATE orders SET price = 66 WHERE id = 6; COMMIT;
CALL stream.process_all_available('q');
SELECT op, id, item, price FROM q_out WHERE batch_id = 1;
SELECT count(*) FROM stream.change_row;
TRUNCATE orders; INSERT INTO orders VALUES (1, 'again', 1);
CALL stream.process_all_available('q');
SELECT op, id, item, price FROM q_out WHERE batch_id = 2;
CREATE TABLE other (n int); INSERT INTO other VALUES (1);
CALL stream.process_all_available('q');
SELECT max(batch_id) FROM q_out;

-- no way back, no read by hand
SELECT stream.rewind_query('q', 0);
SELECT * FROM change;

-- afresh: the rows that are there now, and a new slot
SELECT stream.reset_query('q');
TABLE our_slots;
TRUNCATE q_out;
CALL stream.process_all_available('q');
SELECT op, id, item, price, batch_id FROM q_out;
-- a savepoint brings the query back, and with it its slot
BEGIN; SAVEPOINT s; SELECT stream.drop_query('q'); ROLLBACK TO s; COMMIT;
TABLE slots;
UPDATE orders SET price = 9;
CALL stream.process_all_available('q');
SELECT op, id, price, batch_id FROM q_out WHERE batch_id = 1;

-- a limit splits transactions, and each change comes once
SELECT stream.create_query('small', 'SELECT op, id FROM change', stream.to_table('small_out'), options => '{"max_rows_per_batch": 7}', start => false);
CALL stream.process_all_available('small');
INSERT INTO orders SELECT i, 'many', i FROM generate_series(100, 130) i;
UPDATE orders SET item = 'more' WHERE id % 2 = 0;
CALL stream.process_all_available('small');
SELECT batch_id, count(*), min(op), max(op) FROM small_out GROUP BY 1 ORDER BY 1;
SELECT op, count(*), count(DISTINCT id), sum(id) FROM small_out GROUP BY 1 ORDER BY 1;
SELECT count(*) FROM stream.offset_log WHERE offsets -> 'public.change' ? 'row';
-- in bytes, also of the rows that were there
SELECT stream.create_query('bytes', 'SELECT op, id FROM change', stream.to_table('bytes_out'), options => '{"max_bytes_per_batch": 500}', start => false);
CALL stream.process_all_available('bytes');
UPDATE orders SET item = 'most' WHERE id > 100;
CALL stream.process_all_available('bytes');
SELECT op, count(*), count(DISTINCT id), max(batch_id) > 3 AS pieces FROM bytes_out GROUP BY 1 ORDER BY 1;
-- two queries, two slots
TABLE slots;
SELECT query, source, active, wal_status, bytes_held > 0 AS holds FROM stream.change_slots ORDER BY query;
SELECT stream.drop_query('bytes'), stream.drop_query('small');
TABLE slots;
TABLE our_slots;

-- a source twice, and two sources in one query; from now on
CREATE TABLE b (k int PRIMARY KEY, v text);
INSERT INTO b VALUES (1, 'there');
SELECT stream.create_source('b_change', 'changes', 'what text, k int, v text, change_lsn pg_lsn, change_time timestamptz', '{"table": "b", "op_column": "what", "snapshot": "never"}');
SELECT stream.create_query('both', $$SELECT 'orders' AS t, op, id, item FROM change UNION ALL SELECT 'b', what, k, v FROM b_change UNION ALL SELECT 'b again', what, k, v FROM b_change$$,
	stream.to_table('both_out'), start => false);
CALL stream.process_all_available('both');
SELECT t, op, count(*) FROM both_out GROUP BY 1, 2;
BEGIN; UPDATE b SET v = 'new'; UPDATE orders SET item = 'new' WHERE id = 1; COMMIT;
CALL stream.process_all_available('both');
SELECT t, op, id, item FROM both_out WHERE batch_id > 0 ORDER BY 1;
TABLE slots;
-- one of them leaves
SELECT stream.alter_query('both', $$SELECT 'orders' AS t, op, id, item FROM change$$);
TABLE slots;
SELECT stream.drop_query('both');
SELECT stream.create_query('timed', 'SELECT what, change_lsn IS NOT NULL AS lsn, change_time BETWEEN now() - interval ''1 hour'' AND clock_timestamp() AS at FROM b_change',
	stream.to_table('timed_out'), start => false);
CALL stream.process_all_available('timed');
DELETE FROM b;
CALL stream.process_all_available('timed');
TABLE timed_out;
SELECT stream.drop_query('timed');

-- large values that an update does not touch are not in the log
CREATE TABLE doc (id int PRIMARY KEY, n int, body text);
ALTER TABLE doc ALTER body SET STORAGE EXTERNAL;
INSERT INTO doc VALUES (1, 1, repeat('x', 10000));
SELECT stream.create_source('doc_change', 'changes', options => '{"table": "doc"}');
SELECT stream.create_source('doc_keep', 'changes', 'op text, id int, n int, body text, unchanged text[]', '{"table": "doc"}');
SELECT stream.create_query('doc', 'SELECT op, id, n, length(body) AS body FROM doc_change', stream.to_table('doc_out'), start => false);
SELECT stream.create_query('keep', 'SELECT op, id, n, length(body) AS body, unchanged FROM doc_keep', stream.to_table('keep_out'), start => false);
CALL stream.process_all_available('doc');
CALL stream.process_all_available('keep');
UPDATE doc SET n = 2;
UPDATE doc SET body = repeat('y', 20000);
UPDATE doc SET id = 2;
ALTER TABLE doc REPLICA IDENTITY FULL;
UPDATE doc SET n = 4;
UPDATE doc SET id = 3;
DELETE FROM doc;
CALL stream.process_all_available('doc');
CALL stream.process_all_available('keep');
TABLE doc_out;
TABLE keep_out;
SELECT query, reason, convert_from(raw, 'UTF8')::jsonb - 'body' AS raw, error FROM stream.dead_letters ORDER BY query, id;
SELECT stream.drop_query('doc'), stream.drop_query('keep');

-- the table changes its shape
CREATE TABLE shape (id int PRIMARY KEY, a text, b int);
SELECT stream.create_source('shape_change', 'changes', options => '{"table": "shape"}');
SELECT stream.create_query('shape', 'SELECT op, id, a, b FROM shape_change', stream.to_table('shape_out'), start => false);
CALL stream.process_all_available('shape');
INSERT INTO shape VALUES (1, 'one', 1);
CALL stream.process_all_available('shape');
ALTER TABLE shape ADD c int DEFAULT 5;
INSERT INTO shape VALUES (2, 'two', 2, 2);
ALTER TABLE shape DROP c;
UPDATE shape SET a = 'zwei' WHERE id = 2;
CALL stream.process_all_available('shape');
ALTER TABLE shape ALTER b TYPE bigint;
INSERT INTO shape VALUES (3, 'three', 3);
CALL stream.process_all_available('shape');
ALTER TABLE shape ALTER b TYPE int;
CALL stream.process_all_available('shape');
SELECT op, id, a, b FROM shape_out;
SELECT error FROM stream.dead_letters WHERE query = 'shape';
SELECT stream.drop_query('shape');

-- partitions
CREATE TABLE part (id int PRIMARY KEY, v text) PARTITION BY RANGE (id);
CREATE TABLE part_1 PARTITION OF part FOR VALUES FROM (0) TO (10);
CREATE TABLE part_2 (v text, id int NOT NULL);
ALTER TABLE part ATTACH PARTITION part_2 FOR VALUES FROM (10) TO (20);
INSERT INTO part VALUES (1, 'a'), (11, 'b');
SELECT stream.create_source('part_change', 'changes', options => '{"table": "part"}');
SELECT stream.create_query('part', 'SELECT * FROM part_change', stream.to_table('part_out'), start => false);
CALL stream.process_all_available('part');
UPDATE part SET id = 12 WHERE id = 1;
INSERT INTO part_2 VALUES ('c', 13);
DELETE FROM part WHERE id = 11;
TRUNCATE part;
TRUNCATE part_2;
CALL stream.process_all_available('part');
SELECT op, id, v, batch_id FROM part_out ORDER BY batch_id, CASE WHEN batch_id = 0 THEN id END;
SELECT error FROM stream.dead_letters WHERE query = 'part';
SELECT stream.drop_query('part');

-- aggregates over changes
SELECT stream.create_query('count', 'SELECT op, count(*) AS n FROM change GROUP BY op', stream.to_table('count_out'), output_mode => 'update', start => false);
CALL stream.process_all_available('count');
UPDATE orders SET item = 'x' WHERE id BETWEEN 100 AND 104;
CALL stream.process_all_available('count');
SELECT op, n FROM count_out ORDER BY 1;
SELECT stream.drop_query('count');

-- a copy kept by a table sink
SELECT stream.create_query('copy', 'SELECT * FROM doc_keep', stream.to_table('doc_copy', '{"key": ["id"], "op_column": "op", "unchanged_column": "unchanged", "batch_id_column": null}'), start => false);
INSERT INTO doc SELECT i, i, repeat('z', 1000 * i) FROM generate_series(1, 5) i;
ALTER TABLE doc REPLICA IDENTITY DEFAULT;
CALL stream.process_all_available('copy');
UPDATE doc SET n = n + 1;
UPDATE doc SET id = 20, body = '' WHERE id = 2;
DELETE FROM doc WHERE id = 3;
INSERT INTO doc VALUES (3, 33, 'again'); UPDATE doc SET n = 333 WHERE id = 3;
CALL stream.process_all_available('copy');
TABLE doc EXCEPT ALL TABLE doc_copy;
TABLE doc_copy EXCEPT ALL TABLE doc;
SELECT id, n, length(body) FROM doc_copy ORDER BY id;
TRUNCATE doc; INSERT INTO doc VALUES (7, 7, 'seven');
CALL stream.process_all_available('copy');
TABLE doc_copy;
SELECT stream.drop_query('copy');

-- what cannot be
SELECT stream.create_source('e', 'changes');
SELECT stream.create_source('e', 'changes', options => '{"table": "nowhere"}');
SELECT stream.create_source('e', 'changes', options => '{"table": "orders", "snapshot": "sometimes"}');
SELECT stream.create_source('e', 'changes', options => '{"table": "orders", "slot": "s"}');
SELECT stream.create_source('e', 'changes', 'op int, id int', '{"table": "orders"}');
SELECT stream.create_source('e', 'changes', 'op text, id bigint', '{"table": "orders"}');
SELECT stream.create_source('e', 'changes', 'op text, no int', '{"table": "orders"}');
CREATE TABLE no_key (op text);
SELECT stream.create_source('e', 'changes', options => '{"table": "no_key"}');
SELECT stream.create_source('e', 'changes', options => '{"table": "no_key", "op_column": "what"}');
CREATE UNLOGGED TABLE unlogged (id int PRIMARY KEY);
SELECT stream.create_source('e', 'changes', options => '{"table": "unlogged"}');
SELECT stream.create_source('e', 'changes', options => '{"table": "slots"}');
SELECT stream.create_source('e', 'changes', options => '{"table": "pg_catalog.pg_class"}');
CREATE ROLE source_changes_user LOGIN;
GRANT CREATE ON SCHEMA public TO source_changes_user;
GRANT SELECT ON orders TO source_changes_user;
SET ROLE source_changes_user;
SELECT stream.create_source('e', 'changes', options => '{"table": "orders"}');
RESET ROLE;
GRANT USAGE ON FOREIGN SERVER stream_changes TO source_changes_user;
SET ROLE source_changes_user;
SELECT stream.create_source('e', 'changes', options => '{"table": "orders"}');
RESET ROLE;
ALTER TABLE orders ENABLE ROW LEVEL SECURITY;
SET SESSION AUTHORIZATION source_changes_user;
SELECT stream.create_query('e', 'SELECT id FROM e', stream.to_log(), start => false);
RESET SESSION AUTHORIZATION;
ALTER TABLE orders DISABLE ROW LEVEL SECURITY;
SET SESSION AUTHORIZATION source_changes_user;
SELECT stream.create_query('e', 'SELECT id FROM e', stream.to_memory(), start => false);
CALL stream.process_all_available('e');
RESET SESSION AUTHORIZATION;
ALTER ROLE source_changes_user REPLICATION;
SET SESSION AUTHORIZATION source_changes_user;
CALL stream.process_all_available('e');
SELECT count(*) FROM stream.memory('e');
RESET SESSION AUTHORIZATION;
-- rights that go while the query is there
INSERT INTO orders VALUES (998, 'secret', 0);
REVOKE SELECT ON orders FROM source_changes_user;
SET SESSION AUTHORIZATION source_changes_user;
CALL stream.process_all_available('e');
RESET SESSION AUTHORIZATION;
GRANT SELECT (id) ON orders TO source_changes_user;
SET SESSION AUTHORIZATION source_changes_user;
CALL stream.process_all_available('e');
RESET SESSION AUTHORIZATION;
GRANT SELECT (item, price) ON orders TO source_changes_user;
ALTER TABLE orders ENABLE ROW LEVEL SECURITY;
SET SESSION AUTHORIZATION source_changes_user;
CALL stream.process_all_available('e');
RESET SESSION AUTHORIZATION;
ALTER TABLE orders DISABLE ROW LEVEL SECURITY;
SET SESSION AUTHORIZATION source_changes_user;
CALL stream.process_all_available('e');
SELECT * FROM stream.memory('e') AS row WHERE row->>'id' = '998';
SELECT stream.drop_query('e');
RESET SESSION AUTHORIZATION;

-- rows that were there come as they are, whatever settings the query has
CREATE TABLE exact (id text PRIMARY KEY, f float8, at timestamptz, span interval);
ALTER TABLE exact REPLICA IDENTITY FULL;
ALTER TABLE exact ALTER id SET STORAGE EXTERNAL, SET (toast_tuple_target = 128);
INSERT INTO exact VALUES ('a', 0.1::float8 + 0.2, '2026-03-29 01:30:00+00', '1 mon -1 days -00:00:01');
SELECT stream.create_source('exact_change', 'changes', options => '{"table": "exact"}');
SET extra_float_digits = -10;
SET DateStyle = 'SQL, DMY';
SET TimeZone = 'Asia/Kolkata';
SET IntervalStyle = 'sql_standard';
SELECT stream.create_query('exact', 'SELECT op, id, f, at, span FROM exact_change', stream.to_table('exact_out', '{"batch_id_column": null}'), start => false);
RESET extra_float_digits;
RESET DateStyle;
RESET TimeZone;
RESET IntervalStyle;
CALL stream.process_all_available('exact');
SELECT * FROM exact_out;
SELECT count(*) FROM exact JOIN exact_out USING (id, f, at, span);
-- a key that is stored out of line, was not touched, and is gone by the time its change is read
INSERT INTO exact SELECT string_agg(md5(i::text), ''), 1 FROM generate_series(1, 80) i;
CALL stream.process_all_available('exact');
UPDATE exact SET f = 2 WHERE f = 1;
DELETE FROM exact WHERE f = 2;
VACUUM exact;
TRUNCATE exact_out;
CALL stream.process_all_available('exact');
SELECT op, length(id), f FROM exact_out;
SELECT stream.drop_query('exact'), stream.drop_source('exact_change');
DROP TABLE exact, exact_out;

-- a slot that somebody dropped
SELECT pg_drop_replication_slot(slot) FROM stream.change_slot;
INSERT INTO orders VALUES (999, 'lost', 0);
\set VERBOSITY terse
CALL stream.process_all_available('q');
\set VERBOSITY default
SELECT stream.drop_query('q');
DROP TABLE orders;
SELECT stream.drop_source('change'), stream.drop_source('e');
DROP OWNED BY source_changes_user;
DROP ROLE source_changes_user;

-- the extension takes its slots along
SELECT stream.create_query('last', 'SELECT what FROM b_change', stream.to_table('last_out'), start => false);
CALL stream.process_all_available('last');
TABLE our_slots;
-- changes that do not fit into work_mem wait on disk
CREATE TABLE wide (id int PRIMARY KEY, v text);
INSERT INTO wide SELECT i, repeat('y', 100) FROM generate_series(1, 3000) i;
SELECT stream.create_source('wide_change', 'changes', options => '{"table": "wide"}');
SELECT stream.create_query('w', 'SELECT op, id, length(v) AS n FROM wide_change', stream.to_table('wide_out'), start => false, options => '{"max_rows_per_batch": 2500}');
SET work_mem = '64kB';
CALL stream.process_all_available('w');
UPDATE wide SET v = repeat('z', 200);
CALL stream.process_all_available('w');
RESET work_mem;
SELECT op, count(*), sum(n) FROM wide_out GROUP BY op ORDER BY op;
SELECT stream.drop_query('w');
BEGIN; DROP EXTENSION stream_ext CASCADE; ROLLBACK;
TABLE our_slots;
SET client_min_messages = warning;
DROP EXTENSION stream_ext CASCADE;
TABLE our_slots;
