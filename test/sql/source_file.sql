-- The file source: which files are read, in which order, how their bytes become rows; what is refused.
CREATE SCHEMA source_file;
SET search_path = source_file;
\set VERBOSITY terse
\getenv place PG_ABS_BUILDDIR
SELECT :'place' || '/source_file' AS dir \gset
SELECT set_config('test.dir', :'dir', false) IS NOT NULL AS ok;
CREATE PROCEDURE run(command text) LANGUAGE plpgsql AS $$ BEGIN EXECUTE format('COPY (SELECT) TO PROGRAM %L', 'cat > /dev/null; ' || command); END $$;
CALL run('rm -rf ' || :'dir' || '; mkdir -p ' || :'dir' || '/in ' || :'dir' || '/archive');
-- A file by its bytes, with a time of its own when it matters.
CREATE PROCEDURE put(name text, content bytea, modified text DEFAULT NULL) LANGUAGE plpgsql AS $$
DECLARE path text := current_setting('test.dir') || '/' || name; object oid := lo_from_bytea(0, content);
BEGIN
    PERFORM lo_export(object, path);
    PERFORM lo_unlink(object);
    IF modified IS NOT NULL THEN CALL run(format('touch -d %L %L', modified, path)); END IF;
END $$;
CREATE PROCEDURE put(name text, content text, modified text DEFAULT NULL) LANGUAGE sql AS $$ CALL put(name, convert_to(content, 'UTF8'), modified) $$;
CREATE FUNCTION source(name text, path text, columns text, options jsonb DEFAULT '{}') RETURNS text LANGUAGE sql AS $$
    SELECT 'made' FROM stream.create_source(name, 'file', columns, options || jsonb_build_object('path', current_setting('test.dir') || '/' || path)) $$;
CREATE FUNCTION query(name text, text text, options jsonb DEFAULT '{}') RETURNS text LANGUAGE sql AS $$
    SELECT 'made' FROM stream.create_query(name, text, stream.to_table(name || '_out'), options => options, start => false) $$;
CREATE FUNCTION names(path text) RETURNS text LANGUAGE sql AS $$ SELECT regexp_replace(path, '^.*/', '') $$;
CREATE VIEW letters AS SELECT query, names(position->>'file') AS file, position->>'line' AS line, encode(raw, 'escape') AS raw, error FROM stream.dead_letters ORDER BY id;

-- CSV: quotes, line ends inside them, CRLF, NULL and the empty string, a last line without its end, blank lines.
CALL run('mkdir ' || :'dir' || '/csv');
CALL put('csv/1.csv', E'1,"a ""b"", c\nd",2.5\r\n2,,\r\n\r\n3,"",7\r\n"4","x"," 8 "\n5,no end,9');
SELECT source('csv', 'csv', 'id int, v text, w text, n numeric, file_line int');
SELECT source('c3', 'csv', 'id int, v text, n numeric, file_line int, file_path text, file_modified timestamptz');
SELECT id, v, v IS NULL AS is_null, n, file_line, names(file_path) AS file FROM c3;
SELECT query('c3', 'SELECT id, v, n, file_line FROM c3');
CALL stream.process_all_available('c3');
SELECT id, v, n, file_line FROM c3_out ORDER BY id;
-- The wrong number of fields is a bad row, never a shift.
SELECT query('csv', 'SELECT id, v, w, n FROM csv');
CALL stream.process_all_available('csv');
SELECT * FROM csv_out;
SELECT line, raw, error FROM letters WHERE query = 'csv';

-- What cannot be read, record by record: the records around it are.
CALL run('mkdir ' || :'dir' || '/bad');
CALL put('bad/1.csv', E'id,v\n1,x\n\\.\n2,5" pipe\n3,"y"z\n4,"two ""quotes"""\n5,"\nx,y\n"\nsix,s\n7,"never closed\n8,z\n');
CALL put('bad/2.csv', '\x69642c760a31302cff0a31312c610a31322c6200630a31332c22c3a4220a'::bytea);
SELECT source('bad', 'bad', 'id int, v text', '{"header": true}');
SELECT query('bad', 'SELECT id, v FROM bad');
CALL stream.process_all_available('bad');
SELECT id, v FROM bad_out ORDER BY id;
SELECT file, line, raw, error FROM letters WHERE query = 'bad';
SELECT rows_bad FROM stream.queries WHERE name = 'bad';
SELECT stream.alter_source('bad', '{"on_bad_row": "fail"}');
SELECT count(*) FROM bad;
SELECT stream.alter_source('bad', '{"on_bad_row": "null"}');
SELECT id, v FROM bad WHERE id IS NULL;
SELECT stream.alter_source('bad', '{"on_bad_row": "skip"}');
SELECT count(*) FROM bad;

-- A header names columns, in any order; others are passed over, missing ones are NULL; one that names none makes its records bad.
CALL run('mkdir ' || :'dir' || '/head');
CALL put('head/1.csv', E'v,other,id\na,x,1\n');
CALL put('head/2.csv', E'id\n2\n');
CALL put('head/3.csv', E'"id","v"\n3,c\n');
CALL put('head/4.csv', E'ID,V\n4,d\n5,e\n');
CALL put('head/5.csv', E'id;v\n6;f\n');
SELECT source('head', 'head/*.csv', 'id int, v text, batch bigint', '{"header": true}');
SELECT query('head', 'SELECT id, v, stream.batch_id() AS b FROM head', '{}');
CALL stream.process_all_available('head');
SELECT id, v FROM head_out ORDER BY id;
SELECT file, line, raw, error FROM letters WHERE query = 'head';
SELECT source('strict', 'head/2.csv', 'id int, v text NOT NULL', '{"header": true}');
SELECT * FROM strict;
SELECT source('semicolon', 'head/5.csv', 'id int, v text', '{"header": true, "delimiter": ";"}');
SELECT * FROM semicolon;

-- A byte order mark is no part of the first name or value.
CALL run('mkdir ' || :'dir' || '/mark');
CALL put('mark/a.csv', '\xEFBBBF'::bytea || convert_to(E'a,b\n1,x\n', 'UTF8'));
CALL put('mark/b.csv', '\xEFBBBF'::bytea || convert_to(E'1,x\n', 'UTF8'));
CALL put('mark/c.json', '\xEFBBBF'::bytea || convert_to('{"a":"1","b":"x"}', 'UTF8'));
CALL put('mark/d.csv', '\xEFBB'::bytea);
SELECT source('mark_a', 'mark/a.csv', 'a text, b text', '{"header": true}');
SELECT source('mark_b', 'mark/b.csv', 'a text, b text');
SELECT source('mark_c', 'mark/c.json', 'a text, b text');
SELECT source('mark_d', 'mark/d.csv', 'a text, b text');
SELECT a, octet_length(a), b FROM mark_a UNION ALL SELECT a, octet_length(a), b FROM mark_b UNION ALL SELECT a, octet_length(a), b FROM mark_c;
SELECT * FROM mark_d;

-- Empty files, headers without rows, blank lines, blanks; each is a file that was read, once.
CALL run('mkdir ' || :'dir' || '/empty');
CALL put('empty/e0.csv', '');
CALL put('empty/e1.csv', E'a,b\n');
CALL put('empty/e2.csv', E'a,b\n1,x\n2,y');
CALL put('empty/e3.csv', E'a,b\n1,"x\ny"\n2,\n3,""\n');
SELECT source('empty', 'empty/*.csv', 'a int, b text', '{"header": true}');
SELECT query('empty', 'SELECT a, b FROM empty');
CALL stream.process_all_available('empty');
SELECT a, b, b IS NULL AS is_null FROM empty_out ORDER BY a, b;
SELECT names(path) AS file FROM stream.seen_file WHERE query_id = (SELECT id FROM stream.queries WHERE name = 'empty') ORDER BY n;
CALL put('empty/e4.json', E'\n{"a":1}\n\n  \n{"a":2}');
SELECT source('lines', 'empty/*.json', 'a int');
SELECT * FROM lines;
CALL put('empty/e5.txt', E'one\n\nthree');
SELECT source('plain', 'empty/*.txt', 'line text, file_line bigint');
SELECT * FROM plain;

-- gzip: by content; several members are one file; nothing compressed is an empty file.
CALL run('mkdir ' || :'dir' || '/gz');
CALL put('gz/a.json', E'{"id":1}\n{"id"');
CALL put('gz/b.json', E':2}\n{"id":3}\n');
CALL put('gz/e.json', '');
CALL run('cd ' || :'dir' || '/gz && gzip -nc a.json > 1.json.gz && gzip -nc b.json >> 1.json.gz && gzip -nc e.json > 2.json.gz && gzip -nc b.json > 3.json && rm ?.json');
CALL run('cd ' || :'dir' || '/gz && (cat 1.json.gz; head -c 100 /dev/zero) > 4.json.gz');
SELECT source('gz', 'gz', 'id int, file_path text');
SELECT names(file_path) AS file, array_agg(id) FROM gz GROUP BY 1 ORDER BY 1;
-- Cut short or damaged: an error that names the file, and nothing of it; the other files wait with it.
CALL run('mkdir ' || :'dir' || '/cut; cd ' || :'dir' || '/cut && seq -f ''{"id":%.0f}'' 1 20000 | gzip -nc > whole && head -c -6 whole > trailer && head -c 3000 whole > data && (cat whole; echo junk) > junk && (head -c -1 whole; printf x) > crc && : > nothing');
CREATE FUNCTION cut(what text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    CALL run(format('cd %s/cut && ln %s %s.json.gz', current_setting('test.dir'), what, what));
    PERFORM source(what, 'cut/' || what || '.json.gz', 'id int');
    EXECUTE 'SELECT count(*) FROM ' || what INTO what;
    RETURN what;
EXCEPTION WHEN data_corrupted THEN
    RETURN sqlstate || ' ' || replace(sqlerrm, current_setting('test.dir'), '');
END $$;
SELECT cut(what) FROM unnest('{whole,trailer,data,junk,crc,nothing}'::text[]) what;
CALL run('rm ' || :'dir' || '/cut/*.gz; cd ' || :'dir' || '/cut && echo ''{"id":0}'' > 1.json && ln trailer 2.json.gz');
SELECT source('cuts', 'cut/*.json*', 'id int');
SELECT query('cuts', 'SELECT id FROM cuts');
\set VERBOSITY sqlstate
CALL stream.process_all_available('cuts');
\set VERBOSITY terse
SELECT count(*) FROM cuts_out;
SELECT stream.skip_batch('cuts', 0);
CALL run('cd ' || :'dir' || '/cut && echo ''{"id":9}'' > 3.json');
CALL stream.process_all_available('cuts');
SELECT id FROM cuts_out;

-- A file that grows is read as far as it was there; one that shrinks or goes before its batch is an error.
CALL run('mkdir ' || :'dir' || '/grow');
CALL put('grow/1.json', E'{"id":1}\n');
SELECT source('grow', 'grow', 'id int');
SELECT query('grow', 'SELECT id FROM grow');
CREATE TABLE stop (id int);
INSERT INTO stop VALUES (1);
CREATE FUNCTION check_stop() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF EXISTS (SELECT FROM source_file.stop) THEN RAISE 'stopped'; END IF; RETURN new; END $$;
CREATE TRIGGER check_stop BEFORE INSERT ON grow_out FOR EACH ROW EXECUTE FUNCTION check_stop();
CALL stream.process_all_available('grow');
CALL put('grow/1.json', E'{"id":1}\n{"id":2}\n');
TRUNCATE stop;
CALL stream.process_all_available('grow');
CALL put('grow/1.json', E'{"id":1}\n{"id":2}\n{"id":3}\n');
CALL stream.process_all_available('grow');
SELECT array_agg(id) FROM grow_out;
INSERT INTO stop VALUES (1);
CALL put('grow/2.json', E'{"id":4}\n{"id":5}\n');
CALL stream.process_all_available('grow');
TRUNCATE stop;
CALL put('grow/2.json', E'{"id":4}\n');
\set VERBOSITY sqlstate
CALL stream.process_all_available('grow');
CALL run('rm ' || :'dir' || '/grow/2.json');
CALL stream.process_all_available('grow');
\set VERBOSITY terse
CALL put('grow/2.json', E'{"id":4}\n{"id":5}\n');
CALL stream.process_all_available('grow');
SELECT array_agg(id) FROM grow_out;
-- Names of what is not finished, and hidden ones, are passed over; a torn line is a bad row, never a row of NULLs.
CALL put('grow/3.json.tmp', E'{"id":6}\n');
CALL put('grow/_4.json', E'{"id":7}\n');
CALL put('grow/.5.json', E'{"id":8}\n');
CALL put('grow/6.json', E'{"id":9}\n{"id":');
CALL stream.process_all_available('grow');
CALL run('cd ' || :'dir' || '/grow && mv 3.json.tmp 3.json');
CALL stream.process_all_available('grow');
SELECT array_agg(id) FROM grow_out;
SELECT file, line, raw FROM letters WHERE query = 'grow';
-- With settle_time a file is taken when it has been left alone for so long.
SELECT source('settle', 'grow/6.json', 'id int', '{"settle_time": "1 hour"}');
SELECT query('settle', 'SELECT id FROM settle');
CALL stream.process_all_available('settle');
SELECT count(*) FROM settle_out;
CALL put('grow/6.json', E'{"id":9}\n{"id":10}\n', '2026-03-01 10:00');
CALL stream.process_all_available('settle');
SELECT array_agg(id) FROM settle_out;

-- Order and limits. Identity is the path, not a time: what comes late with an old time is read, what was read is not read again.
CALL run('mkdir ' || :'dir' || '/order');
CALL put('order/a.json', '{"id":1}', '2026-03-01 10:00:05');
CALL put('order/d.json', '{"id":4}', '2026-03-01 10:00:01');
SELECT source('ordered', 'order', 'id int', '{"max_files_per_batch": 1}');
SELECT query('ordered', 'SELECT id, stream.batch_id() AS b FROM ordered');
CALL stream.run_batch('ordered', NULL);
CALL stream.process_all_available('ordered');
CALL put('order/b.json', '{"id":2}', '2026-03-01 10:00:03');
CALL put('order/c.json', '{"id":3}', '2026-03-01 10:00:05');
CALL stream.process_all_available('ordered');
CALL put('order/a.json', '{"id":9}', '2026-03-01 11:00:00');
CALL stream.process_all_available('ordered');
SELECT id, b FROM ordered_out ORDER BY b;
-- Newest first; the limit keeps old files from growing too old.
CALL put('order/old.json', '{"id":0}', '2026-02-01 10:00:00');
SELECT source('newest', 'order', 'id int', '{"max_files_per_batch": 2, "latest_first": true, "max_file_age": "7 days"}');
SELECT query('newest', 'SELECT id, stream.batch_id() AS b FROM newest');
CALL stream.process_all_available('newest');
SELECT b, array_agg(id ORDER BY id) FROM newest_out GROUP BY b ORDER BY b;
-- Oldest first the age is that of the newest file seen, and spares the first batch.
SELECT source('aged', 'order', 'id int', '{"max_file_age": "7 days"}');
SELECT query('aged', 'SELECT id, stream.batch_id() AS b FROM aged');
CALL stream.process_all_available('aged');
CALL put('order/older.json', '{"id":-1}', '2026-02-02 10:00:00');
CALL put('order/next.json', '{"id":5}', '2026-02-28 10:00:00');
CALL stream.process_all_available('aged');
SELECT b, array_agg(id ORDER BY id) FROM aged_out GROUP BY b ORDER BY b;
SELECT source('backlog', 'order', 'id int', '{"max_file_age": "7 days", "max_files_per_batch": 2}');
SELECT query('backlog', 'SELECT id FROM backlog');
CALL stream.process_all_available('backlog');
SELECT count(*) FROM backlog_out;
-- Bytes are a limit too; a file is never split.
SELECT query('bytes', 'SELECT id, stream.batch_id() AS b FROM aged', '{"max_bytes_per_batch": 20}');
CALL stream.process_all_available('bytes');
SELECT b, count(*) FROM bytes_out GROUP BY b ORDER BY b;
-- Once: everything, whatever the limit.
SELECT 'made' FROM stream.create_query('once', 'SELECT id FROM ordered', stream.to_table('once_out'), trigger => stream.once(), start => false);
CALL stream.process_all_available('once');
SELECT count(*), count(DISTINCT batch_id) FROM once_out;

-- Rewound, the same files come again; reset, whatever is there now.
SELECT stream.rewind_query('ordered', 0);
DELETE FROM ordered_out WHERE b > 0;
CALL stream.process_all_available('ordered');
SELECT count(*), count(DISTINCT b) FROM ordered_out;
CALL run('rm ' || :'dir' || '/order/d.json');
SELECT stream.reset_query('ordered');
TRUNCATE ordered_out;
CALL stream.process_all_available('ordered');
SELECT array_agg(id ORDER BY b) FROM ordered_out;

-- What is read may go.
CALL run('cd ' || :'dir' || ' && mkdir clean && cp order/a.json order/b.json clean');
SELECT source('cleaned', 'clean/*.json', 'id int', '{"clean_source": "delete"}');
SELECT query('cleaned', 'SELECT id FROM cleaned');
CALL stream.process_all_available('cleaned');
SELECT pg_ls_dir(:'dir' || '/clean');
-- Not what comes under a name that was read, also to a reader that knows of no clean up.
CALL run('cd ' || :'dir' || ' && echo ''{"id": 100}'' > clean/a.json && echo ''{"id": 101}'' > clean/c.json');
CALL stream.process_all_available('cleaned');
SELECT pg_ls_dir(:'dir' || '/clean');
CALL run('rm ' || :'dir' || '/clean/a.json');
-- However many a batch reads.
CALL run('mkdir ' || :'dir' || '/many && cd ' || :'dir' || '/many && echo ''{"id": 1}'' > one && perl -e ''link "one", "$_.json" for 1..10010'' && rm one');
SELECT source('many', 'many', 'id int', '{"clean_source": "delete"}');
SELECT query('many', 'SELECT id FROM many');
CALL stream.process_all_available('many');
SELECT count(*), sum(id) FROM many_out;
SELECT count(*) FROM pg_ls_dir(:'dir' || '/many');
SELECT source('archived', 'clean/*.json', 'id int', jsonb_build_object('clean_source', 'archive', 'archive_dir', :'dir' || '/archive'));
SELECT query('archived', 'SELECT id FROM archived');
CALL run('cd ' || :'dir' || ' && cp order/a.json order/b.json clean && echo old > archive/a.json');
CALL stream.process_all_available('archived');
SELECT pg_ls_dir(:'dir' || '/clean');
SELECT name, pg_read_file(:'dir' || '/archive/' || name) AS content FROM pg_ls_dir(:'dir' || '/archive') name ORDER BY 1;
\set VERBOSITY sqlstate
SELECT source('circle', 'clean', 'id int', jsonb_build_object('clean_source', 'archive', 'archive_dir', :'dir' || '/clean'));
SELECT source('circle', '*/a.json', 'id int', jsonb_build_object('clean_source', 'archive', 'archive_dir', :'dir' || '/archive'));
\set VERBOSITY terse
SELECT source('circle', 'clean', 'id int', '{"clean_source": "archive"}');

-- Links that lead out of the directory are not followed, nor anything that is no regular file.
CALL run('cd ' || :'dir' || ' && mkdir links && ln -s ../order/a.json links/out.json && ln -s /etc/passwd links/passwd.json && mkfifo links/pipe.json && mkdir links/dir.json && echo ''{"id":1}'' > links/in.json && ln -s in.json links/inside.json');
SELECT source('links', 'links', 'id int, file_path text');
SELECT id, names(file_path) FROM links ORDER BY 2;

-- Roots, and paths that try to leave them.
SELECT set_config('stream_ext.file_roots', :'dir' || '/in', false) IS NOT NULL AS ok;
\set VERBOSITY sqlstate
SELECT source('outside', 'order', 'id int');
SELECT source('outside', 'in/../order', 'id int');
SELECT * FROM links;
CALL run('ln -s ../order ' || :'dir' || '/in/link');
SELECT source('outside', 'in/link', 'id int');
SELECT source('outside', 'in/link/*.json', 'id int');
\set VERBOSITY terse
SELECT source('inside', 'in', 'id int');
SELECT * FROM inside;
SELECT source('wild', 'in/*/a.json', 'id int');
SELECT * FROM wild;
RESET stream_ext.file_roots;

-- Privileges: of the source's owner, at every read.
CREATE ROLE source_file_reader;
GRANT USAGE ON FOREIGN SERVER stream_file TO source_file_reader;
GRANT USAGE, CREATE ON SCHEMA source_file TO source_file_reader;
SET ROLE source_file_reader;
\set VERBOSITY sqlstate
SELECT source('theirs', 'order', 'id int');
RESET ROLE;
GRANT pg_read_server_files TO source_file_reader;
SET ROLE source_file_reader;
SELECT source('theirs', 'order', 'id int', '{"clean_source": "delete"}');
\set VERBOSITY terse
SELECT source('theirs', 'order', 'id int');
SELECT count(*) FROM theirs;
RESET ROLE;
REVOKE pg_read_server_files FROM source_file_reader;
\set VERBOSITY sqlstate
SELECT count(*) FROM theirs;
\set VERBOSITY terse

-- Refused when said.
SELECT stream.create_source('r', 'file', 'id int');
SELECT stream.create_source('r', 'file', 'id int', '{"path": "relative"}');
SELECT stream.create_source('r', 'file', 'id int', '{"path": "/tmp", "nonsense": 1}');
SELECT stream.create_source('r', 'file', 'id int', '{"path": "/tmp", "delimiter": "\""}');
SELECT stream.create_source('r', 'file', 'id int', '{"path": "/tmp", "format": "parquet"}');
SELECT stream.create_source('r', 'file', 'a text, b text', '{"path": "/tmp", "format": "text"}');
SELECT stream.create_source('r', 'file', 'id int, file_line text', '{"path": "/tmp"}');
CALL put('in/x.unknown', 'x');
SELECT source('r', 'in', 'id int');
\set VERBOSITY sqlstate
SELECT * FROM r;
\set VERBOSITY terse

\set QUIET on
SET client_min_messages = error;
SELECT count(stream.drop_query(name)) > 0 FROM stream.queries;
DROP OWNED BY source_file_reader;
DROP ROLE source_file_reader;
CALL run('rm -rf ' || :'dir');
DROP SCHEMA source_file CASCADE;
