-- Dead letters come again: a row that could not be read is read again, with a batch of the query, as its source is defined then.
\set VERBOSITY terse
SELECT current_setting('data_directory') || '/replay_' || pg_backend_pid() AS dir \gset
\set mkdir 'cat > /dev/null; mkdir -p ' :dir
COPY (SELECT 1) TO PROGRAM :'mkdir';
CREATE FUNCTION file_put(dir text, name text, lines text[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('COPY (SELECT l FROM unnest(%L::text[]) l) TO %L', lines, dir || '/' || name);
END $$;
CREATE VIEW letters AS SELECT id - min(id) OVER () + 1 AS n, batch_id, source, reason, convert_from(raw, 'UTF8') AS raw, error FROM stream.dead_letters WHERE query = 'dl_q' ORDER BY id;

SELECT stream.create_source('dl_in', 'file', 'id int, at timestamptz, v int, file_line int', jsonb_build_object('path', :'dir', 'format', 'json'), event_time => 'at', watermark_delay => '1 minute');
SELECT stream.create_query('dl_q', 'SELECT id, v, file_line FROM dl_in', stream.to_table('dl_out'), start => false);
SELECT file_put(:'dir', 'a.json', ARRAY['{"id": 1, "at": "2026-03-01 10:00", "v": 1}', '{"id": 2, "at": "2026-03-01 10:00", "v": "two"}', '{"id": 3}', '{"id": 4, "at": 1772359200000, "v": 4}', 'x']);
CALL stream.process_all_available('dl_q');
SELECT * FROM dl_out ORDER BY id;
SELECT * FROM letters;

-- the source is mended for one of them
SELECT stream.alter_source('dl_in', '{"timestamp_unit": "ms"}');
SELECT stream.replay_dead_letters('dl_q') AS asked;
SELECT stream.replay_dead_letters('dl_q') AS asked_already;
CALL stream.run_batch('dl_q', NULL);
SELECT * FROM dl_out ORDER BY id;
SELECT * FROM letters;
SELECT num_input_rows, num_output_rows, progress->'sources'->0->'numBadRows' AS bad FROM stream.progress WHERE query = 'dl_q' ORDER BY batch_id;
SELECT rows_bad FROM stream.queries WHERE name = 'dl_q';
-- nothing more to do; a letter that failed again can be asked for again
CALL stream.run_batch('dl_q', NULL);
SELECT stream.replay_dead_letters('dl_q', ARRAY[min(id)]) AS asked FROM stream.dead_letters WHERE query = 'dl_q';
CALL stream.run_batch('dl_q', NULL);
SELECT n, error FROM letters;

-- with new rows in one batch
SELECT stream.alter_source('dl_in', '{"on_bad_row": "null"}');
SELECT stream.replay_dead_letters('dl_q', ARRAY[min(id)]) AS asked FROM stream.dead_letters WHERE query = 'dl_q';
SELECT file_put(:'dir', 'b.json', ARRAY['{"id": 5, "at": "2026-03-01 10:00", "v": 5}']);
CALL stream.process_all_available('dl_q');
SELECT id, v, batch_id FROM dl_out ORDER BY id;
SELECT n, raw FROM letters;

-- a rewind brings back what was replayed after it, the same way
SELECT count(*) FROM stream.replay_entry WHERE batch_id IS NOT NULL;
SELECT stream.rewind_query('dl_q', 0);
DELETE FROM dl_out WHERE batch_id > 0;
SELECT n, raw FROM letters;
CALL stream.process_all_available('dl_q');
SELECT id, v, batch_id FROM dl_out ORDER BY id;
SELECT n, raw FROM letters;

-- what cannot come again
SELECT stream.create_query('dl_late', $$SELECT stream.tumble(at, '1 minute') AS w, count(*) AS n FROM dl_in GROUP BY 1$$, stream.to_table('dl_late_out'), options => '{"late_rows": "dead_letter"}', start => false);
CALL stream.process_all_available('dl_late');
SELECT file_put(:'dir', 'c.json', ARRAY['{"id": 6, "at": "2026-03-01 09:00", "v": 6}']);
CALL stream.process_all_available('dl_late');
SELECT reason, source IS NULL AS no_source, count(*) FROM stream.dead_letters WHERE query = 'dl_late' GROUP BY 1, 2 ORDER BY 1;
\set VERBOSITY default
DO $$
DECLARE late bigint := (SELECT max(id) FROM stream.dead_letters WHERE query = 'dl_late' AND reason = 'late'); state text; hint text; message text;
BEGIN
	PERFORM stream.replay_dead_letters('dl_late', ARRAY[late]);
EXCEPTION WHEN feature_not_supported THEN
	GET STACKED DIAGNOSTICS message = MESSAGE_TEXT, hint = PG_EXCEPTION_HINT;
	RAISE NOTICE '%', replace(message, late::text, 'N');
	RAISE NOTICE '%', hint;
END $$;
\set VERBOSITY terse
SELECT stream.replay_dead_letters('dl_q', ARRAY[-1]);
SELECT stream.replay_dead_letters('nobody');
SELECT stream.replay_dead_letters('dl_late') AS none_but_late;

-- a skipped batch leaves them where they were
CREATE FUNCTION dl_check(v int) RETURNS int LANGUAGE plpgsql AS $$ BEGIN IF v = 7 THEN RAISE EXCEPTION 'seven'; END IF; RETURN v; END $$;
SELECT stream.drop_query('dl_late');
SELECT stream.alter_source('dl_in', '{"on_bad_row": "dead_letter"}');
SELECT stream.create_query('dl_skip', 'SELECT id, dl_check(v) AS v FROM dl_in WHERE id > 6', stream.to_table('dl_skip_out'), start => false);
CALL stream.process_all_available('dl_skip');
SELECT file_put(:'dir', 'd.json', ARRAY['{"id": 7, "at": "2026-03-01 10:00", "v": 7}']);
SELECT stream.replay_dead_letters('dl_skip') > 0 AS asked;
CALL stream.run_batch('dl_skip', NULL);
SELECT count(*) AS waiting FROM stream.replay_entry r JOIN stream.query q ON q.id = r.query_id WHERE q.name = 'dl_skip';
SELECT stream.skip_batch('dl_skip', 1);
SELECT count(*) AS waiting FROM stream.replay_entry r JOIN stream.query q ON q.id = r.query_id WHERE q.name = 'dl_skip';
SELECT count(*) > 0 AS still_there FROM stream.dead_letters WHERE query = 'dl_skip';
SELECT stream.drop_query('dl_skip');

-- csv: the header of the file says what the fields are
\set mkdir 'cat > /dev/null; mkdir -p ' :dir /csv
COPY (SELECT 1) TO PROGRAM :'mkdir';
SELECT stream.create_source('dl_csv', 'file', 'a int, b int', jsonb_build_object('path', :'dir' || '/csv', 'format', 'csv', 'header', 'true'));
SELECT stream.create_query('dl_c', 'SELECT a, b FROM dl_csv', stream.to_table('dl_csv_out'), start => false);
SELECT file_put(:'dir' || '/csv', 'a.csv', ARRAY['b,a', '1,2', '3,x']);
CALL stream.process_all_available('dl_c');
SELECT stream.alter_source('dl_csv', '{"on_bad_row": "null"}');
SELECT stream.replay_dead_letters('dl_c');
CALL stream.process_all_available('dl_c');
SELECT a, b FROM dl_csv_out ORDER BY b;
SELECT stream.drop_query('dl_c');

-- nothing of a source can be read: said of rows that come one by one too, and no longer once some can
\set mkdir 'cat > /dev/null; mkdir -p ' :dir /trickle
COPY (SELECT 1) TO PROGRAM :'mkdir';
SELECT stream.create_source('dl_trickle', 'file', 'a int', jsonb_build_object('path', :'dir' || '/trickle', 'format', 'json', 'max_files_per_batch', 1));
SELECT stream.create_query('dl_t', 'SELECT a FROM dl_trickle', stream.to_table('dl_trickle_out'), start => false);
SELECT count(file_put(:'dir' || '/trickle', format('%s.json', i), ARRAY['x'])) FROM generate_series(101, 119) i;
CALL stream.process_all_available('dl_t');
CREATE VIEW trickle AS SELECT q.last_batch_id, s.rows, s.rows_bad, q.unreadable_reason, q.unreadable_advice FROM stream.quality s JOIN stream.queries q ON q.id = s.query_id WHERE q.name = 'dl_t';
SELECT * FROM trickle;
SELECT count(file_put(:'dir' || '/trickle', format('%s.json', i), ARRAY['x'])) FROM generate_series(120, 125) i;
CALL stream.process_all_available('dl_t');
SELECT * FROM trickle;
SELECT count(file_put(:'dir' || '/trickle', format('%s.json', i), ARRAY['{"a": 1}'])) FROM generate_series(126, 128) i;
CALL stream.process_all_available('dl_t');
SELECT * FROM trickle;
SELECT stream.drop_query('dl_t');

-- too many at once fail the batch
SELECT stream.alter_source('dl_in', '{"on_bad_row": "dead_letter", "timestamp_unit": null}');
SELECT stream.create_query('dl_few', 'SELECT id FROM dl_in', stream.to_table('dl_few_out'), options => '{"max_bad_rows_per_batch": 1}', start => false);
\set VERBOSITY sqlstate
CALL stream.run_batch('dl_few', NULL);
\set VERBOSITY terse
SELECT count(*) FROM stream.dead_letters WHERE query = 'dl_few';
SELECT stream.alter_query('dl_few', options => '{"max_bad_rows_per_batch": 100}');
CALL stream.run_batch('dl_few', NULL);
SELECT count(*) > 1 AS kept FROM stream.dead_letters WHERE query = 'dl_few';
SELECT stream.alter_query('dl_few', options => '{"max_bad_rows_per_batch": null}');

SELECT stream.drop_query('dl_few');
SELECT stream.drop_query('dl_q');
SELECT count(*) FROM stream.replay_entry;
\set rm 'cat > /dev/null; rm -r ' :dir
COPY (SELECT 1) TO PROGRAM :'rm';
DROP FOREIGN TABLE dl_in, dl_csv;
DROP TABLE dl_out, dl_late_out, dl_skip_out, dl_csv_out, dl_few_out;
DROP VIEW letters;
DROP FUNCTION file_put, dl_check;
