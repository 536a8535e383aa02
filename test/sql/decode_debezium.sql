-- Change events in Debezium's envelope: rows from after and before, op, values that did not come, numbers that are dates, tombstones.
\getenv source PG_ABS_SRCDIR
\set functions :source '/lib/decode.psql'
\i :functions
CREATE TABLE change (id bigint, name text, op text);
CREATE FUNCTION change(rel regclass, doc text, paths text[] DEFAULT '{}', unit text DEFAULT '', lenient boolean DEFAULT false) RETURNS text
    LANGUAGE sql AS $$ SELECT decode_bytes(rel, 'debezium', convert_to(doc, 'UTF8'), paths, unit, lenient) $$;
-- the same with a schema around it
CREATE FUNCTION wrapped(doc text, schema text DEFAULT 'null') RETURNS text LANGUAGE sql AS $$ SELECT format('{"schema":%s,"payload":%s}', schema, doc) $$;

-- Every kind of change, with and without the wrapper.
SELECT doc, change('change', doc), change('change', wrapped(doc)) FROM unnest(ARRAY[
    '{"before":null,"after":{"id":1,"name":"ann"},"source":{"lsn":5},"op":"c","ts_ms":1772359200000}',
    '{"op":"r","after":{"id":1,"name":"ann"}}',
    '{"op":"u","before":{"id":1,"name":"old"},"after":{"id":1,"name":"new"}}',
    '{"op":"d","before":{"id":1,"name":null},"after":null}',
    '{"op":"t","before":null,"after":null}', '{"op":"t"}']) AS doc;
-- What is none.
SELECT doc, change('change', doc) FROM unnest(ARRAY[
    '{}', '{"id":1}', '{"op":"c"}', '{"op":"c","after":null}', '{"op":"c","after":[1]}', '{"op":"d","after":{"id":1}}', '{"op":"d","before":null}', '{"op":"x","after":{"id":1}}', '{"op":"","after":{}}',
    '{"op":"delete","before":{}}', '{"op":1,"after":{"id":1}}', '{"op":null}', '{"op":"m","message":{}}', '{"schema":{},"payload":null}', '{"payload":{}}', '{"payload":{"after":{"id":1}}}', '{"op":"c","after":{"id":"x"}}',
    '{"op":"c","after":{"id":1}', 'null', '[]', '', '{"op":"c","after":{"id":1},"after":null}', '{"op":"c\u0063","after":{}}']) AS doc;

-- Columns with paths: other names, fields inside fields, the envelope's own; times of the envelope say their unit.
CREATE TABLE paths (ident bigint, city text, "table" text, lsn bigint, at timestamptz, at_us timestamp, old_name text, "own op" text, what varchar(1), source jsonb, name text);
SELECT change('paths', doc, '{id,address.city,source.table,source.lsn,source.ts_ms,ts_us,before.name,after.op,op,source,after.name}')
FROM unnest(ARRAY['{"op":"u","before":{"id":1,"name":"old"},"after":{"id":1,"name":"new","op":"own","address":{"city":"Rome"}},"source":{"table":"t","lsn":24023128,"ts_ms":1772359200123},"ts_us":1772359200123456}',
    '{"op":"d","before":{"id":1,"name":"old","op":"own","address":{"city":"Rome"}},"source":{"table":"t"}}']) AS doc;

-- Forms of dates, times, decimals, bytes and documents, as a schema names them.
CREATE TABLE forms (d date, t time, ts timestamp, tz timestamptz, i interval, n numeric, b bytea, j jsonb, s text, big bigint, f float8);
CREATE FUNCTION form(type text, form text, v text, scale text DEFAULT NULL) RETURNS text LANGUAGE sql AS $$
    SELECT string_agg(c || '=' || regexp_replace(r, '^\(,*|,*\)$', '', 'g'), ' ' ORDER BY c)
    FROM unnest('{d,t,ts,tz,i,n,b,j,s,big,f}'::text[]) AS c,
        LATERAL (SELECT decode_bytes('forms', 'debezium', convert_to(format(
            '{"schema":{"type":"struct","fields":[{"type":"struct","fields":[],"field":"before"},{"type":"struct","fields":[{"type":%s,"optional":true%s%s,"field":%s}],"field":"after"}]},"payload":{"op":"c","after":{%s:%s}}}',
            to_json(type), ',"name":' || to_json(form), ',"parameters":{"scale":' || to_json(scale) || '}', to_json(c), to_json(c), v), 'UTF8'))) AS d(r)
    WHERE r LIKE '(%' $$;
SELECT type, form, v, scale, form(type, form, v, scale) FROM (VALUES
    ('int32', 'io.debezium.time.Date', '20513', NULL), ('int32', 'io.debezium.time.Date', '-1', NULL), ('int32', 'io.debezium.time.Date', '2147483647', NULL), ('int32', 'org.apache.kafka.connect.data.Date', '0', NULL),
    ('int32', 'io.debezium.time.Time', '36000123', NULL), ('int64', 'io.debezium.time.MicroTime', '36000123456', NULL), ('int64', 'io.debezium.time.NanoTime', '36000123456500', NULL), ('int64', 'io.debezium.time.MicroTime', '86400000000', NULL), ('int64', 'io.debezium.time.MicroTime', '-1', NULL),
    ('int64', 'io.debezium.time.Timestamp', '1772359200123', NULL), ('int64', 'io.debezium.time.MicroTimestamp', '1772359200123456', NULL), ('int64', 'io.debezium.time.NanoTimestamp', '1772359200123456500', NULL), ('int64', 'io.debezium.time.NanoTimestamp', '1772359200123457500', NULL),
    ('int64', 'io.debezium.time.NanoTimestamp', '-500', NULL), ('int64', 'io.debezium.time.NanoTimestamp', '-1501', NULL), ('int64', 'io.debezium.time.MicroTimestamp', '9223372036854775807', NULL), ('int64', 'io.debezium.time.Timestamp', '9223372036854775807', NULL),
    ('string', 'io.debezium.time.ZonedTimestamp', '"2026-03-01T12:00:00.123456+02:00"', NULL), ('string', 'io.debezium.time.ZonedTime', '"12:00:00Z"', NULL), ('int64', 'io.debezium.time.MicroDuration', '86400000001', NULL), ('string', 'io.debezium.time.Interval', '"P1DT2H"', NULL),
    ('bytes', 'org.apache.kafka.connect.data.Decimal', '"MDk="', '2'), ('bytes', 'org.apache.kafka.connect.data.Decimal', '"/w=="', '0'), ('bytes', 'org.apache.kafka.connect.data.Decimal', '"AP8="', '4'), ('bytes', 'org.apache.kafka.connect.data.Decimal', '""', '1'),
    ('bytes', 'org.apache.kafka.connect.data.Decimal', '"gAAAAAAAAAA="', '3'), ('bytes', 'org.apache.kafka.connect.data.Decimal', '"AP////////////////////8="', '10'), ('bytes', 'org.apache.kafka.connect.data.Decimal', '"x"', '2'), ('bytes', 'org.apache.kafka.connect.data.Decimal', '"MDk="', '-2'), ('bytes', 'org.apache.kafka.connect.data.Decimal', '"MDk="', NULL),
    ('struct', 'io.debezium.data.VariableScaleDecimal', '{"scale":1,"value":"MDk="}', NULL), ('struct', 'io.debezium.data.VariableScaleDecimal', '{"value":"MDk=","scale":99999999999}', NULL), ('string', NULL, '"123.45"', NULL), ('double', NULL, '123.45', NULL),
    ('bytes', NULL, '"AP8K"', NULL), ('bytes', NULL, '"A"', NULL), ('bytes', NULL, '"QQ=="', NULL), ('string', 'io.debezium.data.Json', '"{\"a\": [1, null]}"', NULL), ('string', 'io.debezium.data.Json', '"{a"', NULL), ('string', 'io.debezium.data.Uuid', '"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"', NULL),
    ('boolean', NULL, 'true', NULL), ('int64', NULL, '12', NULL)) AS t(type, form, v, scale);

-- Without a schema the column's type decides; timestamps by timestamp_unit.
SELECT v, unit, change('forms', '{"op":"c","after":' || v || '}', unit => unit) FROM (VALUES
    ('{"d":20513,"i":1000000,"b":"AP8K","j":"{\"a\":1}","s":"x","n":"1.50","f":2.5,"big":20513}', ''), ('{"t":36000000,"ts":1772359200000,"tz":"2026-03-01T10:00:00Z"}', 'ms'), ('{"t":36000000000,"ts":1772359200000000,"n":{"scale":2,"value":"MDk="}}', 'us'),
    ('{"j":{"a":1},"d":"2026-03-01","t":"10:00","b":""}', ''), ('{"ts":1}', ''), ('{"t":1}', ''), ('{"d":1.5}', ''), ('{"b":"\\x00"}', ''), ('{"j":"x"}', ''), ('{"n":"MDk="}', '')) AS t(v, unit);
-- The schema may change from one event to the next.
SELECT change('forms', wrapped('{"op":"c","after":{"s":1}}', s)) FROM (SELECT format('{"fields":[{"field":"after","fields":[{"field":"s","type":"int64","name":"io.debezium.time.%s"}]}]}', n) AS s
    FROM unnest('{Date,Timestamp,MicroTimestamp,Date,Unknown}'::text[]) n) t;
SELECT s, change('forms', wrapped('{"op":"c","after":{"d":1}}', s)) FROM unnest(ARRAY['{}', '[]', '1', '{"fields":1}', '{"fields":[]}', '{"fields":[1,{"field":1},{"field":"after"}]}', '{"fields":[{"field":"after","fields":[1,{"field":"d","type":2,"name":3}]}]}']) AS s;

-- A value that was not touched is never taken for one: it is named, or the row is bad.
CREATE TABLE big (id int, v text, b bytea, a text[], unchanged text[]);
CREATE TABLE blind (id int, v text);
SELECT doc, change('big', doc), change('blind', doc) FROM unnest(ARRAY[
    '{"op":"u","after":{"id":1,"v":"__debezium_unavailable_value","b":"X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==","a":["__debezium_unavailable_value"]}}',
    '{"op":"u","after":{"id":1,"v":"x","b":"AA==","a":["__debezium_unavailable_value","x"]}}', '{"op":"u","after":{"id":2,"v":"\u005f_debezium_unavailable_value"}}']) AS doc;
SELECT change('blind', '{"op":"u","after":{"id":1,"v":"__debezium_unavailable_value"}}', lenient => true);

-- Tombstones: the key says which row is gone.
SELECT doc, decode_key('change', 'debezium', convert_to(doc, 'UTF8')) FROM unnest(ARRAY['{"id":7}', '{"schema":{"type":"struct","fields":[{"type":"int64","field":"id"}]},"payload":{"id":7}}', '{"id":7,"name":"x","other":1}', '{"ident":7}', '{}', '7', '"x"', 'x', '']) AS doc;
SELECT decode_key('forms', 'debezium', convert_to('{"schema":{"fields":[{"type":"int32","name":"io.debezium.time.Date","field":"s"}]},"payload":{"s":20513}}', 'UTF8'));

-- Columns with names of their own must be of the right type; NOT NULL and on_bad_row 'null' hold as for other formats.
CREATE TABLE wrong (id int, op int); CREATE TABLE wrong2 (id int, unchanged text); CREATE TABLE strict (id int NOT NULL, n int NOT NULL);
SELECT change('wrong', '{}');
SELECT change('wrong2', '{}');
SELECT change('wrong', '{"op":"c","after":{"id":1,"op":5}}', '{"",after.op}');
SELECT doc, change('strict', doc), change('strict', doc, lenient => true) FROM unnest(ARRAY['{"op":"c","after":{"id":1,"n":2}}', '{"op":"c","after":{"id":1,"n":"x"}}', '{"op":"d","before":{"id":1}}', '{"op":"t"}']) AS doc;
SELECT change('change', '{"op":"c","after":{"id":"x","name":"y"}}', lenient => true);
SET client_min_messages = warning;
DROP SCHEMA decode_test CASCADE;
