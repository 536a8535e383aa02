-- A stage has a plan per size of what it reads: small batches look static rows up by an index, big ones read the table once.
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE SCHEMA size;
SET search_path = size;
CREATE TABLE card_t (id int, customer int);
SELECT stream.create_source('card', 'table', options => '{"table": "card_t"}');
CREATE TABLE customer (id int PRIMARY KEY, name text);
INSERT INTO customer SELECT i, 'customer ' || i FROM generate_series(1, 50000) i;
VACUUM ANALYZE customer;
SELECT stream.create_query('named', 'SELECT c.id, d.name FROM card c JOIN customer d ON d.id = c.customer', stream.to_table('named'), start => false) > 0 AS created;
SELECT regexp_replace(l, '\(.*\)', '(…)') AS line FROM stream.explain_query('named') l;
-- How often the table was looked at since the last time: by its index, as a whole.
CREATE TABLE seen (idx bigint, seq bigint);
INSERT INTO seen VALUES (0, 0);
CREATE FUNCTION looks(OUT by_index bigint, OUT whole bigint) LANGUAGE plpgsql AS $$
DECLARE
    index_scans bigint := pg_stat_get_numscans('customer_pkey'::regclass);
    table_scans bigint := pg_stat_get_numscans('customer'::regclass);
BEGIN
    SELECT index_scans - s.idx, table_scans - s.seq INTO by_index, whole FROM seen s;
    UPDATE seen s SET idx = index_scans, seq = table_scans;
END $$;
CREATE PROCEDURE add_rows(n int) LANGUAGE sql AS $$ INSERT INTO card_t SELECT i, i FROM generate_series(1, n) i $$;
SELECT pg_stat_force_next_flush();
SELECT looks() IS NOT NULL AS noted;
-- Nobody knows how much the first batch will read; then each is taken to be as big as the one before.
SELECT stream.alter_query('named', options => '{"max_rows_per_batch": 5}');
CALL add_rows(20);
CALL stream.process_all_available('named');
SELECT pg_stat_force_next_flush();
SELECT * FROM looks();
SELECT stream.alter_query('named', options => '{"max_rows_per_batch": 20000}');
CALL add_rows(60000);
CALL stream.process_all_available('named');
SELECT pg_stat_force_next_flush();
SELECT * FROM looks();
SELECT count(*), count(DISTINCT batch_id) AS batches FROM named;
-- What an operator hands on is known.
SELECT stream.create_query('counted', 'SELECT x.customer, d.name, n FROM (SELECT customer, count(*) AS n FROM card GROUP BY customer) x JOIN customer d ON d.id = x.customer',
    stream.to_table('counted'), 'update', start => false) > 0 AS created;
CALL stream.process_all_available('counted');
SELECT pg_stat_force_next_flush();
SELECT * FROM looks();
CALL add_rows(7);
CALL stream.process_all_available('counted');
SELECT pg_stat_force_next_flush();
SELECT * FROM looks();
SELECT count(*), sum(n) FROM counted;
-- When what they depend on changes, plans of all sizes are made again.
SELECT stream.alter_query('named', options => '{"max_rows_per_batch": 5}');
CREATE FUNCTION drop_index() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN ALTER TABLE size.customer DROP CONSTRAINT IF EXISTS customer_pkey; RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER drop_index AFTER INSERT ON named DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION drop_index();
SELECT pg_get_indexdef(indexrelid) FROM pg_index WHERE indrelid = 'customer'::regclass;
CALL add_rows(20);
CALL stream.process_all_available('named');
SELECT count(*), count(DISTINCT batch_id) AS batches FROM named;
SELECT count(*) AS indexes FROM pg_index WHERE indrelid = 'customer'::regclass;
SELECT stream.drop_query('named'), stream.drop_query('counted');
