-- Promises about targets that other systems broke: identities that are lost, keys that change twice, keys that are everything, two targets of one query.
CREATE SCHEMA sink_promise;
SET search_path = sink_promise;
SET client_min_messages = warning;
CREATE TABLE input_t (id int, v text);
SELECT stream.create_source('input', 'table', options => '{"table": "input_t"}');

-- A query that is dropped and made again under its name is another query: it begins at batch 0, and reads everything again into the target that stayed.
SELECT stream.create_query('again', 'SELECT id FROM input', stream.to_table('again_out'), start => false) AS first_id \gset
INSERT INTO input_t VALUES (1), (2);
CALL stream.process_all_available('again');
SELECT stream.drop_query('again');
INSERT INTO input_t VALUES (3);
SELECT stream.create_query('again', 'SELECT id FROM input', stream.to_table('again_out'), start => false) AS second_id \gset
SELECT :second_id > :first_id AS another;
CALL stream.process_all_available('again');
SELECT id, batch_id, count(*) FROM again_out GROUP BY 1, 2 ORDER BY 1;
SELECT batch_id FROM stream.commit_log WHERE query_id = :second_id;
SELECT stream.drop_query('again');

-- Two changes of one key in a batch: the last one to arrive is what stays, over batches too.
TRUNCATE input_t;
SELECT stream.create_query('keyed', 'SELECT id, v FROM input', stream.to_table('keyed_out', '{"key": ["id"]}'), start => false);
INSERT INTO input_t VALUES (1, 'a'), (2, 'x'), (1, 'b');
CALL stream.process_all_available('keyed');
SELECT id, v, batch_id FROM keyed_out ORDER BY id;
INSERT INTO input_t VALUES (1, 'c'), (1, 'd');
CALL stream.process_all_available('keyed');
SELECT id, v, batch_id FROM keyed_out ORDER BY id;

-- A key of all columns leaves nothing to set.
CREATE TABLE pair (a int, b text, PRIMARY KEY (a, b));
SELECT stream.create_query('pair', 'SELECT id AS a, v AS b FROM input WHERE v IS NOT NULL', stream.to_table('pair', '{"key": ["a", "b"]}'), start => false);
CALL stream.process_all_available('pair');
INSERT INTO input_t VALUES (1, 'a'), (1, 'a');
CALL stream.process_all_available('pair');
SELECT * FROM pair ORDER BY 1, 2;

-- Two targets of one query: both have a batch, or neither.
CREATE TABLE parent (id int PRIMARY KEY);
CREATE TABLE child (parent_id int REFERENCES parent, v text);
SET check_function_bodies = off;
CREATE FUNCTION write_both(batch_id bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO parent SELECT DISTINCT id FROM batch;
	IF current_setting('sink_promise.broken', true) = 'on' THEN RAISE 'no child today'; END IF;
	INSERT INTO child SELECT id, v FROM batch;
END $$;
SELECT stream.create_query('both', 'SELECT id, v FROM input', stream.to_function('write_both'), start => false);
SET sink_promise.broken = on;
CALL stream.process_all_available('both');
SELECT (SELECT count(*) FROM parent) AS parents, (SELECT count(*) FROM child) AS children;
RESET sink_promise.broken;
CALL stream.process_all_available('both');
SELECT (SELECT count(*) FROM parent) AS parents, (SELECT count(*) FROM child) AS children, (SELECT count(*) FROM input_t) AS rows;

-- One insert over the partitions of several weeks, at a zone's midnight: every row is in its window.
SET TimeZone = 'Europe/Prague';
CREATE TABLE week_t (at timestamptz NOT NULL) PARTITION BY RANGE (at);
SELECT format('CREATE TABLE week_%s PARTITION OF week_t FOR VALUES FROM (%L) TO (%L)', i, timestamptz '2026-02-16 00:00' + i * interval '7 days',
	timestamptz '2026-02-16 00:00' + (i + 1) * interval '7 days') FROM generate_series(0, 5) i \gexec
SELECT stream.create_source('week', 'table', options => '{"table": "week_t"}', event_time => 'at', watermark_delay => '0 seconds');
SELECT stream.create_query('hours', $$SELECT stream.tumble(at, '1 hour') AS w, count(*) AS n FROM week GROUP BY 1$$, stream.to_table('hours_out'), start => false);
SELECT stream.create_query('whole', $$SELECT stream.tumble(at, '1 hour') AS w, count(*) AS n FROM week GROUP BY 1$$, stream.to_table('whole_out'), output_mode => 'complete', start => false);
INSERT INTO week_t SELECT generate_series(timestamptz '2026-02-19 00:00Z', '2026-03-10 23:00Z', interval '1 hour');
CALL stream.process_all_available('hours');
CALL stream.process_all_available('whole');
SELECT count(*), sum(n) FROM whole_out;
INSERT INTO week_t VALUES ('2026-03-11 05:00Z');
CALL stream.process_all_available('hours');
SELECT count(*), sum(n), max(upper(w)) AT TIME ZONE 'UTC' AS closed FROM hours_out;

SET client_min_messages = error;
SELECT count(stream.drop_query(name)) FROM stream.queries;
DROP SCHEMA sink_promise CASCADE;
