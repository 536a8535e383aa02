-- What is a good document, where its fields go, and what is said about a bad one.
\getenv source PG_ABS_SRCDIR
\set functions :source '/lib/decode.psql'
\i :functions
CREATE TABLE event (id bigint, name text, at timestamptz);

-- Fields by name and by path; missing ones and JSON null are NULL; unknown ones are ignored.
SELECT doc, row_of('event', doc, '{"",user.name,""}', 's') FROM unnest(ARRAY[
    '{"id": 1, "user": {"name": "ann"}, "at": 10}',
    ' { "at" : "2026-03-01T10:00:00Z" , "id" : -7 , "other" : [ { "id" : 2 } , { } , [ ] ] } ',
    '{"id": 4}',
    '{}',
    '{"id": null, "user": null, "at": null}',
    '{"user": {"age": 3}}',
    '{"user": [{"name": "in an array"}]}',
    '{"user": "name"}',
    '{"name": "not the path"}',
    E'{\n\t"id":\r\n 5\n}\n']) AS doc;

-- The last of repeated keys wins, with all that is in it, as in jsonb.
SELECT doc, row_of('event', doc, '{"",user.name,""}') FROM unnest(ARRAY[
    '{"id":2,"id":20}',
    '{"id":"x","id":20}',
    '{"id":2,"id":null}',
    '{"user":{"name":"a"},"user":{"name":"b"}}',
    '{"user":{"name":"a"},"user":{}}',
    '{"user":{"name":"a"},"user":1}',
    '{"user":{"name":"a","name":"c"}}',
    '{"id":1,"\u0069\u0064":2}']) AS doc;

-- Dots in names: a column's own name is a name; in a path \. stands for a dot. Two columns may share a field, or sit inside one another.
CREATE TABLE dotted ("a.b" int, c int, d jsonb, e int, f int);
SELECT row_of('dotted', '{"a.b": 1, "x.y": {"z": 2}, "a": {"b": 3, "c": 4}}', '{"","x\\.y.z",a,a.b,a.b}');
SELECT row_of('dotted', '{}', '{"","a..b"}');
SELECT row_of('dotted', '{}', ARRAY['', repeat('a.', 64) || 'a']);

-- Bad documents: syntax.
SELECT doc, row_of('event', doc) FROM unnest(ARRAY[
    '', ' ', 'not json', '{', '}', '{"id"', '{"id":', '{"id":1', '{"id":1,', '{"id":1,}', '{,}', '{"id" 1}', '{"id":1 "name":2}',
    '{id:1}', '{''id'':1}', '{"id":1}}', '{"id":1} x', '{"id":5}' || E'\n' || '{"id":6}', '[{"id":2},{"id":4}]', '"id"', '1', 'null', '[1,]', '[1',
    '{"id":004}', '{"id":12ii}', '{"id":NaN}', '{"id":Infinity}', '{"id":+1}', '{"id":.5}', '{"id":1.}', '{"id":1e}', '{"id":-}', '{"id":0x1}',
    '{"x":[1,2}', '{"x":{"y":1]}', '{"x":[}', '{"x":{"y"}}', '{"x":{1:2}}', '{"x":tru}', '{"x":True}', '{"x":nul', '{"x":falsehood}', '{"x":"abc}',
    '{"x":"\q"}', '{"x":"\u12g4"}', '{"x":"\u12', '{"x":"\', '{"x":"' || chr(10) || '"}', '{"x":"' || chr(1) || '"}',
    '{"x":"\ud83d"}', '{"x":"\ud83dx"}', '{"x":"\ude00"}', '{"x":"\ud83d\u0041"}', '{"x":"\ud83d\ud83d"}', '{"\ude00":1}',
    '{"x":"\u0000"}', '{"x\u0000":1}', '{"x":1e131072}', '{"x":[1e-20000]}', '{"x":1e999999999999999999}', '{"id":1}/**/', '//{"id":1}'
    ]) AS doc;

-- Bad documents: bytes. What is no UTF-8 is that first of all; a byte order mark is taken off.
SELECT doc, decode_bytes('event', 'json', doc) FROM unnest(ARRAY[
    '\x7b226964223a327d', '\x7b2261223a22c328227d', '\x7b0022', '\xefbbbf7b226964223a337d',
    '\xefbbbf', '\xefbb', '\x7b226e616d65223a22e282227d', '\x7b226e616d65223a22eda080227d',
    '\x7b226e616d65223a22c080227d', '\x7b226e616d65223a22f4908080227d', '\x7b226e616d65223a22f09f9880227d', '\x7b226e616d65223a22f09f98',
    '\x7b226964223a32ff', '\x7b226964223a3200327d', '\x7b2269c3a9223a327d', '\x7b226e616d65223a2201ff227d']::bytea[]) AS doc;

-- Depth is bounded, and no bracket can take the server down.
SELECT depth, left(row_of('event', '{"id":1,"x":' || repeat('[', depth) || repeat(']', depth) || '}'), 80) FROM unnest(ARRAY[3000, 6399, 6400, 100000]) AS depth;
SELECT left(row_of('event', repeat('[', 100000) || repeat(']', 100000)), 80);
SELECT left(row_of('event', repeat('{"x":', 100000) || '1' || repeat('}', 100000)), 80);
SELECT left(row_of('event', repeat('[', 1000000)), 80);
SELECT left(row_of('dotted', '{"x":' || repeat('[', 6399) || repeat(']', 6399) || '}', '{"","",x}'), 12);

-- A column that is not needed is checked all the same.
SELECT doc, row_of('event', doc, only_columns => '{1}') FROM unnest(ARRAY[
    '{"id":1,"name":"x","at":"2026-03-01T10:00:00Z"}', '{"id":1,"at":"soon"}', '{"id":"one"}']) AS doc;

-- NOT NULL columns; on_bad_row 'null'.
CREATE TABLE strict (id int NOT NULL, amount numeric(6,2), note varchar(3));
SELECT doc, row_of('strict', doc), row_of('strict', doc, lenient => true) FROM unnest(ARRAY[
    '{"id":1,"amount":2.5,"note":"abc"}', '{"amount":1}', '{"id":null}', '{"id":"x"}', '{"id":1,"amount":12345.67}', '{"id":1,"note":"abcd"}', '{"id":1,"note":"abcd"']) AS doc;

-- Many columns, in any order of keys, and keys that are like them.
DO $$ BEGIN EXECUTE (SELECT format('CREATE TABLE many (%s)', string_agg(format('c%s int', i), ', ')) FROM generate_series(1, 40) i); END $$;
SELECT row_of('many', (SELECT '{' || string_agg(format('"c%s": %s', i, i), ',' ORDER BY i * 7 % 41) || '}' FROM generate_series(1, 41) i));
SELECT row_of('many', '{"c40": 40, "zz": 0, "c1": 1, "c": 0, "c20": 20, "c200": 0}');

-- Formats text and raw: the message is the value.
CREATE TABLE line (body text); CREATE TABLE short_line (body varchar(3) NOT NULL); CREATE TABLE blob (body bytea); CREATE TABLE two (a text, b text);
SELECT doc, decode_bytes('line', 'text', doc), decode_bytes('short_line', 'text', doc), decode_bytes('blob', 'raw', doc)
FROM unnest(ARRAY['abc', '', 'abcd', '\x7b226964223a327d', '\x7b2261223a22c328227d', '\x7b0022', '\xefbbbf616263', '\xc3a9']::bytea[]) AS doc;
SELECT decode_bytes('two', 'text', 'x');
SELECT decode_bytes('blob', 'text', 'x');
SELECT decode_bytes('line', 'raw', 'x');
SELECT decode_bytes('line', 'xml', 'x');
SET client_min_messages = warning;
DROP SCHEMA decode_test CASCADE;
