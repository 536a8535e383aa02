--
-- transform_with_state: processors, and what their handlers may do.
--
\set VERBOSITY terse
\set SHOW_CONTEXT never
CREATE SCHEMA tws;
SET search_path = tws;
CREATE TABLE in_t (k text, v int);
SELECT stream.create_source('input', 'table', options => '{"table": "in_t"}');
-- Rows of the newest batch.
CREATE PROCEDURE batch(query text) LANGUAGE plpgsql AS $$ BEGIN COMMIT; CALL stream.process_all_available(query); END $$;

-- What cannot be a processor.
CREATE FUNCTION f_none() RETURNS SETOF int LANGUAGE sql AS 'SELECT 1';
CREATE FUNCTION f_void(k text, r input[]) RETURNS void LANGUAGE sql AS '';
CREATE FUNCTION f_any(k anyelement, r input[]) RETURNS SETOF int LANGUAGE sql AS 'SELECT 1';
CREATE FUNCTION f_row(k text, r input) RETURNS SETOF int LANGUAGE sql AS 'SELECT 1';
CREATE FUNCTION f_record(k text, r input[]) RETURNS SETOF record LANGUAGE sql AS 'SELECT 1';
CREATE FUNCTION f_ok(k text, r input[]) RETURNS SETOF int LANGUAGE sql AS 'SELECT 1';
CREATE FUNCTION f_timer(k text, at timestamptz) RETURNS SETOF int LANGUAGE sql AS 'SELECT 1';
CREATE FUNCTION f_timer_int(k int, at timestamptz) RETURNS SETOF int LANGUAGE sql AS 'SELECT 1';
SELECT stream.create_processor('p', 'no_such(text,input[])');
SELECT stream.create_processor('p', NULL);
SELECT stream.create_processor(NULL, 'f_ok(text,input[])');
SELECT stream.create_processor('p', 'f_none()');
SELECT stream.create_processor('p', 'f_void(text,input[])');
SELECT stream.create_processor('p', 'f_any(anyelement,input[])');
SELECT stream.create_processor('p', 'f_row(text,input)');
SELECT stream.create_processor('p', 'f_record(text,input[])');
SELECT stream.create_processor('p', 'f_ok(text,input[])', 'f_ok(text,input[])', time_mode => 'processing_time');
SELECT stream.create_processor('p', 'f_ok(text,input[])', 'f_timer(text,timestamptz)');
SELECT stream.create_processor('p', 'f_ok(text,input[])', 'f_timer_int(int,timestamptz)', time_mode => 'processing_time');
SELECT stream.create_processor('p', 'f_ok(text,input[])', state => '[]');
SELECT stream.create_processor('p', 'f_ok(text,input[])', state => '{"x": 1}');
SELECT stream.create_processor('p', 'f_ok(text,input[])', state => '{"x": {"type": "int"}}');
SELECT stream.create_processor('p', 'f_ok(text,input[])', state => '{"x": {"kind": "value", "type": "int", "tll": "1 hour"}}');
SELECT stream.create_processor('p', 'f_ok(text,input[])', state => '{"x": {"kind": "value", "type": "int", "key_type": "int"}}');
SELECT stream.create_processor('p', 'f_ok(text,input[])', state => '{"x": {"kind": "value", "type": "record"}}');
SELECT stream.create_processor('p', 'f_ok(text,input[])', state => '{"x": {"kind": "map", "key_type": "point", "type": "int"}}');
SELECT stream.create_processor('p', 'f_ok(text,input[])', state => '{"timers": {"kind": "value", "type": "int"}}');
SELECT stream.create_processor('p', 'f_ok(text,input[])', state => '{"x": {"kind": "value", "type": "int", "ttl": "0 s"}}', time_mode => 'processing_time');
SELECT stream.create_processor('p', 'f_ok(text,input[])', state => '{"x": {"kind": "value", "type": "int", "ttl": "soon"}}', time_mode => 'processing_time');
SELECT stream.drop_processor('p');
SELECT stream.drop_processor('p', true);

-- What is declared is kept with its schema, and listed.
CREATE TYPE point3 AS (x int, y int, z numeric(6,2));
CREATE DOMAIN positive AS int CHECK (VALUE > 0);
SELECT stream.create_processor('p', 'f_ok(text,input[])', 'f_timer(text,timestamptz)', time_mode => 'processing_time',
    state => '{"a": {"kind": "value", "type": "point3", "ttl": "90 minutes"}, "b": {"kind": "map", "key_type": "varchar(3)", "type": "positive[]"}}');
SELECT stream.create_processor('p', 'f_ok(text,input[])');
SELECT stream.create_processor('p', 'f_ok(text,input[])', if_not_exists => true);
SELECT name, handle_input, handle_timer, state, time_mode FROM stream.processors;
SELECT stream.drop_processor('p');

-- State of every kind, values of any type, literals as literals.
CREATE FUNCTION kinds(key text, rows input[]) RETURNS TABLE (k text, what text) LANGUAGE plpgsql AS $f$
DECLARE
    step int := (rows[1]).v;
BEGIN
    k := key;
    IF step = 1 THEN
        PERFORM stream.state_update('n', 1.256);
        PERFORM stream.state_update('p', ROW(1, 2, 3.456)::point3);
        PERFORM stream.state_update('t', 'a literal');
        PERFORM stream.list_append('l', '5'), stream.list_append('l', 6::bigint), stream.list_append('l', 7.0);
        PERFORM stream.map_put('m', 'b', '1'), stream.map_put('m', 'a'::varchar, 2::smallint), stream.map_put('m', 'b', 3);
    ELSIF step = 2 THEN
        PERFORM stream.list_put('l', '{9,8}'), stream.map_remove('m', 'b'), stream.map_remove('m', 'nothing');
        PERFORM stream.state_update('n', stream.state_get('n', NULL::numeric) * 2), stream.state_clear('t');
    ELSIF step = 3 THEN
        PERFORM stream.list_put('l', ARRAY[1::smallint, 2]), stream.map_clear('m'), stream.list_append('l', stream.state_get('n', NULL::float8)::int);
    ELSIF step = 4 THEN
        PERFORM stream.list_clear('l'), stream.state_clear('m'), stream.state_clear('p'), stream.list_put('l', '{}'::int[]);
    END IF;
    what := format('n=%s p=%s t=%s l=%s m=%s a=%s b=%s exists=%s%s%s', stream.state_get('n', NULL::numeric), stream.state_get('p', NULL::point3),
        stream.state_get('t', NULL::text), (SELECT array_agg(e) FROM stream.list_get('l', NULL::bigint) e),
        (SELECT string_agg(e.key || ':' || e.value, ',') FROM stream.map_entries('m', NULL::text, NULL::int) e),
        stream.map_get('m', 'a', NULL::int), stream.map_contains('m', 'b'),
        stream.state_exists('p')::int, stream.state_exists('l')::int, stream.state_exists('m')::int);
    RETURN NEXT;
END $f$;
SELECT stream.create_processor('kinds', 'kinds(text,input[])', state => '{"n": {"kind": "value", "type": "numeric(8,2)"}, "p": {"kind": "value", "type": "point3"},
    "t": {"kind": "value", "type": "text"}, "l": {"kind": "list", "type": "int"}, "m": {"kind": "map", "key_type": "text", "type": "int"}}');
SELECT stream.create_query('kinds', $q$SELECT i.k, t.what FROM input i, LATERAL stream.transform_with_state('kinds', i.k, i) AS t(k text, what text)$q$,
    stream.to_table('kinds_out'), start => false) > 0 AS created;
INSERT INTO in_t VALUES ('x', 1), (NULL, 1);
CALL batch('kinds');
INSERT INTO in_t VALUES ('x', 2);
CALL batch('kinds');
SELECT * FROM kinds_out ORDER BY batch_id, k;
SELECT key, value, state, element IS NOT NULL AS has_element FROM stream.state('kinds') ORDER BY key::text, state, element::text;
SELECT change_type, key, value, state FROM stream.state_changes('kinds', 0, 1, 1) ORDER BY state, change_type, value::text;
\c -
SET search_path = tws;
INSERT INTO in_t VALUES ('x', 0);
CALL batch('kinds');
INSERT INTO in_t VALUES ('x', 3);
CALL batch('kinds');
INSERT INTO in_t VALUES ('x', 4);
CALL batch('kinds');
SELECT * FROM kinds_out WHERE batch_id > 1 ORDER BY batch_id;
SELECT state_name, rows FROM stream.state_metadata('kinds') ORDER BY state_name;
SELECT state_rows FROM stream.queries WHERE name = 'kinds';

-- What a handler does wrong fails its batch, and leaves state as it was.
CREATE FUNCTION wrong(key text, rows input[]) RETURNS TABLE (k text, n int) LANGUAGE plpgsql AS $f$
BEGIN
    PERFORM stream.state_update('n', coalesce(stream.state_get('n', NULL::int), 0) + 1);
    PERFORM stream.list_append('l', 'x'), stream.map_put('m', key, 1);
    EXECUTE key;
    k := key; n := stream.state_get('n', NULL::int); RETURN NEXT;
END $f$;
SELECT stream.create_processor('wrong', 'wrong(text,input[])', state => '{"n": {"kind": "value", "type": "int"}, "l": {"kind": "list", "type": "text"},
    "m": {"kind": "map", "key_type": "text", "type": "positive"}}');
SELECT stream.create_query('wrong', $q$SELECT t.* FROM input i CROSS JOIN LATERAL stream.transform_with_state('wrong', i.k, i) AS t(k text, n int) WHERE i.v = 100$q$,
    stream.to_table('wrong_out'), 'update', start => false) > 0 AS created;
CREATE PROCEDURE try(statement text) LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO tws.in_t VALUES (statement, 100);
    COMMIT;
END $$;
CALL try('SELECT 1');
CALL stream.process_all_available('wrong');
CALL try('SELECT stream.state_update(''nope'', 1)');
CALL stream.run_batch('wrong', NULL);
-- the same batch again: the same error, until its row is gone
UPDATE in_t SET k = 'SELECT stream.list_append(''n'', 1)' WHERE k LIKE '%nope%';
CALL stream.run_batch('wrong', NULL);
UPDATE in_t SET k = 'SELECT stream.state_get(''l'', NULL::text)' WHERE k LIKE '%list_append%';
CALL stream.run_batch('wrong', NULL);
UPDATE in_t SET k = 'SELECT stream.state_update(''n'', NULL)' WHERE k LIKE '%state_get(''l''%';
CALL stream.run_batch('wrong', NULL);
UPDATE in_t SET k = 'SELECT stream.state_update(''n'', ''many'')' WHERE k LIKE '%state_update(''n''%';
CALL stream.run_batch('wrong', NULL);
UPDATE in_t SET k = 'SELECT stream.state_update(''n'', now())' WHERE k LIKE '%many%';
CALL stream.run_batch('wrong', NULL);
UPDATE in_t SET k = 'SELECT stream.state_get(''n'', NULL::timestamptz)' WHERE k LIKE '%now()%';
CALL stream.run_batch('wrong', NULL);
UPDATE in_t SET k = 'SELECT stream.map_put(''m'', ''a'', -1)' WHERE k LIKE '%NULL::timestamptz%';
CALL stream.run_batch('wrong', NULL);
UPDATE in_t SET k = 'SELECT stream.list_put(''l'', ''{a,NULL}'')' WHERE k LIKE '%map_put%';
CALL stream.run_batch('wrong', NULL);
UPDATE in_t SET k = 'SELECT stream.list_put(''l'', 1)' WHERE k LIKE '%list_put%';
CALL stream.run_batch('wrong', NULL);
UPDATE in_t SET k = 'SELECT stream.register_timer(now())' WHERE k LIKE '%list_put%';
CALL stream.run_batch('wrong', NULL);
UPDATE in_t SET k = 'SELECT 1/0' WHERE k LIKE '%register_timer%';
CALL stream.run_batch('wrong', NULL);
SELECT key, value, state FROM stream.state('wrong') ORDER BY state;
UPDATE in_t SET k = 'SELECT 1' WHERE k = 'SELECT 1/0';
CALL stream.run_batch('wrong', NULL);
SELECT k, n FROM wrong_out ORDER BY n;
SELECT value, state FROM stream.state('wrong') ORDER BY state, value::text;

-- An error that a handler catches takes back what was done under it, and no more.
CREATE FUNCTION caught(key text, rows input[]) RETURNS TABLE (k text, what text) LANGUAGE plpgsql AS $f$
BEGIN
    PERFORM stream.state_update('n', 1), stream.list_append('l', 'kept'), stream.map_put('m', 'kept', 1), stream.register_timer('2001-01-01');
    BEGIN
        PERFORM stream.state_update('n', 2), stream.state_update('o', 2), stream.list_append('l', 'lost'), stream.map_put('m', 'kept', 2), stream.map_put('m', 'lost', 2);
        PERFORM stream.register_timer('2002-01-01'), stream.delete_timer('2001-01-01');
        BEGIN
            PERFORM stream.state_clear('n'), stream.list_clear('l'), stream.map_clear('m');
        EXCEPTION WHEN division_by_zero THEN NULL;
        END;
        PERFORM stream.state_update('n', 3);
        PERFORM 1 / 0;
    EXCEPTION WHEN division_by_zero THEN NULL;
    END;
    BEGIN
        PERFORM stream.list_append('l', 'also kept');
    EXCEPTION WHEN division_by_zero THEN NULL;
    END;
    BEGIN
        PERFORM stream.list_clear('l'), 1 / 0;
    EXCEPTION WHEN division_by_zero THEN NULL;
    END;
    k := key;
    what := format('n=%s o=%s l=%s m=%s timers=%s', stream.state_get('n', NULL::int), stream.state_get('o', NULL::int),
        (SELECT array_agg(e) FROM stream.list_get('l', NULL::text) e), (SELECT array_agg(e) FROM stream.map_entries('m', NULL::text, NULL::int) e),
        (SELECT array_agg(extract(year FROM e)) FROM stream.list_timers() e));
    RETURN NEXT;
END $f$;
CREATE FUNCTION never(key text, at timestamptz) RETURNS TABLE (k text, what text) LANGUAGE sql AS $f$ SELECT key, 'timer of ' || extract(year FROM at) $f$;
SELECT stream.create_processor('caught', 'caught(text,input[])', 'never(text,timestamptz)', time_mode => 'processing_time',
    state => '{"n": {"kind": "value", "type": "int"}, "o": {"kind": "value", "type": "int"}, "l": {"kind": "list", "type": "text"}, "m": {"kind": "map", "key_type": "text", "type": "int"}}');
SELECT stream.create_query('caught', $q$SELECT t.* FROM input i, LATERAL stream.transform_with_state('caught', i.k, i) AS t(k text, what text) WHERE i.v = 200$q$,
    stream.to_table('caught_out'), start => false) > 0 AS created;
INSERT INTO in_t VALUES ('x', 200);
CALL batch('caught');
SELECT k, what FROM caught_out;
SELECT value, state FROM stream.state('caught') ORDER BY state, value::text;

-- Handlers in SQL, one row or many, of named types and plain ones; replaced while the query exists.
CREATE TYPE pair AS (a text, b bigint);
CREATE FUNCTION sql_set(key text, rows input[]) RETURNS SETOF pair LANGUAGE sql AS $f$ SELECT key, r.v::bigint FROM unnest(rows) r ORDER BY r.v $f$;
CREATE FUNCTION sql_one(key text, rows input[]) RETURNS pair LANGUAGE sql AS $f$ SELECT key, sum(r.v) FROM unnest(rows) r HAVING sum(r.v) < 350 $f$;
CREATE FUNCTION sql_plain(key text, rows input[]) RETURNS SETOF text LANGUAGE sql STRICT AS $f$ SELECT key || r.v FROM unnest(rows) r ORDER BY r.v DESC $f$;
SELECT stream.create_processor('sql_set', 'sql_set(text,input[])'), stream.create_processor('sql_one', 'sql_one(text,input[])'), stream.create_processor('sql_plain', 'sql_plain(text,input[])');
SELECT stream.create_query('sql_set', $q$SELECT t.* FROM input i, LATERAL stream.transform_with_state('sql_set', i.k, i) AS t(a varchar, b bigint) WHERE i.v >= 300$q$, stream.to_table('set_out'), start => false) > 0 AS created;
SELECT stream.create_query('sql_one', $q$SELECT t.a, t.b + 1 AS b FROM input i, LATERAL stream.transform_with_state('sql_one', i.k, i) AS t(a text, b bigint) WHERE i.v >= 300$q$, stream.to_table('one_out'), start => false) > 0 AS created;
SELECT stream.create_query('sql_plain', $q$SELECT t.a FROM input i, LATERAL stream.transform_with_state('sql_plain', i.k, i) AS t(a text) WHERE i.v >= 300 AND length(t.a) > 2$q$, stream.to_table('plain_out'), start => false) > 0 AS created;
SELECT stream.create_query('bad', $q$SELECT t.a FROM input i, LATERAL stream.transform_with_state('sql_plain', i.k, i) AS t(a int)$q$, stream.to_table('bad_out'), start => false);
SELECT stream.create_query('bad', $q$SELECT t.a FROM input i, LATERAL stream.transform_with_state('sql_plain', i.k, i) AS t(a text, b text)$q$, stream.to_table('bad_out'), start => false);
INSERT INTO in_t VALUES ('a', 302), ('b', 301), ('a', 301), (NULL, 300);
CALL batch('sql_set');
CALL batch('sql_one');
CALL batch('sql_plain');
SELECT a, b FROM set_out ORDER BY a, b;
SELECT a, b FROM one_out ORDER BY a;
SELECT a FROM plain_out;
CREATE OR REPLACE FUNCTION sql_plain(key text, rows input[]) RETURNS SETOF text LANGUAGE plpgsql AS $f$ BEGIN RETURN QUERY SELECT 'new ' || coalesce(key, 'null'); END $f$;
INSERT INTO in_t VALUES ('c', 303), (NULL, 304);
CALL batch('sql_plain');
SELECT a FROM plain_out WHERE a LIKE 'new%' ORDER BY a;

-- Rows of subqueries, joins and scalars; tables joined before and after; the key beside the result.
CREATE TABLE dim (k text, name text);
INSERT INTO dim VALUES ('a', 'Anna'), ('b', 'Bert');
CREATE TYPE named AS (name text, v int);
CREATE FUNCTION names(key text, rows named[]) RETURNS TABLE (summary text) LANGUAGE sql AS $f$ SELECT string_agg(r.name || r.v, ' ' ORDER BY r.v) FROM unnest(rows) r $f$;
CREATE FUNCTION numbers(key text, rows bigint[]) RETURNS TABLE (total numeric) LANGUAGE sql AS $f$ SELECT sum(r) FROM unnest(rows) r $f$;
SELECT stream.create_processor('names', 'names(text,named[])'), stream.create_processor('numbers', 'numbers(text,bigint[])');
SELECT stream.create_query('before', $q$SELECT i.k, t.summary FROM input i JOIN dim d ON d.k = i.k, LATERAL stream.transform_with_state('names', i.k, ROW(d.name, i.v)) AS t(summary text) WHERE i.v > 400$q$,
    stream.to_table('before_out'), start => false) > 0 AS created;
SELECT stream.create_query('after', $q$SELECT i.k || '!' AS k, t.total, d.name FROM input i CROSS JOIN LATERAL stream.transform_with_state('numbers', i.k, i.v) AS t(total numeric) LEFT JOIN dim d ON d.k = i.k WHERE i.v > 400 AND t.total > 402$q$,
    stream.to_table('after_out'), start => false) > 0 AS created;
SELECT stream.create_query('sub', $q$SELECT s.k, t AS whole FROM (SELECT k, 'v' AS name, v FROM input WHERE v > 400) s, LATERAL stream.transform_with_state('names', s.k, (s.name, s.v)) AS t(summary text)$q$,
    stream.to_table('sub_out'), start => false);
SELECT stream.create_query('sub', $q$SELECT s.k, t.summary FROM (SELECT 'v' AS name, v, k FROM input WHERE v > 400) s, LATERAL stream.transform_with_state('names', s.k, s) AS t(summary text)$q$,
    stream.to_table('sub_out'), start => false);
SELECT stream.create_query('sub', $q$SELECT x.k, t.summary FROM (SELECT k, s FROM (SELECT 'v' AS name, v FROM input WHERE v > 400) s, LATERAL (SELECT chr(v - 401 + 97) AS k) y) x, LATERAL stream.transform_with_state('names', x.k, x.s) AS t(summary text)$q$,
    stream.to_table('sub_out'), start => false);
SELECT stream.create_query('sub', $q$SELECT t.summary FROM (SELECT 'v' AS name, v FROM input WHERE v > 400) s, LATERAL stream.transform_with_state('names', s.v::text, s) AS t(summary text)$q$,
    stream.to_table('sub_out'), start => false) > 0 AS created;
INSERT INTO in_t VALUES ('a', 401), ('b', 402), ('a', 403), ('c', 404);
CALL batch('before');
CALL batch('after');
CALL batch('sub');
SELECT k, summary FROM before_out ORDER BY k;
SELECT k, total, name FROM after_out ORDER BY k;
SELECT summary FROM sub_out ORDER BY summary;

-- What cannot be asked for.
SELECT stream.create_query('bad', $q$SELECT i.v FROM input i, LATERAL stream.transform_with_state('numbers', i.k, i.v) AS t(total numeric)$q$, stream.to_table('bad_out'), start => false);
SELECT stream.create_query('bad', $q$SELECT t.total FROM input i LEFT JOIN LATERAL stream.transform_with_state('numbers', i.k, i.v) AS t(total numeric) ON true$q$, stream.to_table('bad_out'), start => false);
SELECT stream.create_query('bad', $q$SELECT t.total FROM input i, LATERAL stream.transform_with_state(i.k, i.k, i.v) AS t(total numeric)$q$, stream.to_table('bad_out'), start => false);
SELECT stream.create_query('bad', $q$SELECT t.total FROM input i, LATERAL stream.transform_with_state('numbers', i.k, i) AS t(total numeric)$q$, stream.to_table('bad_out'), start => false);
SELECT stream.create_query('bad', $q$SELECT t.total FROM input i, LATERAL stream.transform_with_state('numbers', i.k, now()) AS t(total numeric)$q$, stream.to_table('bad_out'), start => false);
SELECT stream.create_query('bad', $q$SELECT t.total FROM input i, LATERAL stream.transform_with_state('numbers', i.k, i.v) WITH ORDINALITY AS t(total)$q$, stream.to_table('bad_out'), start => false);
SELECT stream.create_query('bad', $q$SELECT t.total FROM input i, LATERAL stream.transform_with_state('numbers', i.k, i.v) AS t(total numeric), LATERAL stream.transform_with_state('numbers', i.k, i.v) AS u(total numeric)$q$, stream.to_table('bad_out'), start => false);
SELECT stream.create_query('bad', $q$SELECT t.total FROM input i, LATERAL stream.transform_with_state('numbers', i.k, i.v) AS t(total numeric)$q$, stream.to_table('bad_out'), 'complete', start => false);
SELECT stream.create_query('bad', $q$SELECT t.total FROM input i, dim d, LATERAL stream.transform_with_state('numbers', i.k, (random() * i.v)::int) AS t(total numeric)$q$, stream.to_table('bad_out'), start => false);
SELECT stream.create_query('bad', $q$SELECT i.k, t.total FROM input i, (SELECT t.total FROM dim d, LATERAL stream.transform_with_state('numbers', d.k, 1) AS t(total numeric)) t$q$, stream.to_table('bad_out'), start => false);
SELECT stream.create_query('bad', $q$SELECT t.total FROM input i, LATERAL stream.transform_with_state('nobody', i.k, i.v) AS t(total numeric)$q$, stream.to_table('bad_out'), start => false);
SELECT t.total FROM input i, LATERAL stream.transform_with_state('numbers', i.k, i.v) AS t(total numeric);
SELECT stream.state_exists('n');
SELECT stream.list_timers();
SELECT stream.processing_time_now();

-- Chained: below and above other operators, one above the other.
SELECT stream.create_query('chain', $q$SELECT total, count(*) AS n FROM (SELECT t.total FROM (SELECT DISTINCT ON (k, v) k, v FROM input WHERE v > 500) i, LATERAL stream.transform_with_state('numbers', i.k, i.v) AS t(total numeric)) x GROUP BY total$q$,
    stream.to_table('chain_out'), 'update', start => false) > 0 AS created;
SELECT stream.create_query('twice', $q$SELECT u.total FROM (SELECT i.k, t.total FROM input i, LATERAL stream.transform_with_state('numbers', i.k, i.v) AS t(total numeric) WHERE i.v > 500) x, LATERAL stream.transform_with_state('numbers', left(x.k, 0), x.total::bigint) AS u(total numeric)$q$,
    stream.to_table('twice_out'), start => false) > 0 AS created;
INSERT INTO in_t VALUES ('a', 501), ('a', 501), ('b', 501), ('c', 502);
CALL batch('chain');
CALL batch('twice');
INSERT INTO in_t VALUES ('a', 501), ('d', 501);
CALL batch('chain');
SELECT total, n FROM chain_out ORDER BY total;
SELECT total FROM twice_out;
SELECT regexp_replace(l, '^ *(->  )?', '') AS line FROM stream.explain_query('kinds') l WHERE l ~ 'Operator|State|Timer|Rows';
SELECT regexp_replace(l, '^ *(->  )?', '') AS line FROM stream.explain_query('caught') l WHERE l ~ 'Operator|State|Timer|Rows';

-- In use: not dropped. Another processor may take over state that fits.
SELECT stream.drop_processor('kinds');
SELECT stream.create_processor('more', 'kinds(text,input[])', state => '{"n": {"kind": "value", "type": "numeric(8,2)"}, "p": {"kind": "value", "type": "point3"},
    "t": {"kind": "value", "type": "text"}, "l": {"kind": "list", "type": "int"}, "m": {"kind": "map", "key_type": "text", "type": "int"}, "z": {"kind": "value", "type": "int"}}');
SELECT stream.create_processor('fewer', 'kinds(text,input[])', state => '{"n": {"kind": "value", "type": "numeric(8,2)"}}');
SELECT stream.alter_query('kinds', $q$SELECT i.k, t.what FROM input i, LATERAL stream.transform_with_state('fewer', i.k, i) AS t(k text, what text)$q$);
SELECT stream.alter_query('kinds', $q$SELECT t.k, t.what FROM input i, LATERAL stream.transform_with_state('more', i.k || '', i) AS t(k text, what text)$q$);
SELECT stream.alter_query('kinds', $q$SELECT i.k, t.what FROM input i, LATERAL stream.transform_with_state('more', i.k, i) AS t(k text, what text) WHERE i.v < 10$q$);
SELECT stream.drop_processor('kinds');
INSERT INTO in_t VALUES ('x', 0);
CALL batch('kinds');
SELECT what FROM kinds_out WHERE batch_id = (SELECT max(batch_id) FROM kinds_out);

-- What a handler asks about its batch is asked in its own process, however its statements are planned.
CREATE FUNCTION in_parallel(key text, rows input[]) RETURNS TABLE (k text, n bigint) LANGUAGE plpgsql AS $f$
BEGIN
    PERFORM set_config(name, 'on', true) FROM pg_settings WHERE name IN ('force_parallel_mode', 'debug_parallel_query');
    SELECT key, count(*) INTO k, n FROM (VALUES (1), (2)) v WHERE stream.batch_id() >= 0 AND stream.batch_time() IS NOT NULL AND stream.current_watermark() IS NULL;
    RETURN NEXT;
    PERFORM set_config(name, 'off', true) FROM pg_settings WHERE name IN ('force_parallel_mode', 'debug_parallel_query');
END $f$;
SELECT stream.create_processor('parallel', 'in_parallel(text,input[])');
SELECT stream.create_query('parallel', $q$SELECT t.* FROM input i, LATERAL stream.transform_with_state('parallel', i.k, i) AS t(k text, n bigint)$q$, stream.to_memory(), start => false) > 0 AS created;
CALL batch('parallel');
SELECT DISTINCT row->'n' AS n FROM stream.memory('parallel') AS row;
SELECT stream.drop_query('parallel'), stream.drop_processor('parallel');

-- Timers by event time: a set per key, fired in order, once; late rows are dropped; several for one key.
CREATE TABLE ev_t (k text, ts timestamptz, at timestamptz[]);
SELECT stream.create_source('ev', 'table', options => '{"table": "ev_t"}', event_time => 'ts', watermark_delay => '10 seconds');
CREATE FUNCTION set_timers(key text, rows ev[]) RETURNS TABLE (k text, what text) LANGUAGE plpgsql AS $f$
DECLARE r ev; a timestamptz;
BEGIN
    FOREACH r IN ARRAY rows LOOP
        FOREACH a IN ARRAY r.at LOOP
            PERFORM stream.register_timer(a), stream.register_timer(a);
        END LOOP;
    END LOOP;
    k := key;
    what := format('rows %s, timers %s, watermark %s', cardinality(rows), (SELECT string_agg(to_char(t, 'SS'), ' ') FROM stream.list_timers() t), to_char(stream.current_watermark(), 'SS'));
    RETURN NEXT;
END $f$;
CREATE FUNCTION fire_timer(key text, expires_at timestamptz) RETURNS TABLE (k text, what text) LANGUAGE plpgsql AS $f$
BEGIN
    k := key;
    -- one that is due already waits for the next batch, one deleted here never comes
    IF extract(second FROM expires_at) = 20 THEN
        PERFORM stream.register_timer(expires_at), stream.register_timer(expires_at - interval '1 second'), stream.delete_timer(expires_at + interval '5 seconds');
    END IF;
    what := format('fires %s in batch %s, left %s', to_char(expires_at, 'SS'), stream.batch_id(), (SELECT string_agg(to_char(t, 'SS'), ' ') FROM stream.list_timers() t));
    PERFORM stream.delete_timer(expires_at);
    RETURN NEXT;
END $f$;
SELECT stream.create_processor('timers', 'set_timers(text,ev[])', 'fire_timer(text,timestamptz)', time_mode => 'event_time');
SELECT stream.create_query('timers', $q$SELECT t.* FROM ev i, LATERAL stream.transform_with_state('timers', i.k, i) AS t(k text, what text)$q$, stream.to_table('timers_out'), start => false) > 0 AS created;
SELECT stream.create_query('bad', $q$SELECT t.* FROM (SELECT k, now() AS ts, NULL::timestamptz[] AS at FROM ev) i, LATERAL stream.transform_with_state('timers', i.k, i) AS t(k text, what text)$q$, stream.to_table('bad_out'), start => false);
INSERT INTO ev_t VALUES ('a', '2020-01-01 00:00:12Z', '{2020-01-01 00:00:25Z,2020-01-01 00:00:20Z,2020-01-01 00:00:30Z}'), ('b', '2020-01-01 00:00:13Z', '{2020-01-01 00:00:20Z}'), ('a', '2020-01-01 00:00:11Z', '{2020-01-01 00:00:20Z,2020-01-01 00:00:59Z}');
CALL batch('timers');
SELECT key, value, expires_at, state FROM stream.state('timers') ORDER BY expires_at, key::text;
-- behind the watermark, and one that moves it to 00:00:31; timers in the past fire at once
INSERT INTO ev_t VALUES ('late', '2020-01-01 00:00:03Z', '{}'), (NULL, '2020-01-01 00:00:41Z', '{2020-01-01 00:00:02Z}');
CALL batch('timers');
\c -
SET search_path = tws;
INSERT INTO ev_t VALUES ('c', '2020-01-01 00:01:10Z', '{}');
CALL batch('timers');
SELECT k, what, batch_id FROM timers_out ORDER BY batch_id, what LIKE 'fires%', what, k;
SELECT rows_late FROM stream.queries WHERE name = 'timers';
SELECT count(*) FROM stream.state('timers');

-- A result that keeps event time: windows above close by the watermark of the rows below.
CREATE FUNCTION thin(key text, rows ev[]) RETURNS TABLE (k text, at timestamptz) LANGUAGE sql AS $f$ SELECT DISTINCT ON (date_trunc('second', r.ts)) key, r.ts FROM unnest(rows) r $f$;
SELECT stream.create_processor('thin', 'thin(text,ev[])', event_time => 'k');
SELECT stream.create_processor('thin', 'thin(text,ev[])', event_time => 'ts');
SELECT stream.create_processor('thin', 'thin(text,ev[])');
SELECT stream.create_query('thin', $q$SELECT stream.tumble(t.at, '10 seconds') AS w, count(*) AS n FROM ev i, LATERAL stream.transform_with_state('thin', i.k, i) AS t(k text, at timestamptz) GROUP BY w$q$, stream.to_table('thin_out'), start => false);
SELECT stream.drop_processor('thin');
SELECT stream.create_processor('thin', 'thin(text,ev[])', event_time => 'at');
SELECT stream.create_query('thin', $q$SELECT stream.tumble(t.at, '10 seconds') AS w, count(*) AS n FROM ev i, LATERAL stream.transform_with_state('thin', i.k, i) AS t(k text, at timestamptz) GROUP BY w$q$, stream.to_table('thin_out'), start => false) > 0 AS created;
CALL batch('thin');
SELECT w, n FROM thin_out ORDER BY w;

-- Timers in state need a handler.
SELECT stream.create_processor('no_timers', 'set_timers(text,ev[])', time_mode => 'event_time');
SELECT stream.alter_query('timers', $q$SELECT t.* FROM ev i, LATERAL stream.transform_with_state('no_timers', i.k, i) AS t(k text, what text)$q$);

-- Keys of many types: rows, arrays, ranges, domains; equal is what their types say.
CREATE TYPE place AS (city text, zip int);
CREATE FUNCTION by_place(key place, rows int[]) RETURNS TABLE (n bigint) LANGUAGE plpgsql AS $f$
BEGIN PERFORM stream.list_append('l', coalesce(rows[1], -1)); n := stream.state_get('n', NULL::bigint); n := coalesce(n, 0) + cardinality(rows); PERFORM stream.state_update('n', n); RETURN NEXT; END $f$;
CREATE FUNCTION by_numeric(key numeric, rows int[]) RETURNS TABLE (n bigint) LANGUAGE plpgsql AS $f$
BEGIN n := coalesce(stream.state_get('n', NULL::bigint), 0) + cardinality(rows); PERFORM stream.state_update('n', n); RETURN NEXT; END $f$;
CREATE FUNCTION by_array(key positive[], rows int[]) RETURNS TABLE (n bigint) LANGUAGE plpgsql AS $f$
BEGIN n := coalesce(stream.state_get('n', NULL::bigint), 0) + cardinality(rows); PERFORM stream.state_update('n', n); RETURN NEXT; END $f$;
SELECT stream.create_processor('by_place', 'by_place(place,int[])', state => '{"n": {"kind": "value", "type": "bigint"}, "l": {"kind": "list", "type": "int"}}'),
    stream.create_processor('by_numeric', 'by_numeric(numeric,int[])', state => '{"n": {"kind": "value", "type": "bigint"}}'),
    stream.create_processor('by_array', 'by_array(positive[],int[])', state => '{"n": {"kind": "value", "type": "bigint"}}');
CREATE TABLE odd_t (city text, zip int, x numeric);
SELECT stream.create_source('odd', 'table', options => '{"table": "odd_t"}');
SELECT stream.create_query('by_place', $q$SELECT t.n FROM odd o, LATERAL stream.transform_with_state('by_place', ROW(o.city, o.zip), o.zip) AS t(n bigint)$q$, stream.to_table('place_out'), start => false) > 0 AS created;
SELECT stream.create_query('by_numeric', $q$SELECT o.x, t.n FROM odd o, LATERAL stream.transform_with_state('by_numeric', o.x, o.zip) AS t(n bigint)$q$, stream.to_table('numeric_out'), start => false) > 0 AS created;
SELECT stream.create_query('by_array', $q$SELECT ARRAY[o.zip] AS zips, t.n FROM odd o, LATERAL stream.transform_with_state('by_array', ARRAY[o.zip], o.zip) AS t(n bigint) WHERE o.zip > 0$q$, stream.to_table('array_out'), start => false) > 0 AS created;
INSERT INTO odd_t VALUES ('Bonn', 1, 1.0), ('Bonn', 1, 1.00), ('Bonn', NULL, 1), (NULL, NULL, NULL), ('Bonn', NULL, 'NaN');
CALL batch('by_place');
CALL batch('by_numeric');
CALL batch('by_array');
\c -
SET search_path = tws;
INSERT INTO odd_t VALUES ('Bonn', 1, 1), ('Bonn', NULL, 1.000), (NULL, NULL, 'NaN'), ('', 0, 0);
CALL batch('by_place');
CALL batch('by_numeric');
CALL batch('by_array');
SELECT key, value, state FROM stream.state('by_place') ORDER BY key::text, state, element;
SELECT x, n, batch_id FROM numeric_out ORDER BY batch_id, x;
SELECT zips, n, batch_id FROM array_out ORDER BY batch_id, zips;

-- More rows than memory may hold: each key still gets all of its rows at once, in the order they came.
CREATE FUNCTION in_order(key text, rows input[]) RETURNS TABLE (n int, total bigint, ordered boolean) LANGUAGE sql AS $f$
    SELECT count(*)::int, sum(r.v), array_agg(r.v) = array_agg(r.v ORDER BY r.v) FROM unnest(rows) r
$f$;
SELECT stream.create_processor('in_order', 'in_order(text,input[])');
SELECT stream.create_query('in_order', $q$SELECT t.* FROM input i, LATERAL stream.transform_with_state('in_order', i.k, i) AS t(n int, total bigint, ordered boolean) WHERE i.v > 1000$q$, stream.to_table('order_out'), start => false) > 0 AS created;
INSERT INTO in_t SELECT 'key' || v % 3000, v FROM generate_series(1001, 31000) v;
SET maintenance_work_mem = '1MB';
CALL batch('in_order');
RESET maintenance_work_mem;
SELECT count(*) AS keys, count(DISTINCT n) AS sizes, sum(n) AS rows, sum(total) AS total, bool_and(ordered) AS ordered FROM order_out;

-- EXECUTE is the query owner's to have, at every batch.
CREATE ROLE regress_tws LOGIN;
GRANT USAGE, CREATE ON SCHEMA tws TO regress_tws;
GRANT SELECT ON input, in_t TO regress_tws;
REVOKE EXECUTE ON FUNCTION sql_set(text, input[]) FROM PUBLIC;
SET SESSION AUTHORIZATION regress_tws;
SELECT stream.create_processor('theirs', 'tws.sql_set(text,tws.input[])');
SELECT stream.create_query('theirs', $q$SELECT t.* FROM tws.input i, LATERAL stream.transform_with_state('sql_set', i.k, i) AS t(a text, b bigint)$q$, stream.to_table('tws.theirs_out'), start => false);
RESET SESSION AUTHORIZATION;
GRANT EXECUTE ON FUNCTION sql_set(text, input[]) TO regress_tws;
SET SESSION AUTHORIZATION regress_tws;
SELECT stream.create_query('theirs', $q$SELECT t.* FROM tws.input i, LATERAL stream.transform_with_state('sql_set', i.k, i) AS t(a text, b bigint) WHERE i.v > 500$q$, stream.to_table('tws.theirs_out'), start => false) > 0 AS created;
SELECT stream.drop_processor('sql_one');
CALL stream.process_all_available('theirs');
RESET SESSION AUTHORIZATION;
REVOKE EXECUTE ON FUNCTION sql_set(text, input[]) FROM regress_tws;
INSERT INTO in_t VALUES ('a', 600);
SET SESSION AUTHORIZATION regress_tws;
CALL stream.process_all_available('theirs');
RESET SESSION AUTHORIZATION;
SELECT count(*) FROM theirs_out;

SELECT count(stream.drop_query(name)) FROM stream.queries WHERE sink LIKE 'table tws.%';
SELECT count(stream.drop_processor(name)) FROM stream.processors;
SET client_min_messages = warning;
DROP OWNED BY regress_tws;
DROP ROLE regress_tws;
DROP SCHEMA tws CASCADE;
