-- Operators hold rows back to fetch their state together: many rows, few, wide ones, by both providers; results and their order are what they are row by row.
CREATE SCHEMA state_far;
SET search_path = state_far;
SET client_min_messages = warning; -- joins without a time bound say that they keep every row
\set VERBOSITY terse
CREATE TABLE a_t (n int, k text, v text, ts timestamptz);
CREATE TABLE b_t (n int, k text, v text, ts timestamptz);
SELECT stream.create_source('a', 'table', options => '{"table": "a_t"}', event_time => 'ts', watermark_delay => '10 s');
SELECT stream.create_source('b', 'table', options => '{"table": "b_t"}', event_time => 'ts', watermark_delay => '10 s');

ALTER TABLE a_t ALTER v SET STORAGE EXTERNAL;

CREATE TABLE query (name text, provider text, mode text, q text);
INSERT INTO query SELECT name || '_' || provider, provider, mode, q FROM unnest(ARRAY['memory', 'table']) provider, (VALUES
    ('inner', 'append', 'SELECT a.n, b.n AS m, a.k, md5(a.v) AS v, md5(b.v) AS w FROM a JOIN b ON a.k = b.k AND b.ts BETWEEN a.ts - interval ''1 h'' AND a.ts + interval ''1 h'''),
    ('outer', 'append', 'SELECT a.n, b.n AS m, md5(a.v) AS v, md5(b.v) AS w FROM a FULL JOIN b ON a.k = b.k AND a.n > 20 AND b.ts BETWEEN a.ts - interval ''5 s'' AND a.ts + interval ''5 s'''),
    ('semi', 'append', 'SELECT n, k FROM a WHERE EXISTS (SELECT FROM b WHERE b.k = a.k AND b.n % 2 = 0 AND b.ts BETWEEN a.ts - interval ''1 h'' AND a.ts + interval ''1 h'')'),
    ('first', 'append', 'SELECT DISTINCT ON (k, n / 4) k, n / 4 AS g, md5(v) AS v FROM a'),
    ('groups', 'update', 'SELECT k, n / 4 AS g, count(*) AS c, string_agg(md5(v), '','') AS v FROM a WHERE ts >= ''2026-01-01'' AND n < 1000 GROUP BY k, n / 4')) x(name, mode, q);
SELECT stream.create_query(name, q, stream.to_table(name || '_out', '{"batch_id_column": null}'), mode, options => jsonb_build_object('state_provider', provider), start => false) > 0 AS ok FROM query;
-- serial numbers as rows arrive
CREATE FUNCTION wide(i int, width int) RETURNS text LANGUAGE sql AS $$ SELECT string_agg(md5(i || ' ' || j), '') FROM generate_series(1, width) j $$; -- stays wide
CREATE PROCEDURE fill(rows int, width int, late interval DEFAULT '0') LANGUAGE sql AS $$
    INSERT INTO a_t SELECT i, 'key ' || i % (rows / 2 + 1), wide(i, width), timestamptz '2026-01-01' - late + i * interval '1 ms' FROM generate_series(1, rows) i;
    INSERT INTO b_t SELECT i, 'key ' || i * 7 % (rows + 1), wide(i, width), timestamptz '2026-01-01' - late + i * interval '1 ms' FROM generate_series(1, rows) i;
$$;
CREATE TABLE step (n int GENERATED ALWAYS AS IDENTITY, command text);
INSERT INTO step (command) SELECT s FROM unnest(ARRAY['fill(2, 1)', 'fill(500, 1)', 'fill(7, 2000)', 'fill(65, 1)', 'fill(64, 1)', 'fill(1, 1)', 'fill(100, 200)', 'fill(10, 1, ''1 day'')']) WITH ORDINALITY f(call, o),
    LATERAL (SELECT 0, 'CALL ' || call AS s UNION ALL SELECT 1, format('CALL stream.process_all_available(%L)', name) FROM query ORDER BY 1) x ORDER BY o;
\set ECHO errors
SELECT command FROM step ORDER BY n \gexec
-- far in the future: closes everything
INSERT INTO a_t VALUES (1000, 'a', 'z', '2027-01-01');
INSERT INTO b_t VALUES (1000, 'b', 'z', '2027-01-01');
SELECT format('CALL stream.process_all_available(%L)', name) FROM query \gexec
\set ECHO all
SELECT DISTINCT rows_late, count(*) FROM stream.queries WHERE name IN (SELECT name FROM query) GROUP BY 1 ORDER BY 1;
-- Against the plain SELECT over what was not late.
DELETE FROM a_t WHERE n = 1000 OR ts < '2026-01-01';
DELETE FROM b_t WHERE n = 1000 OR ts < '2026-01-01';
CREATE FUNCTION compare() RETURNS TABLE (name text, missing bigint, extra bigint, got boolean) LANGUAGE plpgsql AS $$
DECLARE
    r record;
BEGIN
    FOR r IN SELECT * FROM query q WHERE q.name NOT LIKE 'first%' ORDER BY q.name LOOP
        name := r.name;
        EXECUTE format('SELECT count(*) FROM (SELECT x::text FROM (%s) x EXCEPT ALL SELECT y::text FROM %I y) z', r.q, name || '_out') INTO missing;
        EXECUTE format('SELECT count(*) FROM (SELECT y::text FROM %I y EXCEPT ALL SELECT x::text FROM (%s) x) z', name || '_out', r.q) INTO extra;
        EXECUTE format('SELECT count(*) > 500 FROM %I', name || '_out') INTO got;
        RETURN NEXT;
    END LOOP;
END $$;
SELECT * FROM compare();
SELECT count(*) = (SELECT count(DISTINCT (k, n / 4)) FROM a_t) AS same FROM first_memory_out WHERE k <> 'a';
-- In the order of arrival.
SELECT (SELECT string_agg(x::text, ',' ORDER BY ctid) FROM first_memory_out x) = (SELECT string_agg(x::text, ',' ORDER BY ctid) FROM first_table_out x) AS same;
SELECT count(stream.drop_query(name)) FROM query;

-- What lay out of line in the source is whole in the state.
DELETE FROM query WHERE name NOT LIKE 'inner%';
SELECT stream.create_query(name, q, stream.to_table(name || '_whole'), mode, options => jsonb_build_object('state_provider', provider), start => false) > 0 AS ok FROM query;
SELECT format('CALL stream.process_all_available(%L)', name) FROM query \gexec
INSERT INTO a_t SELECT i, 'whole', wide(i, 200), '2027-01-01' FROM generate_series(1, 3) i;
SELECT format('CALL stream.process_all_available(%L)', name) FROM query \gexec
DELETE FROM a_t;
VACUUM a_t;
INSERT INTO b_t SELECT i, 'whole', 'x', '2027-01-01' FROM generate_series(1, 2) i;
INSERT INTO b_t SELECT i, 'one ' || i, 'x', '2027-01-01' FROM generate_series(1, 300) i;
SELECT format('CALL stream.process_all_available(%L)', name) FROM query \gexec
INSERT INTO a_t SELECT i, 'one ' || i, 'x', '2027-01-01' FROM generate_series(1, 300) i;
SELECT format('CALL stream.process_all_available(%L)', name) FROM query \gexec
SELECT count(*), bool_and(v = md5(wide(n, 200))) AS whole FROM (TABLE inner_memory_whole UNION ALL TABLE inner_table_whole) x WHERE k = 'whole';
SELECT array_agg(n ORDER BY ctid) = ARRAY(SELECT generate_series(1, 300)) AS in_order FROM inner_memory_whole WHERE k LIKE 'one %';
SELECT array_agg(n ORDER BY ctid) = ARRAY(SELECT generate_series(1, 300)) AS in_order FROM inner_table_whole WHERE k LIKE 'one %';
SELECT count(stream.drop_query(name)) FROM query;
