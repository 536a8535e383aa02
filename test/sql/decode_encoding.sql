-- Messages are UTF-8 whatever the database is: converted where they can be, bad rows where they cannot.
SET client_min_messages = warning;
CREATE DATABASE decode_latin1 TEMPLATE template0 ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C';
CREATE DATABASE decode_ascii TEMPLATE template0 ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C';
CREATE DATABASE decode_euc TEMPLATE template0 ENCODING 'EUC_JP' LC_COLLATE 'C' LC_CTYPE 'C';
RESET client_min_messages;

\c decode_latin1
\getenv source PG_ABS_SRCDIR
\set functions :source '/lib/decode.psql'
\set ECHO none
\i :functions
\set ECHO all
-- Documents are given as bytes: é is \xc3a9 in them, and one byte in the database. 中 has no place there (how jsonb says so depends on the version).
CREATE TABLE word (id int, w text, v varchar(2), j jsonb, k json, a text[]);
CREATE FUNCTION shown(doc text) RETURNS text LANGUAGE sql AS $$ SELECT regexp_replace(convert_from(convert_to(r, 'LATIN1'), 'LATIN1'), '(22P05 column "j"): .*', '\1') FROM decode_bytes('word', 'json', convert_to(doc, 'UTF8')) AS r $$;
SET client_encoding = 'UTF8';
SELECT doc, shown(doc) FROM unnest(ARRAY['{"w":"plain"}', '{"w":"é"}', '{"w":"\u00e9"}', '{"w":"\u4e2d"}', '{"v":"éé"}', '{"v":"ééé"}', '{"j":{"é":"\u00e9"}}', '{"j":{"x":"\u4e2d"}}', '{"k":{"é":1}}', '{"a":["é","\u00e9"]}']) AS doc;
SELECT doc, decode_bytes('word', 'json', doc) FROM unnest(ARRAY['\x7b2277223a22e4b8ad227d', '\x7b2277223a22e9227d', '\x7b226964223a312c2278223a22e4b8ad227d', '\x7b226b223a7b2278223a22e4b8ad227d7d']::bytea[]) AS doc;
SELECT octet_length(w) FROM (SELECT substr(decode_bytes('word', 'json', '\x7b2277223a22c3a9227d'), 3, 1) AS w) AS row;
CREATE TABLE named (é int);
SELECT decode_bytes('named', 'json', convert_to('{"é":7}', 'UTF8'));
CREATE TABLE line (body text);
SELECT doc, decode_bytes('line', 'text', doc) FROM unnest(ARRAY['\xc3a9', '\xe4b8ad', '\xe9']::bytea[]) AS doc;

-- The other formats.
CREATE TABLE pair (w text, é text);
SELECT doc, decode_bytes('pair', 'csv', doc) FROM unnest(ARRAY['\xc3a92c22c3a922', '\x782ce4b8ad', '\xe92c78']::bytea[]) AS doc;
SELECT decode_set('null', 'é'), decode_bytes('pair', 'csv', '\xc3a92c22c3a922'), decode_set('null', NULL);
SELECT doc, regexp_replace(decode_bytes('word', 'debezium', convert_to(doc, 'UTF8')), '(22P05 column "j"): .*', '\1') AS row
FROM unnest(ARRAY['{"op":"c","after":{"w":"é","j":"{\"é\": 1}","a":["é"]}}', '{"op":"c","after":{"w":"\u4e2d"}}', '{"op":"c","after":{"j":"{\"x\": \"\\u4e2d\"}"}}']) AS doc;
SELECT decode_bytes('pair', 'debezium', convert_to('{"schema":{"fields":[{"field":"after","fields":[{"field":"é","type":"int32","name":"io.debezium.time.Date","doc":"é"}]}]},"payload":{"op":"c","after":{"é":1}}}', 'UTF8'));
SELECT decode_set('schema', '{"type":"record","name":"r","doc":"é","fields":[{"name":"w","type":"string"},{"name":"j","type":{"type":"map","values":"string"}}]}');
SELECT doc, regexp_replace(decode_bytes('word', 'avro', doc), '(22P05 column "j"): .*', '\1') AS row FROM unnest(ARRAY['\x04c3a90204c3a904c3a900', '\x06e4b8ad00', '\x0002027806e4b8ad00', '\x02e900']::bytea[]) AS doc;

\c decode_ascii
\set ECHO none
\i :functions
\set ECHO all
-- No conversion here: the bytes stay UTF-8, and an escape becomes the same bytes.
CREATE TABLE word (id int, w text, j jsonb, a text[]);
SELECT doc, decode_bytes('word', 'json', doc)::bytea FROM unnest(ARRAY['\x7b2277223a22c3a9227d', '{"w":"\\u00e9"}', '\x7b2277223a22e9227d', '{"w":"plain"}', '\x7b226a223a22c3a9227d']::bytea[]) AS doc;

\c decode_euc
\set ECHO none
\i :functions
\set ECHO all
CREATE TABLE word (w text, v varchar(1));
SELECT doc, decode_bytes('word', 'json', doc)::bytea FROM unnest(ARRAY['\x7b2277223a22e4b8ad227d', '\x7b2276223a22e4b8ad227d', '{"w":"\\u4e2d"}', '\x7b2277223a22c3a9227d', '\x7b2277223a22f09f9880227d']::bytea[]) AS doc;

\c template1
DROP DATABASE decode_latin1;
DROP DATABASE decode_ascii;
DROP DATABASE decode_euc;
