-- CSV in messages: one record each; delimiter, NULL, quotes; what is wrong with a record makes it a bad row and never a shifted one.
\getenv source PG_ABS_SRCDIR
\set functions :source '/lib/decode.psql'
\i :functions
CREATE TABLE event (id bigint, name text, at timestamptz);
CREATE FUNCTION csv(doc text, rel regclass DEFAULT 'event', lenient boolean DEFAULT false) RETURNS text
    LANGUAGE sql AS $$ SELECT decode_bytes(rel, 'csv', convert_to(doc, 'UTF8'), lenient => lenient) $$;

-- Fields in the order of the columns; NULL is an empty field without quotes; a line end at the end is none of it.
SELECT doc, csv(doc) FROM unnest(ARRAY[
    '1,ann,2026-03-01T10:00:00Z', '1,"ann",', '1,"",', ',,', '"7","a,b","2026-03-01 10:00:00+02"', '1,"say ""hi""",', E'1,"two\nlines",', E'1,ann,\n', E'1,ann,\r\n', E'1,"x"\r\n,', '1, ann ,',
    '1,é,', '1,''x'',', '1,\N,', '1,NULL,', '-9223372036854775808,x,infinity']) AS doc;

-- Bad records: too few, too many, quotes, a second record, values, bytes.
SELECT doc, csv(doc) FROM unnest(ARRAY['', '1', '1,a', '1,a,,', '1,"a,', '1,"a"b,', '1,a"b,', '1,"a" ,', E'1,a,\n2,b,', E'1,a\n2,b', E'\n', E'1,a,\n\n', 'x,a,', '1,a,soon', '9223372036854775808,a,']) AS doc;
SELECT doc, decode_bytes('event', 'csv', doc) FROM unnest(ARRAY['\x312cff2c', '\x312c612c00', '\xefbbbf312c612c', '\xefbb312c612c', '\x']::bytea[]) AS doc;
SELECT doc, csv(doc, lenient => true) FROM unnest(ARRAY['x,a,soon', '1,a']) AS doc;

-- Parts of a microsecond round as everywhere.
SELECT doc, csv(doc) FROM unnest(ARRAY['1,,2026-03-01T10:04:59.9999994Z', '2,,2026-03-01T10:04:59.9999999Z', '3,,2016-12-31T23:59:60Z', '4,,2016-12-31T23:59:61Z']) AS doc;

-- One column: an empty message is NULL. NOT NULL columns.
CREATE TABLE single (body text); CREATE TABLE strict (id int NOT NULL, note varchar(3));
SELECT doc, csv(doc, 'single') FROM unnest(ARRAY['', '""', 'abc', 'a,b']) AS doc;
SELECT doc, csv(doc, 'strict'), csv(doc, 'strict', true) FROM unnest(ARRAY['1,abc', ',abc', '1,abcd', '"",abc']) AS doc;

-- Another delimiter, another NULL.
SELECT decode_set('delimiter', E'\t'), decode_set('null', '\N');
SELECT doc, csv(doc) FROM unnest(ARRAY[E'1\tann\t\\N', E'1\t\t\\N', E'1\t"\\N"\t\\N', E'1\ta,b\t\\N', E'\\N\t\\N\t\\N', '1,ann,', E'1\tann\t']) AS doc;
SELECT decode_set('delimiter', NULL), decode_set('null', 'NULL');
SELECT doc, csv(doc) FROM unnest(ARRAY['1,NULL,NULL', '1,null,NULL', '1,"NULL",NULL', '1,NULLS,NULL', 'NULL,,NULL']) AS doc;
SET client_min_messages = warning;
DROP SCHEMA decode_test CASCADE;
