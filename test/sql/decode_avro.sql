-- Avro messages: values of every type into columns, by name and whatever schema the writer used; frames of a schema registry; what is wrong with a message or a schema.
\getenv source PG_ABS_SRCDIR
\set functions :source '/lib/decode.psql'
\i :functions
SET bytea_output = hex;
-- Avro's binary form: numbers n, strings s, doubles d, floats f; records are their fields one after the other.
CREATE FUNCTION n(v numeric) RETURNS bytea LANGUAGE plpgsql AS $$
DECLARE z numeric := CASE WHEN v < 0 THEN -v * 2 - 1 ELSE v * 2 END; out bytea := '';
BEGIN
    LOOP
        IF z < 128 THEN RETURN out || set_byte('\x00', 0, z::int); END IF;
        out := out || set_byte('\x00', 0, 128 + (z % 128)::int);
        z := div(z, 128);
    END LOOP;
END $$;
CREATE FUNCTION b(v bytea) RETURNS bytea LANGUAGE sql AS $$ SELECT n(length(v)) || v $$;
CREATE FUNCTION s(v text) RETURNS bytea LANGUAGE sql AS $$ SELECT b(convert_to(v, 'UTF8')) $$;
CREATE FUNCTION turned(v bytea) RETURNS bytea LANGUAGE sql AS $$ SELECT string_agg(substr(v, i, 1), ''::bytea ORDER BY i DESC) FROM generate_series(1, length(v)) i $$;
CREATE FUNCTION d(v float8) RETURNS bytea LANGUAGE sql AS $$ SELECT turned(float8send(v)) $$;
CREATE FUNCTION f(v float4) RETURNS bytea LANGUAGE sql AS $$ SELECT turned(float4send(v)) $$;
CREATE FUNCTION avro(rel regclass, schema text, doc bytea, paths text[] DEFAULT '{}', lenient boolean DEFAULT false) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    PERFORM decode_set('schema', schema);
    RETURN decode_bytes(rel, 'avro', doc, paths, lenient => lenient);
END $$;
CREATE FUNCTION sub(name text, VARIADIC fields text[]) RETURNS text LANGUAGE sql AS $$ SELECT format('{"type":"record","name":"%s","fields":[%s]}', name, array_to_string(fields, ',')) $$;
CREATE FUNCTION rec(VARIADIC fields text[] DEFAULT '{}') RETURNS text LANGUAGE sql AS $$ SELECT sub('r', VARIADIC fields) $$;
CREATE FUNCTION fld(name text, type text) RETURNS text LANGUAGE sql AS $$ SELECT format('{"name":"%s","type":%s}', name, type) $$;

-- A record: fields by name in any order, unions with null, fields nobody wants.
CREATE TABLE event (id bigint, name text, ok boolean, x float8);
SELECT avro('event', rec(fld('id', '"long"'), fld('name', '"string"'), fld('ok', '"boolean"'), fld('x', '"double"')), n(1) || s('ann') || '\x01' || d(1.5));
SELECT avro('event', rec(fld('x', '"float"'), fld('other', '{"type":"array","items":"string"}'), fld('name', '["null","string"]'), fld('id', '["int","null"]'), fld('ok', '["null","boolean"]')),
    f(0.1) || n(2) || s('a') || s('b') || n(0) || n(1) || s('é中😀') || n(0) || n(-5) || n(0));
-- Another writer's schema: missing fields are NULL, types are converted as the column takes them.
SELECT avro('event', rec(fld('id', '"int"')), n(7));
SELECT avro('event', rec(fld('id', '"string"'), fld('name', '"long"'), fld('x', '"long"')), s('42') || n(5) || n(9007199254740993));
SELECT avro('event', rec(fld('id', '"double"'), fld('ok', '"string"')), d(3) || s('yes'));
SELECT avro('event', rec(fld('id', '"double"')), d(3.5));
SELECT avro('event', rec(), '');

-- Every type into every kind of column that could want it.
CREATE TABLE forms (i int, n numeric, f float4, s text, d date, t time, ts timestamp, tz timestamptz, iv interval, b bytea, j jsonb, u uuid);
CREATE FUNCTION form(type text, v bytea) RETURNS text LANGUAGE sql AS $$
    SELECT string_agg(c || '=' || regexp_replace(r, '^\(,*|,*\)$', '', 'g'), ' ' ORDER BY k)
    FROM unnest('{i,n,f,s,d,t,ts,tz,iv,b,j,u}'::text[]) WITH ORDINALITY AS c(c, k), LATERAL (SELECT avro('forms', rec(fld(c, type)), v)) AS a(r)
    WHERE r LIKE '(%' AND NOT (c = 'iv' AND r ~ 'infinity') $$;     -- which intervals can be since 17
SELECT type, v, form(type, v) FROM (VALUES
    ('"int"', n(20513)), ('"int"', n(-2147483648)), ('"long"', n(9223372036854775807)), ('"long"', n(-9223372036854775808)), ('"float"', f(0.1)), ('"float"', f('Infinity')), ('"double"', d(0.1)), ('"double"', d('NaN')), ('"double"', d(1e300)), ('"double"', d(-0.0)),
    ('"boolean"', '\x01'), ('"null"', ''), ('"string"', s('')), ('"string"', s('2026-03-01')), ('"bytes"', b('\x00ff')), ('"bytes"', b('')), ('{"type":"fixed","name":"f","size":3}', '\x010203'), ('{"type":"enum","name":"e","symbols":["A","B\"C"]}', n(1)),
    ('{"type":"int","logicalType":"date"}', n(20513)), ('{"type":"int","logicalType":"date"}', n(-719528)), ('{"type":"int","logicalType":"time-millis"}', n(36000123)), ('{"type":"long","logicalType":"time-micros"}', n(36000123456)),
    ('{"type":"long","logicalType":"timestamp-millis"}', n(1772359200123)), ('{"type":"long","logicalType":"timestamp-micros"}', n(1772359200123456)), ('{"type":"long","logicalType":"timestamp-nanos"}', n(1772359200123456500)), ('{"type":"long","logicalType":"timestamp-micros"}', n(-9223372036854775808)),
    ('{"type":"long","logicalType":"local-timestamp-millis"}', n(1772359200123)), ('{"type":"long","logicalType":"local-timestamp-micros"}', n(0)), ('{"type":"bytes","logicalType":"decimal","precision":9,"scale":2}', b('\x3039')), ('{"type":"bytes","logicalType":"decimal","precision":9}', b('\xff')),
    ('{"type":"fixed","name":"f","size":9,"logicalType":"decimal","precision":20,"scale":3}', '\xff0000000000000001'), ('{"type":"bytes","logicalType":"decimal","precision":9,"scale":2}', b('')), ('{"type":"string","logicalType":"uuid"}', s('a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11')),
    ('{"type":"fixed","name":"f","size":16,"logicalType":"uuid"}', '\xa0eebc999c0b4ef8bb6d6bb9bd380a11'), ('{"type":"fixed","name":"f","size":12,"logicalType":"duration"}', '\x0e0000000300000088130000'),
    ('{"type":"int","connect.name":"io.debezium.time.Date"}', n(20513)), ('{"type":"long","connect.name":"io.debezium.time.MicroTimestamp"}', n(1772359200123456)), ('{"type":"string","connect.name":"io.debezium.data.Json"}', s('{"a": [1]}')), ('{"type":"string","connect.name":"io.debezium.time.Date"}', s('x')),
    ('{"type":"string","logicalType":"date"}', s('x')), ('{"type":"int","logicalType":"unheard-of"}', n(5)), ('{"type":{"type":"int"}}', n(5)), ('{"type":"bytes","logicalType":"decimal","scale":99999}', b('\x01'))) AS t(type, v);

-- Parts of a microsecond round as everywhere.
SELECT v, avro('forms', rec(fld('tz', '{"type":"long","logicalType":"timestamp-nanos"}')), n(v)) FROM unnest(ARRAY[1772359499999999400, 1772359499999999900, 1772359499999999500, 1772359499999998500]) AS v;

-- Arrays, maps and records: as JSON, as arrays and rows of PostgreSQL's; paths lead into records and maps.
CREATE TYPE pair AS (x int, y text);
CREATE TABLE nested (a int[], m jsonb, r pair, rs pair[], t text, z bigint, k text);
SELECT avro('nested', rec(fld('a', '{"type":"array","items":["null","int"]}'), fld('m', '{"type":"map","values":"long"}'), fld('r', sub('q', fld('x', '"int"'), fld('y', '"string"')))),
    n(3) || n(1) || n(1) || n(0) || n(1) || n(2) || n(0) || n(1) || s('k"') || n(5) || n(-1) || n(4) || s('l') || n(6) || n(0) || n(9) || s('q"x'));
SELECT avro('nested', rec(fld('rs', '{"type":"array","items":' || sub('q', fld('x', '"int"'), fld('y', '["null","string"]'), fld('more', '"double"')) || '}'), fld('t', '{"type":"array","items":"string"}')),
    n(-2) || n(99) || n(1) || n(0) || d(1) || n(2) || n(1) || s('b') || d(2) || n(0) || n(1) || s('x') || n(0));
SELECT avro('nested', '{"type":"record","name":"o","fields":[' || fld('in', '["null",' || rec(fld('z', '"long"'), fld('skip', '"bytes"'), fld('m', '{"type":"map","values":"string"}')) || ']') || ']}',
    n(1) || n(77) || b('\xff') || n(2) || s('other') || s('x') || s('key') || s('v') || n(0), '{"","","","",in.m,in.z,in.m.key}');
SELECT avro('nested', '{"type":"record","name":"o","fields":[' || fld('in', '["null",' || rec(fld('z', '"long"')) || ']') || ']}', n(0), '{"","","","",in.m,in.z,in.m.key}');
SELECT avro('nested', rec(fld('m', '{"type":"array","items":[{"type":"int","logicalType":"date"},{"type":"long","logicalType":"timestamp-micros"},"bytes",{"type":"bytes","logicalType":"decimal","scale":1},"float","double","boolean","null",{"type":"enum","name":"e","symbols":["S"]},{"type":"fixed","name":"u","size":16,"logicalType":"uuid"},{"type":"fixed","name":"v","size":12,"logicalType":"duration"},{"type":"long","logicalType":"time-micros"}]}')),
    n(14) || n(0) || n(0) || n(1) || n(1) || n(2) || b('\x00ff') || n(3) || b('\xfb') || n(4) || f(0.1) || n(5) || d('-Infinity') || n(5) || d(0.1) || n(6) || '\x00' || n(7) || n(8) || n(0) || n(9) || '\xa0eebc999c0b4ef8bb6d6bb9bd380a11' || n(10) || '\x010000000200000003000000' || n(11) || n(1) || n(7) || n(0));

-- Named types, namespaces, types that contain themselves.
SELECT avro('nested', '{"type":"record","name":"a.b.node","fields":[{"name":"z","type":"long"},{"name":"m","type":["null","node"]}]}', n(1) || n(1) || n(2) || n(1) || n(3) || n(0));
SELECT avro('nested', '{"type":"record","name":"o","namespace":"n.s","fields":[{"name":"t","type":{"type":"enum","name":"e","symbols":["A","B"]}},{"name":"k","type":"n.s.e"},{"name":"m","type":{"type":"array","items":"e"}}]}', n(0) || n(1) || n(1) || n(1) || n(0));
SELECT decode_set('schema', '{"type":"enum","name":"n.color","symbols":["RED","BLUE"]}'), decode_set('schema 7', '{"type":"record","name":"r","fields":[{"name":"t","type":"n.color"}]}');
SELECT decode_bytes('nested', 'avro', '\x0000000007' || n(1));
SELECT decode_set('schema', NULL), decode_set('schema 7', NULL);

-- Framed and unframed messages in one topic; what is shorter than a frame; an id nobody knows.
CREATE TABLE one (id int);
SELECT decode_set('schema 7', rec(fld('id', '"int"')));
SELECT doc, decode_bytes('one', 'avro', doc) FROM unnest(ARRAY['\x000000000702', '\x7b7d', '\x000000', '\x', '\x00000000077b226964223a357d', '\x000000000802', '\x00000000070200', '\x0000000007']::bytea[]) AS doc;
-- The same with frames where none are expected, or JSON is.
SELECT decode_set('schema 7', NULL);
CREATE TABLE word (s text);
SELECT doc, avro('word', '"string"', doc) FROM unnest(ARRAY['\x000000000706616263', '\x06616263', '\x', '\x00']::bytea[]) AS doc;
SELECT decode_bytes('one', 'json', '\x00000000077b226964223a357d');
SELECT avro('event', '"string"', s('x')), avro('one', '"long"', n(5)), avro('word', '["null","string"]', n(0)), avro('word', '{"type":"array","items":"int"}', n(1) || n(4) || n(0));

-- Cut anywhere, a message is bad; so is one with bytes left.
SELECT count(*) AS cuts, count(*) FILTER (WHERE r LIKE '22P03 %') AS bad
FROM (SELECT n(3) || s('abc') || '\x01'::bytea || d(1) || n(2) || n(1) || n(2) || n(0) || n(1) || s('k') || b('\x01') || n(0) AS whole) w, generate_series(0, length(whole) - 1) AS cut,
    LATERAL avro('event', rec(fld('id', '"long"'), fld('name', '"string"'), fld('ok', '"boolean"'), fld('x', '"double"'), fld('a', '{"type":"array","items":"long"}'), fld('m', '{"type":"map","values":"bytes"}')), substr(whole, 1, cut)) AS r;
SELECT type, v, avro('word', rec(fld('s', type)), v) FROM (VALUES ('"int"', n(2147483648)), ('"long"', '\xffffffffffffffffff02'), ('"long"', '\xffffffffffffffffffff01'), ('"boolean"', '\x02'), ('["null","int"]', n(2)), ('["null","int"]', n(-1)), ('{"type":"enum","name":"e","symbols":["A"]}', n(1)),
    ('{"type":"enum","name":"e","symbols":[]}', n(0)), ('"string"', n(-1)), ('"string"', n(5) || 'abc'::bytea), ('"string"', b('\xff')), ('"string"', b('\x610062')), ('"bytes"', n(9223372036854775807)), ('{"type":"array","items":"int"}', n(-9223372036854775808)), ('{"type":"array","items":"int"}', n(-1) || n(-1)),
    ('{"type":"array","items":"null"}', n(1000000000000)), ('{"type":"map","values":"int"}', n(1) || b('\xff') || n(1) || n(0)), ('{"type":"array","items":"string"}', n(1) || b('\xff') || n(0)), ('{"type":"array","items":{"type":"int","logicalType":"time-millis"}}', n(1) || n(-5) || n(0)), ('"int"', n(1) || '\x00'::bytea), ('"int"', n(1) || '\x0000'::bytea)) AS t(type, v);
-- What nobody wants need not be text; what is part of something wanted must be.
SELECT avro('one', rec(fld('junk', '"string"'), fld('id', '"int"')), b('\xff') || n(5));
SELECT avro('nested', rec(fld('m', sub('q', fld('junk', '"string"')))), b('\xff'));
-- Nested deeply, and without end.
SELECT left(avro('nested', '{"type":"record","name":"n","fields":[{"name":"m","type":["null","n"]}]}', (SELECT string_agg(n(1), ''::bytea) FROM generate_series(1, depth)) || n(0)), 60) FROM unnest(ARRAY[3, 500, 513, 100000]) AS depth;
SELECT avro('nested', '{"type":"record","name":"n","fields":[{"name":"m","type":"n"}]}', '');

-- Schemas that are none.
SELECT schema, avro('word', schema, '\x00') FROM unnest(ARRAY['"string"', '']) AS schema;
CREATE FUNCTION schema_of(schema text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE detail text;
BEGIN
    PERFORM decode_set('schema 7', schema);
    RETURN decode_bytes('word', 'avro', '\x000000000700');
END $$;
SELECT decode_set('schema', NULL);
SELECT left(schema, 60) AS schema, schema_of(schema) FROM unnest(ARRAY['', '{', '1', 'null', '"text"', '{}', '{"type":1}', '{"type":"record"}', '{"type":"record","name":"r"}', '{"type":"record","name":"r","fields":1}', '{"type":"record","name":"r","fields":[1]}', '{"type":"record","name":"r","fields":[{"name":"s"}]}',
    '{"type":"record","name":"r","fields":[{"type":"int"}]}', '{"type":"enum","name":"e"}', '{"type":"enum","name":"e","symbols":[1]}', '{"type":"fixed","name":"f"}', '{"type":"fixed","name":"f","size":-1}', '{"type":"fixed","name":"f","size":1e10}', '{"type":"array"}', '{"type":"map"}', '["null",["null","int"]]', '[]', '{"type":"record","name":"r","fields":[{"name":"a","type":{"type":"enum","name":"r","symbols":[]}}]}',
    (SELECT repeat('{"type":"array","items":', 300) || '"int"' || repeat('}', 300)), '{"type":"array","items":"int","items":"nothing"}']) AS schema;
SELECT decode_set('schema 7', NULL);
SELECT decode_bytes('word', 'avro', '');

-- NOT NULL, on_bad_row 'null', columns not needed.
CREATE TABLE strict (id int NOT NULL, note varchar(3));
SELECT l, avro('strict', rec(fld('id', '["null","int"]'), fld('note', '"string"')), v, lenient => l) FROM unnest(ARRAY[false, true]) AS l, unnest(ARRAY[n(1) || n(1) || s('abc'), n(0) || s('abc'), n(1) || n(1) || s('abcd')]) AS v;
SELECT decode_bytes('strict', 'avro', n(1) || n(1) || s(v), only_columns => '{1}') FROM unnest(ARRAY['abc', 'abcd']) AS v;
SET client_min_messages = warning;
DROP SCHEMA decode_test CASCADE;
