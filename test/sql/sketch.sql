-- Aggregates of other extensions just work when their states can be stored, or their inputs kept: HyperLogLog (hll) and t-digest (tdigest) sketches over
-- restarts, in both state providers, in windows and sessions, alone and joined to sketches that are there already.
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION hll;
CREATE EXTENSION tdigest;
CREATE SCHEMA sketch;
SET search_path = sketch, public;
CREATE TABLE visit_t (id int, page text, visitor int, ms float8, ts timestamptz);
SELECT stream.create_source('visit', 'table', options => '{"table": "visit_t"}', event_time => 'ts', watermark_delay => '10 seconds');
CREATE FUNCTION add_visits(first int, last int) RETURNS void LANGUAGE sql
BEGIN ATOMIC
    INSERT INTO visit_t
    SELECT i, 'p' || i % 3, CASE WHEN i % 11 > 0 THEN i * 7919 % 500 END, i * 31 % 997, '2030-01-01'::timestamptz + i * interval '0.1 seconds'
    FROM generate_series(first, last) i;
END;
-- What came out, and what the same query by hand over all rows says.
CREATE FUNCTION differences(query text, target regclass, columns text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    answer bigint;
BEGIN
    EXECUTE format('WITH a AS (SELECT %1$s FROM (%2$s) q), b AS (SELECT %1$s FROM %3$s) SELECT count(*) FROM ((TABLE a EXCEPT ALL TABLE b) UNION ALL (TABLE b EXCEPT ALL TABLE a)) d',
                   columns, query, target) INTO answer;
    RETURN answer;
END $$;

CREATE TABLE question (name text PRIMARY KEY, mode text, query text, columns text);
INSERT INTO question VALUES
('distinct_visitors', 'update', 'SELECT page, hll_add_agg(hll_hash_integer(visitor)) AS sketch, # hll_add_agg(hll_hash_integer(visitor)) AS estimate,
    hll_cardinality(hll_add_agg(hll_hash_integer(visitor), 12)) AS finer, count(DISTINCT visitor) AS exact FROM visit GROUP BY page', 'page, sketch::text, estimate, finer, exact'),
('united', 'update', 'SELECT page, hll_cardinality(hll_union_agg(s)) AS estimate, hll_union_agg(s) AS sketch FROM
    (SELECT page, hll_add(hll_empty(), hll_hash_integer(visitor)) AS s FROM visit) x GROUP BY page', 'page, estimate, sketch::text'),
('by_window', 'append', 'SELECT stream.tumble(ts, ''5 seconds'') AS w, # hll_add_agg(hll_hash_integer(visitor)) AS estimate, tdigest_percentile(ms, 100, 0.5) AS median
    FROM visit GROUP BY w', 'w, estimate, median'),
('by_hop', 'update', 'SELECT stream.hop(ts, ''4 seconds'', ''2 seconds'') AS w, # hll_add_agg(hll_hash_integer(visitor)) AS estimate FROM visit GROUP BY w', 'w, estimate'),
('percentiles', 'update', 'SELECT page, tdigest_percentile(ms, 100, 0.95) AS p95, tdigest_percentile(ms, 100, ARRAY[0.5, 0.99]) AS two, tdigest(ms, 50) AS digest, tdigest_count(tdigest(ms, 50)) AS n
    FROM visit GROUP BY page', 'page, n'),
('whole', 'complete', 'SELECT hll_cardinality(hll_union_agg(sketch)) AS visitors FROM (SELECT hll_add(hll_empty(), hll_hash_integer(visitor)) AS sketch FROM visit) s', 'visitors');
CREATE TABLE provider (provider text);
INSERT INTO provider VALUES ('memory'), ('table');
SELECT stream.create_query(name || '_' || provider, query, stream.to_table('got_' || name || '_' || provider), mode, options => jsonb_build_object('state_provider', provider),
    start => false) > 0 AS created FROM question, provider ORDER BY name, provider;
CREATE PROCEDURE run_all() LANGUAGE plpgsql AS $$
DECLARE q text;
BEGIN
    FOR q IN SELECT name FROM stream.queries ORDER BY name LOOP
        CALL stream.process_all_available(q);
    END LOOP;
END $$;
CREATE VIEW verdict AS
    SELECT name, provider, differences(query, ('got_' || name || '_' || provider)::regclass, columns) AS differences FROM question, provider WHERE mode <> 'append';
SELECT add_visits(1, 300);
CALL run_all();
SELECT * FROM verdict ORDER BY name, provider;
-- Restarts: the sketches are read back and grow on.
\c -
SET search_path = sketch, public;
SELECT add_visits(301, 310);
CALL run_all();
SELECT add_visits(311, 700);
CALL run_all();
\c -
SET search_path = sketch, public;
SELECT add_visits(701, 2000);
CALL run_all();
SELECT * FROM verdict ORDER BY name, provider;
-- A t-digest is compacted whenever it is looked at or stored: another one than by hand, as near to the truth.
SELECT page, provider, abs(g.p95 - v.p95) < 20 AS near, abs(g.two[2] - v.two[2]) < 20 AS both_near, 
    abs((SELECT tdigest_percentile(d, 0.5) FROM (SELECT g.digest AS d) x) - v.two[1]) < 20 AS digest_near
FROM (SELECT 'memory' AS provider, * FROM got_percentiles_memory UNION ALL SELECT 'table', * FROM got_percentiles_table) g
JOIN (SELECT page, percentile_cont(0.95) WITHIN GROUP (ORDER BY ms) AS p95, percentile_cont(ARRAY[0.5, 0.99]) WITHIN GROUP (ORDER BY ms) AS two FROM visit GROUP BY page) v USING (page)
ORDER BY 1, 2;
-- Close the windows: each came out once, as it is by hand.
INSERT INTO visit_t VALUES (0, 'end', NULL, NULL, '2031-01-01');
CALL run_all();
SELECT name, provider, differences(query, ('got_' || name || '_' || provider)::regclass, columns) AS only_the_last_window FROM question, provider WHERE mode = 'append' ORDER BY 1, 2;
SELECT page, estimate, exact, abs(estimate - exact) < exact * 0.1 + 1 AS near FROM got_distinct_visitors_table ORDER BY page;
-- The sketches are values like any others: joined by hand from what the query keeps up to date.
SELECT round(hll_cardinality(hll_union_agg(sketch))) AS all_pages FROM got_distinct_visitors_memory;
-- Sessions merge sketches: HyperLogLog's exactly, t-digests nearly.
SELECT stream.create_query('sessions_' || provider, $$ SELECT page, stream.session(ts, '1 second') AS s, # hll_add_agg(hll_hash_integer(visitor)) AS estimate, tdigest_percentile(ms, 100, 0.5) AS median
    FROM visit GROUP BY 1, 2 $$, stream.to_table('got_sessions_' || provider), 'update', options => jsonb_build_object('state_provider', provider, 'max_rows_per_batch', 300), start => false) > 0 AS created FROM provider;
CALL run_all();
SELECT provider, differences('SELECT page, # hll_add_agg(hll_hash_integer(visitor)) AS estimate FROM visit GROUP BY page',
    ('got_sessions_' || provider)::regclass, 'page, estimate') AS differences FROM provider ORDER BY 1;
SELECT page, abs(g.median - v.median) < 20 AS near FROM got_sessions_table g JOIN (SELECT page, percentile_cont(0.5) WITHIN GROUP (ORDER BY ms) AS median FROM visit GROUP BY page HAVING count(ms) > 0) v USING (page)
    ORDER BY page;
SELECT stream.drop_query(name) FROM stream.queries ORDER BY name;
