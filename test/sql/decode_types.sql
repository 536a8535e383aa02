-- Every kind of column: what it takes of each JSON value, beside what PostgreSQL itself makes of it.
\getenv source PG_ABS_SRCDIR
\set functions :source '/lib/decode.psql'
\i :functions

-- Each value into each type, by the decoder and by json_to_record over the same document. Only differences are shown: a JSON string in a json
-- column keeps its spelling, and no other
-- (numbers in timestamp columns have rules of their own, below).
CREATE DOMAIN positive AS int CHECK (VALUE > 0);
CREATE DOMAIN no_null AS text NOT NULL;
CREATE DOMAIN tags AS text[] CHECK (cardinality(VALUE) < 3);
CREATE TYPE mood AS ENUM ('ok', 'sad');
CREATE TYPE pair AS (x int, y text);
CREATE TABLE value (v text);
INSERT INTO value VALUES
    ('null'), ('true'), ('false'), ('0'), ('-0'), ('1'), ('-1'), ('7.0'), ('2.5'), ('-2.5'), ('0.1'), ('1e2'), ('1E+2'), ('1e-7'), ('12.50'), ('-0.00'), ('0.0001'),
    ('32767'), ('32768'), ('-32768'), ('-32769'), ('2147483647'), ('2147483648'), ('-2147483648'), ('9007199254740993'), ('-9007199254740993'),
    ('999999999999999999'), ('1000000000000000000'), ('9223372036854775807'), ('9223372036854775808'), ('-9223372036854775808'), ('18446744073709551615'),
    ('123456789012345678901234567890'), ('0.1234567890123456789'), ('3.4028235e38'), ('3.4028236e38'), ('1e38'), ('1e39'), ('1e-46'), ('16777217'), ('1e22'), ('1e23'),
    ('1.7976931348623157e308'), ('1e309'), ('4.9e-324'), ('1e-324'), ('0.30000000000000004'), ('8.5'), ('8.499999999999999999999'), ('1e400'), ('12345.678'), ('123456.78'), ('99999.995'), ('20260301'),
    ('""'), ('"x"'), ('"ok"'), ('"sad"'), ('" 12 "'), ('"12"'), ('"-0"'), ('"1e2"'), ('"007"'), ('"1_000"'), ('"0x1F"'), ('"NaN"'), ('"Infinity"'), ('"-infinity"'), ('"+1"'), ('"1."'), ('".5"'),
    ('"true"'), ('"t"'), ('"on"'), ('"yes "'), ('"maybe"'), ('"\u00e9\u4e2d\ud83d\ude00"'), ('"a\"b\\c\/\b\f\n\r\t"'), ('"é中😀"'), ('"éé"'), ('"abc"'), ('"abcd"'), ('"abc  "'),
    ('"2026-03-01"'), ('"2026-03-01T10:00:00Z"'), ('"2026-03-01 10:00:00"'), ('"2026-03-01T10:00:00.5+05:30"'), ('"2026-03-01T10:00:00-08"'), ('"2026-03-01T10:00:00.123456789+0130"'),
    ('"2026-03-01T10:04:59.9999994Z"'), ('"2026-03-01T10:04:59.9999999Z"'), ('"2026-03-01T10:04:59.9999995Z"'), ('"2026-03-01T10:04:59.1234565Z"'), ('"2026-03-01T10:04:59.123456789012Z"'),
    ('"2016-12-31T23:59:60Z"'), ('"2016-12-31T23:59:60.5Z"'), ('"2016-12-31T23:59:61Z"'), ('"2020-01-01T12:00:60Z"'), ('"2024-02-29T00:00:00Z"'), ('"2023-02-29T00:00:00Z"'), ('"1900-02-29"'), ('"2000-02-29"'),
    ('"0000-01-01T00:00:00Z"'), ('"0001-01-01T00:00:00Z"'), ('"9999-12-31T23:59:59.999999Z"'), ('"2026-13-01T00:00:00Z"'), ('"2026-00-10"'), ('"2026-04-31"'), ('"2026-03-01T24:00:00Z"'), ('"2026-03-01T24:00:01Z"'),
    ('"2026-03-01T10:60:00Z"'), ('"2026-03-01T10:00:00+15:59"'), ('"2026-03-01T10:00:00+16:00"'), ('"2026-03-01T10:00:00+05:60"'), ('"2026-03-01T10:00:00 +05:30"'), ('"2026-03-01T10:00:00z"'),
    ('"2026-03-01T10:00Z"'), ('"20260301T100000Z"'), ('"2026-03-29T02:30:00"'), ('"2026-10-25T02:30:00"'), ('"2026-03-01T10:00:00 Europe/Berlin"'), ('"2026-03-01T10:00:00."'), ('"2026-03-01T10:00:00.Z"'), ('"2026-3-1T10:00:00Z"'),
    ('"Sun Mar 01 2026"'), ('"infinity"'), ('"epoch"'), ('"now "'), ('"294277-01-01"'), ('"0044-03-15 BC"'), ('"2026-03-01T10:00:00+0"'), ('"2026-03-01T10:00:00,5Z"'),
    ('"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"'), ('"A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11"'), ('"{a0eebc99-9c0b4ef8-bb6d6bb9-bd380a11}"'), ('"a0eebc999c0b4ef8bb6d6bb9bd380a11"'), ('"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a1"'), ('"g0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"'), ('"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a1-"'),
    ('[]'), ('[1, 2]'), ('[1, null, "3"]'), ('["a", "b,c", "d\"e"]'), ('[[1, 2], [3, 4]]'), ('[[1], 2]'), ('[[1], [2, 3]]'), ('["a","b","c"]'), ('[true]'), ('[{"x": 1}]'),
    ('{}'), ('{"x": 1, "y": "b"}'), ('{"x": "q"}'), ('{"y": {"z": [1]}}'), ('{"a": {"b": [1, 2.50, "x"]}}'), ('"{1,2}"'), ('"(1,b)"'), ('"[1, 2]"'), ('"\\x01ff"'), ('"1 day"'), ('"P1D"'), ('"10.0.0.1"');

-- What PostgreSQL makes of it: the value, or the error's SQLSTATE.
CREATE FUNCTION by_postgres(type text, v text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE answer text;
BEGIN
    PERFORM ('{"c":' || v || '}')::jsonb;
    EXECUTE format('SELECT t::text FROM json_to_record($1::json) AS t(c %s)', type) INTO answer USING '{"c":' || v || '}';
    RETURN answer;
EXCEPTION WHEN OTHERS THEN RETURN SQLSTATE;
END $$;
-- Made once per type; columns are added for types with spaces and brackets in their names.
CREATE FUNCTION by_us(type text, v text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE answer text;
BEGIN
    answer := row_of(quote_ident('of ' || type)::regclass, '{"c":' || v || '}');
    RETURN CASE WHEN answer LIKE '(%' THEN answer ELSE left(answer, 5) END;
END $$;
CREATE TABLE type (type text);
INSERT INTO type VALUES ('smallint'), ('int'), ('bigint'), ('real'), ('float8'), ('numeric'), ('numeric(7,2)'), ('numeric(3,-2)'), ('numeric(2,4)'), ('boolean'), ('text'), ('varchar'), ('varchar(3)'), ('char(4)'), ('bpchar'), ('name'), ('"char"'),
    ('timestamptz'), ('timestamp'), ('timestamptz(0)'), ('timestamp(3)'), ('date'), ('time'), ('timetz'), ('interval'), ('interval(0)'), ('uuid'), ('json'), ('jsonb'), ('bytea'), ('inet'), ('money'), ('oid'), ('point'), ('bit(3)'), ('int4range'),
    ('int[]'), ('text[]'), ('numeric(5,1)[]'), ('jsonb[]'), ('mood'), ('mood[]'), ('pair'), ('pair[]'), ('positive'), ('no_null'), ('tags'), ('tsvector'), ('regclass');
DO $$
DECLARE t text;
BEGIN
    FOR t IN SELECT type FROM type LOOP EXECUTE format('CREATE TABLE decode_test.%I (c %s)', 'of ' || t, t); END LOOP;
END $$;
SET timezone = 'Europe/Berlin';
SET extra_float_digits = 3;
SELECT count(*) AS pairs FROM type, value;
SELECT type, v, us, postgres
FROM type, value, by_us(type, v) AS us, by_postgres(type, v) AS postgres
WHERE us IS DISTINCT FROM postgres AND NOT (type ~ '^timestamp' AND v ~ '^[-0-9]')
ORDER BY type, v;

-- The same values as seen by users, some of each kind.
SELECT type, v, row_of(quote_ident('of ' || type)::regclass, '{"c":' || v || '}')
FROM (VALUES ('int', '"x"'), ('int', '1e2'), ('int', '2147483648'), ('bigint', '18446744073709551615'), ('numeric', '18446744073709551615'), ('bigint', '9007199254740993'), ('float8', '1e400'), ('float8', '1e-400'),
    ('numeric(7,2)', '123456.78'), ('varchar(3)', '"abcd"'), ('mood', '"mad"'), ('positive', '-1'), ('no_null', 'null'), ('tags', '["a","b","c"]'), ('int[]', '{"a":1}'), ('int[]', '["x"]'), ('pair', '{"x":"q"}'), ('pair', '[1]'),
    ('timestamptz', '"2016-12-31T23:59:60.5Z"'), ('timestamptz', '"soon"'), ('timestamptz', '5'), ('date', '"2026-02-30"'), ('uuid', '"x"'), ('text', '{"a": [1, 2.50]}'), ('json', '{"a" : 1}'), ('jsonb', '{"b":1,"a":2,"a":3}')) AS t(type, v);

-- Numbers in timestamp columns count timestamp_unit; parts of a microsecond round to the nearest.
SET timezone = 'UTC';
SELECT unit, v, row_of('"of timestamptz"', '{"c":' || v || '}', unit => unit), row_of('"of timestamp"', '{"c":' || v || '}', unit => unit), row_of('"of timestamptz(0)"', '{"c":' || v || '}', unit => unit)
FROM (VALUES ('s', '1772359200'), ('ms', '1772359200000'), ('us', '1772359200000000'), ('ms', '1000'), ('ms', '-86400000'), ('s', '1772359200000'), ('s', '1772359200000000'), ('', '1772359200'),
    ('s', '1772359200.123456'), ('s', '1772359200.1234567'), ('s', '1.7723592005E9'), ('ms', '1772359200123.5'), ('ms', '0.0005'), ('ms', '0.0015'), ('us', '0.5'), ('us', '-1.5'), ('s', '0'), ('s', '-0'),
    ('s', '1e400'), ('s', '-1e30'), ('us', '9223372036854775807'), ('s', '0.0000000000000000000000001'), ('s', '12345678901234567890.5'), ('s', '-210866803201'), ('s', '-210866803200'), ('s', '9224318015999'), ('s', '9224318016000'),
    ('s', '"1772359200"'), ('s', 'true')) AS t(unit, v);

-- The session's zone counts where the text has none; date style does not touch ISO texts.
SET timezone = 'America/New_York'; SET datestyle = 'SQL, DMY';
SELECT v, row_of('"of timestamptz"', '{"c":' || v || '}'), row_of('"of timestamp"', '{"c":' || v || '}')
FROM unnest(ARRAY['"2026-07-01 12:00:00"', '"2026-01-01 12:00:00"', '"2026-03-08T02:30:00"', '"2026-11-01T01:30:00"', '"2026-07-01T12:00:00Z"', '"2026-07-01T12:00:00+02:00"']) AS v;
SELECT row_of('"of timestamptz(0)"', '{"c": 1772359200.6}', unit => 's');
RESET timezone; RESET datestyle;

-- Errors that are not about the data fly.
CREATE FUNCTION broken(int) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'broken check'; END $$;
CREATE DOMAIN with_broken_check AS int CHECK (broken(VALUE));
CREATE TABLE broken_check (c with_broken_check);
SELECT row_of('broken_check', '{"c": 1}');
-- Bad values leave nothing behind.
BEGIN;
SELECT count(row_of(t, '{"c": "\u0001x"}')) FROM generate_series(1, 200), unnest(ARRAY['"of mood"', '"of positive"', '"of pair[]"', '"of int"']::regclass[]) AS t;
SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'transactionid';
COMMIT;
SET client_min_messages = warning;
DROP SCHEMA decode_test CASCADE;
