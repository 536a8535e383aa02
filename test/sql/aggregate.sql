--
-- Aggregates over a stream end as the plain SELECT over the same rows does: whatever the aggregate, over restarts (a new session
-- reads the state back), and over batches that fail.
--
\set VERBOSITY terse
\set SHOW_CONTEXT never
CREATE SCHEMA agg;
SET search_path = agg;

CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy');
CREATE TYPE pair AS (x int, y text);
CREATE TABLE item_t (
    i int, k int, v int, big bigint, n numeric, f float8, t text, b boolean, j jsonb, m mood, p pair, r tstzrange, span interval);
SELECT stream.create_source('item', 'table', options => '{"table": "item_t"}');

-- Rows from..to, with NULLs, repeated values and groups that come and go.
CREATE FUNCTION add_items(first int, last int) RETURNS void LANGUAGE sql
BEGIN ATOMIC
    INSERT INTO item_t
    SELECT i, i % 5, CASE WHEN i % 7 > 0 THEN i * 13 % 101 END, i::bigint * 1000000007, (i % 11)::numeric / 3, i::float8 / 4,
           CASE WHEN i % 6 > 0 THEN 't' || i % 9 END, i % 4 = 0, jsonb_build_object('i', i), (enum_range(NULL::mood))[1 + i % 3],
           ROW(i % 3, 'y' || i % 2)::pair, tstzrange('2020-01-01'::timestamptz + i % 3 * '1 hour'::interval, '2020-01-02'), i * '1 hour'::interval
    FROM generate_series(first, last) i;
END;

-- How many rows of the target and of the query by hand differ. Groups see their rows in order of arrival; by hand only a sort below promises that.
CREATE FUNCTION differences(query text, target regclass) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    columns text := (SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum) FROM pg_attribute
                     WHERE attrelid = target AND attnum > 0 AND attname <> 'batch_id');
    answer bigint;
BEGIN
    EXECUTE format('WITH a AS (SELECT x::text FROM (SELECT %1$s FROM (%2$s) q) x), b AS (SELECT x::text FROM (SELECT %1$s FROM %3$s) x)
                    SELECT count(*) FROM ((TABLE a EXCEPT ALL TABLE b) UNION ALL (TABLE b EXCEPT ALL TABLE a)) d', columns,
                   replace(query, 'FROM item', 'FROM (SELECT * FROM item ORDER BY k, i) item'), target)
    INTO answer;
    RETURN answer;
END $$;

-- Aggregates of one's own: SQL, PL/pgSQL with an array as state, polymorphic, variadic, strict without initial value, with a final function of several arguments.
CREATE FUNCTION join_sql(text, text) RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT coalesce($1, '') || coalesce($2, '-') $$;
CREATE AGGREGATE join_text(text) (sfunc = join_sql, stype = text, initcond = '>');
CREATE FUNCTION collect_step(text[], text) RETURNS text[] LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN RETURN $1 || $2; END $$;
CREATE AGGREGATE collect_text(text) (sfunc = collect_step, stype = text[], initcond = '{}');
CREATE AGGREGATE collect_any(anycompatible) (sfunc = array_append, stype = anycompatiblearray, initcond = '{}');
CREATE AGGREGATE largest(int) (sfunc = int4larger, stype = int);
CREATE FUNCTION add_all(int, VARIADIC int[]) RETURNS int LANGUAGE sql IMMUTABLE AS $$ SELECT $1 + (SELECT coalesce(sum(x), 0)::int FROM unnest($2) x) $$;
CREATE AGGREGATE sum_all(VARIADIC int[]) (sfunc = add_all, stype = int, initcond = '0');
CREATE FUNCTION last_step(anyelement, anyelement) RETURNS anyelement LANGUAGE sql IMMUTABLE AS $$ SELECT $2 $$;
CREATE AGGREGATE last_value_of(anyelement) (sfunc = last_step, stype = anyelement);
CREATE FUNCTION weigh_step(pair, int, text) RETURNS pair LANGUAGE sql IMMUTABLE AS $$ SELECT ROW(coalesce($1.x, 0) + coalesce($2, 1), coalesce($1.y, '') || coalesce($3, '?'))::pair $$;
CREATE FUNCTION weigh_final(pair, int, text) RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT $1.x || ':' || length($1.y) $$;
CREATE AGGREGATE weigh(int, text) (sfunc = weigh_step, stype = pair, finalfunc = weigh_final, finalfunc_extra);

CREATE TABLE question (name text PRIMARY KEY, mode text, query text);
INSERT INTO question VALUES
('numbers', 'update', 'SELECT k, count(*), count(v) AS n_v, sum(v), sum(big) AS sum_big, sum(n) AS sum_n, sum(span) AS sum_span, avg(v), avg(big) AS avg_big, avg(n) AS avg_n,
    avg(span) AS avg_span, min(v), max(big), stddev(v), stddev(n) AS stddev_n, var_pop(n), variance(f), corr(f, v), regr_slope(f, v), sum(f::float4) AS f4,
    bool_and(b), bool_or(b), bit_or(v), bit_xor(v) FROM item GROUP BY k'),
('others', 'update', 'SELECT k, min(t), max(t), max(m) AS max_m, min(span) AS min_span, max(ARRAY[v, i]) AS arr, range_agg(r), every(b) FROM item GROUP BY k'),
('filters', 'update', 'SELECT k, count(*) FILTER (WHERE v > 50), sum(v) FILTER (WHERE b) AS s, sum(v) + count(*) AS mix, count(DISTINCT v) FILTER (WHERE b) AS d,
    array_agg(v ORDER BY i) FILTER (WHERE m = ''ok'') AS a, string_agg(t, '','') FILTER (WHERE false) AS nothing FROM item GROUP BY k'),
('sets', 'update', 'SELECT k, count(DISTINCT v), sum(DISTINCT v), sum(v) AS plain, avg(DISTINCT n), count(DISTINCT p) AS pairs, count(DISTINCT m) AS moods, count(DISTINCT t) AS texts,
    array_agg(DISTINCT t) AS a, array_agg(DISTINCT t ORDER BY t DESC NULLS LAST) AS b, string_agg(DISTINCT t, '','' ORDER BY t) AS c, join_text(DISTINCT t) AS own FROM item GROUP BY k'),
('lists', 'update', 'SELECT k, array_agg(v), array_agg(v ORDER BY v DESC NULLS LAST, t, i) AS ordered, array_agg(ARRAY[i, v]) AS two, array_agg(m) AS moods, array_agg(p) AS pairs,
    string_agg(t, '','') AS s, string_agg(t, '','' ORDER BY i DESC) AS sd, jsonb_agg(j ORDER BY v, i), jsonb_object_agg(i, v), json_agg(t)::text AS json,
    xmlagg(xmlelement(name a, v) ORDER BY i)::text AS xml FROM item GROUP BY k'),
('ordered_sets', 'update', 'SELECT k, percentile_cont(0.5) WITHIN GROUP (ORDER BY v), percentile_cont(ARRAY[0.1, 0.9]) WITHIN GROUP (ORDER BY f DESC) AS two,
    percentile_disc(0.9) WITHIN GROUP (ORDER BY t) AS text, mode() WITHIN GROUP (ORDER BY m), rank(40) WITHIN GROUP (ORDER BY v),
    percent_rank(40, ''t5'') WITHIN GROUP (ORDER BY v, t) FROM item GROUP BY k'),
('own', 'update', 'SELECT k, join_text(t), collect_text(t), collect_any(v), collect_any(m) AS moods, collect_any(p) AS pairs, largest(v), sum_all(v, i), sum_all(VARIADIC ARRAY[i, k]) AS variadic,
    last_value_of(t), last_value_of(v) AS last_v, weigh(v, t), largest(v ORDER BY t) AS ordered FROM item GROUP BY k'),
('keys', 'update', 'SELECT t, m, p, r, n, k > 2 AS big, count(*), sum(v) FROM item GROUP BY t, m, p, r, n, k > 2'),
('long_keys', 'update', 'SELECT repeat(t, 3000) AS long, j -> ''i'' = ''3'' AS three, count(*), array_agg(repeat(t, 1000)) AS longs FROM item GROUP BY 1, 2'),
('shared', 'update', 'SELECT k, sum(v), avg(v), avg(v) + sum(v) AS both, stddev(v), variance(v), var_samp(v) AS vs FROM item GROUP BY k HAVING count(*) > 1'),
('whole', 'complete', 'SELECT count(*), sum(v), array_agg(i ORDER BY i DESC) AS all_i, count(DISTINCT k) AS groups FROM item'),
('nothing', 'complete', 'SELECT count(*), sum(v), array_agg(v), count(DISTINCT v) AS d FROM item WHERE i < 0'),
('whole_groups', 'complete', 'SELECT k % 2 AS parity, count(*), avg(n) FROM item GROUP BY k % 2');

-- Whatever of the server's own keeps its state in a form of its own and can store it; which these are is for the version to say.
INSERT INTO question
SELECT 'opaque', 'update', 'SELECT k, ' || string_agg(format('%s(%s) AS a%s', p.proname, argument, p.oid), ', ' ORDER BY p.oid) || ' FROM item GROUP BY k'
FROM pg_aggregate a JOIN pg_proc p ON p.oid = a.aggfnoid
JOIN (VALUES ('int2'::regtype, 'v::int2'), ('int4', 'v'), ('int8', 'big'), ('numeric', 'n'), ('interval', 'span')) x (type, argument) ON p.pronargs = 1 AND p.proargtypes[0] = x.type
WHERE a.aggtranstype = 'internal'::regtype AND a.aggserialfn <> 0 AND p.oid < 16384 HAVING count(*) > 20;

-- XML only where the server was built with it.
DO $$ BEGIN PERFORM xmlelement(name a); EXCEPTION WHEN feature_not_supported THEN
    UPDATE agg.question SET query = regexp_replace(query, ',\s*xmlagg\(.* AS xml', '');
END $$;

SELECT name, stream.create_query(name, query, stream.to_table('got_' || name), mode, start => false) > 0 AS created FROM question ORDER BY name;

CREATE PROCEDURE run_all() LANGUAGE plpgsql AS $$
DECLARE q text;
BEGIN
    FOR q IN SELECT name FROM agg.question ORDER BY name LOOP
        CALL stream.process_all_available(q);
    END LOOP;
END $$;
CREATE VIEW verdict AS
    SELECT name, differences(query, ('got_' || name)::regclass) AS differences, q.last_batch_id AS batch FROM question JOIN stream.queries q USING (name);

-- Without GROUP BY there is one row, even of no rows.
SELECT add_items(1, 40);
CALL run_all();
SELECT * FROM verdict ORDER BY name;
TABLE got_nothing;

-- A restart: groups are read back, touched ones go on from there.
\c -
SET search_path = agg;
SELECT add_items(41, 43);
CALL run_all();
SELECT * FROM verdict ORDER BY name;

-- Again, and twice in one session: values read back and values kept live mix.
\c -
SET search_path = agg;
SELECT add_items(44, 100);
CALL run_all();
SELECT add_items(101, 102);
CALL run_all();
SELECT * FROM verdict ORDER BY name;
\c -
SET search_path = agg;
SELECT add_items(103, 160);
CALL run_all();
SELECT * FROM verdict ORDER BY name;

-- What cannot be kept is refused when the query is made.
SELECT stream.create_query('no', 'SELECT k, percentile_cont(k / 5.0) WITHIN GROUP (ORDER BY v) FROM item GROUP BY k', stream.to_log(), 'update');
SELECT stream.create_query('no', 'SELECT k, count(DISTINCT ROW(k, v)) FROM item GROUP BY k', stream.to_log(), 'update');

--
-- Batches that fail leave no trace in the state.
--
CREATE FUNCTION touchy(bigint, int) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
    IF $2 = 7 AND current_setting('agg.fail', true) = 'on' THEN
        RAISE EXCEPTION 'seven is too much' USING ERRCODE = 'P0007';
    END IF;
    RETURN $1 + $2;
END $$;
CREATE AGGREGATE touchy_sum(int) (sfunc = touchy, stype = bigint, initcond = '0');
CREATE TABLE step_t (k int, v int);
SELECT stream.create_source('step', 'table', options => '{"table": "step_t"}');
SELECT stream.create_query('touchy', 'SELECT k, touchy_sum(v), count(*), array_agg(v), count(DISTINCT v) AS d, sum(v::numeric) AS n FROM step GROUP BY k',
    stream.to_table('got_touchy'), 'update', start => false) > 0 AS created;
INSERT INTO step_t VALUES (1, 1), (2, 2);
CALL stream.process_all_available('touchy');
SET agg.fail = on;
INSERT INTO step_t VALUES (1, 3), (3, 3), (2, 4), (1, 7), (1, 8);
CALL stream.process_all_available('touchy');
CALL stream.process_all_available('touchy');
TABLE got_touchy ORDER BY k;
SET agg.fail = off;
CALL stream.process_all_available('touchy');
TABLE got_touchy ORDER BY k;
INSERT INTO step_t VALUES (1, 9), (4, 7);
SET agg.fail = on;
CALL stream.process_all_available('touchy');
\c -
SET search_path = agg;
INSERT INTO step_t VALUES (2, 10);
CALL stream.process_all_available('touchy');
TABLE got_touchy ORDER BY k;

-- The same when the sink fails, after the operators have done their work.
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('agg.fail', true) = 'on' THEN
        RAISE EXCEPTION 'not today';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER refuse BEFORE INSERT OR UPDATE ON got_touchy FOR EACH ROW EXECUTE FUNCTION refuse();
SET agg.fail = on;
INSERT INTO step_t VALUES (2, 11), (5, 5);
CALL stream.process_all_available('touchy');
SET agg.fail = off;
CALL stream.process_all_available('touchy');
TABLE got_touchy ORDER BY k;
SELECT state_rows, failures FROM stream.queries WHERE name = 'touchy';

--
-- EXECUTE is checked every batch: on the aggregate for the query's owner, on its functions for the aggregate's owner.
--
CREATE ROLE regress_agg_user;
GRANT USAGE ON SCHEMA agg TO regress_agg_user;
CREATE TABLE grant_t (v int);
SELECT stream.create_source('grants', 'table', options => '{"table": "grant_t"}');
GRANT CREATE ON SCHEMA agg TO regress_agg_user;
GRANT SELECT ON grants, grant_t TO regress_agg_user;
ALTER ROLE regress_agg_user LOGIN;
SET SESSION AUTHORIZATION regress_agg_user;
SELECT stream.create_query('granted', 'SELECT largest(v) FROM grants', stream.to_table('got_granted'), 'complete', start => false) > 0 AS created;
CALL stream.process_all_available('granted');
RESET SESSION AUTHORIZATION;
REVOKE EXECUTE ON FUNCTION largest(int) FROM PUBLIC;
INSERT INTO grant_t VALUES (1);
SET SESSION AUTHORIZATION regress_agg_user;
CALL stream.process_all_available('granted');
RESET SESSION AUTHORIZATION;
GRANT EXECUTE ON FUNCTION largest(int) TO regress_agg_user;
SET SESSION AUTHORIZATION regress_agg_user;
CALL stream.process_all_available('granted');
TABLE got_granted;
RESET SESSION AUTHORIZATION;

SELECT stream.drop_query(name) FROM stream.queries ORDER BY name;
SELECT count(*) FROM stream.state_change;
SET client_min_messages = warning;
DROP OWNED BY regress_agg_user;
DROP ROLE regress_agg_user;
DROP SCHEMA agg CASCADE;
