-- Rows that replace others by key in a plain table are looked up, updated, or inserted many at a time; nobody can tell it from ON CONFLICT DO UPDATE, which a twin
-- of each target with a trigger that does nothing still gets. Unlogged, where it is the sink: logical decoding, for which these tests' server writes, is one of the
-- exceptions.
CREATE SCHEMA sink_replace;
SET search_path = sink_replace;
CREATE TABLE input_t (id int, k text, v int);
SELECT stream.create_source('input', 'table', options => '{"table": "input_t"}');
CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
-- Who writes?
CREATE FUNCTION writes(query text) RETURNS text
    LANGUAGE sql AS $$ SELECT CASE WHEN bool_or(l LIKE '%Insert on%') THEN 'the executor' ELSE 'the sink' END FROM stream.explain_query(query) l $$;
CREATE FUNCTION make(target text, query text DEFAULT 'SELECT k, sum(v) AS v, count(*) AS n FROM input GROUP BY k', options jsonb DEFAULT '{}') RETURNS text LANGUAGE sql AS
    $$ SELECT writes(target) FROM stream.create_query(target, query, stream.to_table('sink_replace.' || target, options), 'update', start => false) $$;
CREATE FUNCTION make_twins(target text, columns text, query text, options jsonb DEFAULT '{}') RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('CREATE UNLOGGED TABLE %1$s (%2$s); CREATE TABLE %1$s_twin (%2$s)', target, columns);
    EXECUTE format('CREATE TRIGGER t AFTER INSERT OR UPDATE ON %s_twin FOR EACH ROW EXECUTE FUNCTION nothing()', target);
    RETURN make(target, query, options) || ', ' || make(target || '_twin', query, options);
END $$;
CREATE PROCEDURE run(target text) LANGUAGE plpgsql AS $$
BEGIN
    CALL stream.process_all_available(target);
    CALL stream.process_all_available(target || '_twin');
END $$;
CREATE FUNCTION same(target text, OUT rows bigint, OUT different bigint) LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('SELECT (SELECT count(*) FROM %1$s), count(*) FROM (SELECT a_row::text AS a FROM %1$s a_row) x FULL JOIN (SELECT b_row::text AS b FROM %1$s_twin b_row) y ON a = b
        WHERE a IS NULL OR b IS NULL', target) INTO rows, different;
END $$;

-- New and known keys in one batch, more than are collected at once, long values, NULL keys, columns by name and dropped, defaults, columns that are not the query's, checks, casts,
-- further indexes that change with the row and that do not.
SELECT make_twins('full_house', 'gone int, n int CHECK (n > 0), k varchar(20), note text, mine text DEFAULT ''new'', j numeric, since date DEFAULT ''2026-03-01'', v bigint,
    batch_id bigint, long text, UNIQUE NULLS NOT DISTINCT (j, k)', 'SELECT k, v % 2 AS j, count(*) AS n, sum(v) AS v, repeat(max(k), CASE WHEN max(id) % 300 = 0 THEN 50000 ELSE 1 END) AS long FROM input GROUP BY k, j');
ALTER TABLE full_house DROP COLUMN gone, ADD COLUMN late int DEFAULT 7;
ALTER TABLE full_house_twin DROP COLUMN gone, ADD COLUMN late int DEFAULT 7;
CREATE INDEX full_house_v ON full_house (v);
CREATE INDEX full_house_part ON full_house (lower(k)) WHERE n > 1;
INSERT INTO full_house (k, j, n, v, mine) VALUES ('k7', 1, 1, 1, 'mine'), (NULL, 1, 1, 1, 'mine too'), ('alone', NULL, 1, 1, 'stays');
INSERT INTO full_house_twin SELECT * FROM full_house;
INSERT INTO input_t SELECT i, nullif('k' || i % 2003, 'k1001'), i FROM generate_series(1, 3000) i;
INSERT INTO input_t VALUES (5, NULL, NULL), (6, 'n', NULL), (7, NULL, NULL);
CALL run('full_house');
SELECT * FROM same('full_house');
INSERT INTO input_t SELECT i, 'k' || i % 5003, i FROM generate_series(3001, 6000) i;
UPDATE full_house SET mine = 'changed' WHERE k = 'k8';
UPDATE full_house_twin SET mine = 'changed' WHERE k = 'k8';
CALL run('full_house');
SELECT * FROM same('full_house');
SELECT n, k, j, v, mine, since, late, batch_id, length(long) FROM full_house WHERE k IN ('k7', 'k8', 'alone') OR k IS NULL ORDER BY j, k;
SET enable_seqscan = off;
SELECT count(*), sum(v) FROM full_house WHERE v > 0;
SELECT count(*) FROM full_house WHERE lower(k) = 'k7' AND n > 1;
RESET enable_seqscan;
SELECT count(*), sum(v), count(*) FILTER (WHERE n > 1 AND lower(k) = 'k7') FROM full_house_twin;
SELECT query, batch_id, num_output_rows FROM stream.progress WHERE query LIKE 'full_house%' ORDER BY batch_id, query;

-- Keys that are equal and do not look so: the row keeps the key it has.
SELECT make_twins('alike', 'a numeric, b float8, c interval, d char(4), v int, batch_id bigint, UNIQUE NULLS NOT DISTINCT (d, c, b, a)',
    'SELECT k::numeric AS a, k::float8 * -v AS b, make_interval(hours => id) AS c, k || CASE WHEN v > 0 THEN '' '' ELSE '''' END AS d, v FROM input WHERE id IN (24, 48) AND k ~ ''^[.0-9]+$''', '{"key": ["a", "b", "c", "d"]}');
INSERT INTO alike VALUES (0.00, 0, '1 day', '0.0', 0), (NULL, NULL, NULL, NULL, NULL);
INSERT INTO alike_twin SELECT * FROM alike;
INSERT INTO input_t VALUES (24, '0.0', 1), (24, '0', 2), (48, '0', 3);
CALL run('alike');
SELECT * FROM same('alike');
INSERT INTO input_t VALUES (48, '0', -4), (24, '0.0', -5);
CALL run('alike');
SELECT * FROM same('alike');
SELECT * FROM alike ORDER BY v;

-- Two groups with one key for the target: an error, new or known, near or far apart.
SELECT make_twins('second', 'k varchar(10), day date, n bigint, batch_id bigint, UNIQUE NULLS NOT DISTINCT (k, day)', 'SELECT k, to_timestamp(v * 3600) AS day, count(*) AS n FROM input WHERE k ~ ''^s'' GROUP BY k, day');
\set VERBOSITY default
INSERT INTO input_t VALUES (1, 's', 1), (1, 's', 2);
CALL stream.process_all_available('second');
CALL stream.process_all_available('second_twin');
\set VERBOSITY terse
INSERT INTO second SELECT 's', '1970-01-01';
CALL stream.process_all_available('second');
INSERT INTO input_t SELECT 1, 's', i * 24 FROM generate_series(1, 3000) i;
CALL stream.process_all_available('second');
DELETE FROM input_t WHERE k = 's' AND v = 2;
CALL run('second');
SELECT * FROM same('second');

-- Checks: of the row that would be inserted, and of what becomes of the one that is there.
CREATE UNLOGGED TABLE checked (k text UNIQUE NOT NULL, v bigint, n bigint, most bigint DEFAULT 10, CHECK (v <= most));
INSERT INTO checked VALUES ('c1', 0, 0, 5), ('c2', 0, 0, 50);
SELECT make('checked', 'SELECT k, sum(v) AS v, count(*) AS n FROM input WHERE k ~ ''^c'' OR k IS NULL AND id = 99 GROUP BY k');
\set VERBOSITY default
INSERT INTO input_t VALUES (1, 'c1', 7);
CALL stream.process_all_available('checked');
UPDATE input_t SET k = 'c2', v = 20 WHERE k = 'c1';
CALL stream.process_all_available('checked');
UPDATE input_t SET k = 'c3' WHERE k = 'c2';
CALL stream.process_all_available('checked');
UPDATE input_t SET k = NULL, v = 1, id = 99 WHERE k = 'c3';
CALL stream.process_all_available('checked');
\set VERBOSITY terse
UPDATE input_t SET k = 'c2', v = 3 WHERE id = 99;
CALL stream.process_all_available('checked');
TABLE checked ORDER BY k;

-- For the executor: another index that may refuse a row, triggers, generated columns, partitions, policies, nothing to set, one row at most, what logical decoding would see.
CREATE UNLOGGED TABLE two_keys (k text UNIQUE NOT NULL, v bigint UNIQUE, n bigint);
CREATE UNLOGGED TABLE excluding (k text UNIQUE NOT NULL, v bigint, n bigint, EXCLUDE (v WITH =));
CREATE UNLOGGED TABLE with_trigger (k text UNIQUE NOT NULL, v bigint, n bigint);
CREATE FUNCTION shout() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.n := -NEW.n; RETURN NEW; END $$;
CREATE TRIGGER t BEFORE UPDATE ON with_trigger FOR EACH ROW EXECUTE FUNCTION shout();
CREATE UNLOGGED TABLE with_generated (k text UNIQUE NOT NULL, v bigint, n bigint, twice bigint GENERATED ALWAYS AS (n * 2) STORED);
CREATE TABLE with_partitions (k text UNIQUE NOT NULL, v bigint, n bigint) PARTITION BY HASH (k);
CREATE TABLE part_0 PARTITION OF with_partitions FOR VALUES WITH (MODULUS 2, REMAINDER 0);
CREATE TABLE part_1 PARTITION OF with_partitions FOR VALUES WITH (MODULUS 2, REMAINDER 1);
CREATE TABLE decoded (k text UNIQUE NOT NULL, v bigint, n bigint);
CREATE UNLOGGED TABLE only_key (k text UNIQUE NOT NULL);
CREATE UNLOGGED TABLE plain (k text PRIMARY KEY, v bigint, n bigint);
DELETE FROM input_t;
SELECT t, make(t) FROM unnest(ARRAY['two_keys', 'excluding', 'with_trigger', 'with_generated', 'with_partitions', 'decoded', 'plain']) t;
SELECT make('only_key', 'SELECT k FROM input GROUP BY k'), make('one_row', 'SELECT count(*) AS n FROM input');
INSERT INTO input_t VALUES (1, 'a', 1), (2, 'b', 2);
CREATE PROCEDURE run_all() LANGUAGE plpgsql AS $$
DECLARE q text;
BEGIN
    FOREACH q IN ARRAY ARRAY['excluding', 'with_trigger', 'with_generated', 'with_partitions', 'decoded', 'plain', 'only_key', 'one_row'] LOOP CALL stream.process_all_available(q); END LOOP;
END $$;
CALL stream.process_all_available('two_keys');
CALL run_all();
INSERT INTO input_t VALUES (3, 'b', 1), (4, 'c', 3), (5, 'd', 4);
\set VERBOSITY default
CALL stream.process_all_available('two_keys');
\set VERBOSITY terse
UPDATE input_t SET v = 5 WHERE k = 'c';
CALL stream.process_all_available('two_keys');
UPDATE input_t SET v = 8 WHERE k = 'c';
CALL run_all();
TABLE two_keys ORDER BY k;
SELECT k, n FROM with_trigger ORDER BY k;
SELECT k, twice FROM with_generated ORDER BY k;
SELECT * FROM with_partitions EXCEPT TABLE plain;
TABLE plain ORDER BY k;
TABLE only_key ORDER BY k;
SELECT n FROM one_row;

-- Who writes may change while the query lives.
CREATE TRIGGER t BEFORE UPDATE ON plain FOR EACH ROW EXECUTE FUNCTION shout();
INSERT INTO input_t VALUES (6, 'a', 1);
CALL stream.process_all_available('plain');
SELECT writes('plain');
DROP TRIGGER t ON plain;
CREATE UNIQUE INDEX other ON plain (v);
INSERT INTO input_t VALUES (6, 'b', 4), (7, 'e', 1);
CALL stream.process_all_available('plain');
SELECT writes('plain');
DROP INDEX other;
INSERT INTO input_t VALUES (6, 'b', 93);
CALL stream.process_all_available('plain');
SELECT writes('plain');
TABLE plain ORDER BY k;

-- The rights are asked for in every batch, and policies hold.
CREATE ROLE sink_replace_owner SUPERUSER LOGIN;
CREATE UNLOGGED TABLE granted (k text PRIMARY KEY, v bigint, n bigint);
SET SESSION AUTHORIZATION sink_replace_owner;
SELECT make('granted');
RESET SESSION AUTHORIZATION;
ALTER ROLE sink_replace_owner NOSUPERUSER;
GRANT USAGE ON SCHEMA sink_replace TO sink_replace_owner;
GRANT SELECT ON input_t, input TO sink_replace_owner;
GRANT INSERT ON granted TO sink_replace_owner;
SET SESSION AUTHORIZATION sink_replace_owner;
CALL stream.process_all_available('granted');
RESET SESSION AUTHORIZATION;
GRANT UPDATE, SELECT ON granted TO sink_replace_owner;
SET SESSION AUTHORIZATION sink_replace_owner;
CALL stream.process_all_available('granted');
RESET SESSION AUTHORIZATION;
SELECT count(*) FROM granted;
ALTER TABLE granted ENABLE ROW LEVEL SECURITY;
CREATE POLICY look ON granted FOR SELECT USING (true);
CREATE POLICY add ON granted FOR INSERT WITH CHECK (true);
CREATE POLICY change ON granted FOR UPDATE USING (k <> 'a');
INSERT INTO input_t VALUES (8, 'f', 1), (9, 'a', 1);
SET SESSION AUTHORIZATION sink_replace_owner;
SELECT writes('granted');
CALL stream.process_all_available('granted');
RESET SESSION AUTHORIZATION;
SELECT count(stream.drop_query(name)) FROM stream.queries;
DROP SCHEMA sink_replace CASCADE;
DROP ROLE sink_replace_owner;
