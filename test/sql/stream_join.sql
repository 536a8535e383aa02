-- Joins of streams, whatever their shape: over many batches, out of order, they give what the plain SELECT gives over all rows.
CREATE SCHEMA stream_join;
SET search_path = stream_join;
SET client_min_messages = warning; -- joins without a time bound say that they keep every row
\set VERBOSITY terse
CREATE TABLE a_t (id int, k int, v text, ts timestamptz);
CREATE TABLE b_t (id int, k bigint, v text, ts timestamptz);
CREATE TABLE c_t (id int, k int, v text, ts timestamp);
SELECT stream.create_source('a', 'table', options => '{"table": "a_t"}', event_time => 'ts', watermark_delay => '20 s');
SELECT stream.create_source('b', 'table', options => '{"table": "b_t"}', event_time => 'ts', watermark_delay => '20 s');
SELECT stream.create_source('c', 'table', options => '{"table": "c_t"}', event_time => 'ts', watermark_delay => '20 s');
CREATE TABLE dim (k int PRIMARY KEY, name text);
INSERT INTO dim SELECT i, 'n' || i FROM generate_series(0, 6) i;

CREATE TABLE query (n int GENERATED ALWAYS AS IDENTITY, q text);
-- Inner and semi-joins: tables and expressions on both sides, three streams, FROM lists, conditions in ON and WHERE.
INSERT INTO query (q) VALUES
    ('SELECT a.id, b.id AS bid FROM a JOIN b ON a.k = b.k'),
    ('SELECT a.id, b.id AS bid, c.id AS cid FROM a JOIN b ON a.k = b.k JOIN c ON c.k = a.k AND c.v = b.v'),
    ('SELECT a.id, b.id AS bid, c.id AS cid FROM a, b, c WHERE a.k = b.k AND c.k = a.k AND a.v > ''b'' AND c.id % 2 = 0'),
    ('SELECT a.id, b.id AS bid, d.name FROM a JOIN dim d ON d.k = a.k JOIN b ON d.k = b.k WHERE b.v <> ''a'''),
    ('SELECT a.id, b.id AS bid, d.name FROM a JOIN b USING (k) LEFT JOIN dim d ON d.k = a.k AND d.name = b.v'),
    ('SELECT * FROM (SELECT id, k FROM a WHERE v = ''a'') x JOIN (SELECT id AS bid, k AS bk, upper(v) AS u FROM b) y ON x.k = y.bk'),
    ('SELECT id, k FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.k = a.k AND b.v = a.v AND a.ts BETWEEN b.ts - interval ''9 day'' AND b.ts + interval ''9 day'')'),
    ('SELECT id, k FROM a WHERE (k, v) IN (SELECT k, v FROM b WHERE b.id % 3 = 0 AND a.ts >= b.ts - interval ''9 day'') AND id > 2'),
    ('SELECT id, k FROM a WHERE k IN (SELECT k FROM b WHERE a.ts >= b.ts - interval ''9 day'') AND EXISTS (SELECT FROM c, dim d WHERE c.k = a.k AND d.k = c.k AND a.ts >= c.ts AT TIME ZONE ''UTC'' - interval ''9 day'')'),
    ('SELECT a.id, (SELECT d.name FROM dim d WHERE d.k = b.k) AS nm, b.v || a.v AS vv FROM a JOIN b ON a.k = b.k AND a.id < b.id'),
    ('SELECT a.id, x.n FROM a JOIN b ON a.k = b.k, LATERAL (SELECT count(*) AS n FROM dim d WHERE d.k <= a.k AND d.k >= b.id % 3) x'),
    ('SELECT x.id, y.id AS yid FROM a x JOIN a y ON x.k = y.k AND x.v < y.v'),
    ('SELECT a.id, b.id AS bid FROM a JOIN b ON a.k = b.k AND a.v = b.v WHERE a.id + b.id > 10 AND random() >= 0'),
    ('SELECT a AS arow, b.id AS bid FROM a JOIN b ON a.k = b.k'),
    ('SELECT k, id, bid FROM (SELECT a.id, b.id AS bid, a.k FROM a JOIN b ON a.k = b.k) j JOIN dim USING (k) UNION ALL SELECT id, k, 1 FROM c WHERE id > 0'),
    ('SELECT DISTINCT a.v, b.v AS bv FROM a JOIN b ON a.k = b.k');
-- Outer joins with every kind of bound, chains, aggregates above and below.
INSERT INTO query (q) VALUES
    ('SELECT a.id, b.id AS bid FROM a LEFT JOIN b ON a.k = b.k AND b.ts BETWEEN a.ts - interval ''5 s'' AND a.ts + interval ''7 s'''),
    ('SELECT a.id, b.id AS bid FROM a RIGHT JOIN b ON a.k = b.k AND b.ts > a.ts AND a.ts + interval ''7 s'' >= b.ts'),
    ('SELECT a.id, b.id AS bid FROM a FULL JOIN b ON a.k = b.k AND a.v > ''a'' AND b.v > ''b'' AND b.ts < a.ts + interval ''10 s'' AND b.ts + interval ''3 s'' > a.ts'),
    ('SELECT a.id, b.id AS bid FROM a LEFT JOIN b ON a.k = b.k AND stream.tumble(a.ts, ''10 s'') = stream.tumble(b.ts, ''10 s'') WHERE a.v <> ''b'''),
    ('SELECT a.id, b.id AS bid FROM a LEFT JOIN b ON a.k = b.k AND date_trunc(''minute'', a.ts) = date_trunc(''minute'', b.ts) AND b.id > a.id'),
    ('SELECT a.id, c.id AS cid FROM a LEFT JOIN c ON a.k = c.k AND c.ts BETWEEN (a.ts AT TIME ZONE ''UTC'') - interval ''5 s'' AND (a.ts AT TIME ZONE ''UTC'') + interval ''7 s'''),
    ('SELECT a.id, b.id AS bid, c.id AS cid FROM (SELECT id, k, ts FROM a) a LEFT JOIN b ON a.k = b.k AND b.ts BETWEEN a.ts AND a.ts + interval ''7 s'' LEFT JOIN (SELECT id, k, ts::timestamptz AS cts, ts FROM c) c ON c.k = a.k AND c.ts - interval ''4 s'' <= a.ts AT TIME ZONE ''UTC'' AND c.ts >= a.ts AT TIME ZONE ''UTC'''),
    ('SELECT stream.tumble(a.ts, ''10 s'') AS w, count(*) AS n, count(b.id) AS m FROM a LEFT JOIN b ON a.k = b.k AND b.ts BETWEEN a.ts - interval ''5 s'' AND a.ts + interval ''7 s'' GROUP BY 1'),
    ('SELECT stream.tumble(b.ts, ''10 s'') AS w, count(*) AS n FROM a JOIN b ON a.k = b.k AND b.ts BETWEEN a.ts - interval ''5 s'' AND a.ts + interval ''70 s'' GROUP BY 1'),
    ('SELECT w, count(*) AS n, sum(bid) AS s FROM (SELECT a.w, b.id AS bid FROM (SELECT k, stream.tumble(ts, ''10 s'') AS w FROM a) a JOIN (SELECT id, k, stream.tumble(ts, ''10 s'') AS w FROM b) b ON a.k = b.k AND a.w = b.w) x GROUP BY w'),
    ('SELECT date_trunc(''minute'', ts) AS m, count(*) AS n, count(bid) AS c FROM (SELECT a.ts, b.id AS bid FROM (SELECT k, ts, stream.tumble(ts, ''10 s'') AS w FROM a) a LEFT JOIN (SELECT id, k, stream.tumble(ts, ''10 s'') AS w FROM b) b ON a.k = b.k AND a.w = b.w) x GROUP BY 1'),
    ('SELECT w, count(*) AS n, sum(m) AS s FROM (SELECT stream.tumble(ts, ''10 s'') AS w, k, count(*) AS m FROM a GROUP BY 1, 2) x JOIN (SELECT stream.tumble(ts, ''10 s'') AS w, k, count(*) AS l FROM b GROUP BY 1, 2) y USING (w, k) GROUP BY w'),
    ('SELECT x.w, x.k, m, l FROM (SELECT stream.tumble(ts, ''10 s'') AS w, k, count(*) AS m FROM a GROUP BY 1, 2) x LEFT JOIN (SELECT stream.tumble(ts, ''10 s'') AS w, k, count(*) AS l FROM b GROUP BY 1, 2) y ON x.w = y.w AND x.k = y.k');

DO $$
DECLARE
    r record;
BEGIN
    FOR r IN SELECT * FROM query ORDER BY n LOOP
        PERFORM stream.create_query('j' || r.n, r.q, stream.to_table('out' || r.n, '{"batch_id_column": null}'), start => false);
    END LOOP;
END $$;

-- x rows per source within 18 seconds from t: never later than the delay allows
CREATE PROCEDURE fill(t int, x int) LANGUAGE plpgsql AS $$
DECLARE
    s text;
BEGIN
    FOREACH s IN ARRAY ARRAY['a_t', 'b_t', 'c_t'] LOOP
        EXECUTE format('INSERT INTO %I SELECT (random() * 1000)::int, nullif((random() * 6)::int, 6), chr(97 + (random() * 3)::int),
                        timestamp ''2026-01-01'' + (%s + random() * 18) * interval ''1 s'' FROM generate_series(1, %s)', s, t, x);
    END LOOP;
END $$;
SELECT setseed(0.7);
CREATE TABLE step (n int GENERATED ALWAYS AS IDENTITY, command text);
INSERT INTO step (command)
    SELECT s FROM generate_series(1, 12) g, LATERAL (SELECT 0 AS n, format('CALL fill(%s, %s)', g * 11, g % 4 * 3) AS s
        UNION ALL SELECT n, format('CALL stream.process_all_available(%L)', 'j' || n) FROM query ORDER BY n) x;
\set ECHO errors
SELECT command FROM step ORDER BY n \gexec
-- A row far in the future closes everything before it.
INSERT INTO a_t VALUES (-1, -1, 'z', '2027-01-01');
INSERT INTO b_t VALUES (-1, -2, 'z', '2027-01-01');
INSERT INTO c_t VALUES (-1, -3, 'z', '2027-01-01');
SELECT format('CALL stream.process_all_available(%L)', 'j' || n) FROM query ORDER BY n \gexec
\set ECHO all
DELETE FROM a_t WHERE id = -1;
DELETE FROM b_t WHERE id = -1;
DELETE FROM c_t WHERE id = -1;

-- Per query: rows the stream lacks, rows it has too much, late rows; and whether there was anything to compare.
CREATE FUNCTION compare() RETURNS TABLE (n int, missing bigint, extra bigint, late bigint, compared boolean) LANGUAGE plpgsql AS $$
DECLARE
    r record;
BEGIN
    FOR r IN SELECT * FROM query q ORDER BY q.n LOOP
        n := r.n;
        EXECUTE format('SELECT count(*) FROM (SELECT x::text FROM (%s) x EXCEPT ALL SELECT y::text FROM out%s y) z', r.q, n) INTO missing;
        EXECUTE format('SELECT count(*) FROM (SELECT y::text FROM out%s y EXCEPT ALL SELECT x::text FROM (%s) x) z', n, r.q) INTO extra;
        EXECUTE format('SELECT count(*) > 0 FROM out%s', n) INTO compared;
        SELECT q.rows_late INTO late FROM stream.queries q WHERE q.name = 'j' || r.n;
        RETURN NEXT;
    END LOOP;
END $$;
SELECT * FROM compare();
SELECT count(stream.drop_query('j' || n)) FROM query;
