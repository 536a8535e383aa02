-- Triggers in the foreground: what each accepts, what one trigger is; the clock's part in batches without data. Workers: test/t/016, 050, 051.
\set VERBOSITY terse
CREATE TABLE tr_in_t (k text, v int, at timestamptz);
SELECT stream.create_source('tr_in', 'table', options => '{"table": "tr_in_t"}', event_time => 'at', watermark_delay => '1 minute');
CREATE TABLE tr_old_t (k text, v int, at timestamptz);
SELECT stream.create_source('tr_old', 'table', options => '{"table": "tr_old_t"}', event_time => 'at', watermark_delay => '1 minute');
CREATE FUNCTION tr_batch(batch_id bigint) RETURNS void LANGUAGE sql AS 'SELECT';
CREATE FUNCTION tr_input(key text, rows tr_in[]) RETURNS TABLE (k text, n int) LANGUAGE plpgsql AS $$ BEGIN k := key; n := cardinality(rows); RETURN NEXT; END $$;
SELECT stream.create_processor('tr_p', 'tr_input(text,tr_in[])');
CREATE FUNCTION tr_make(query text, mode text, trigger stream.trigger, sink stream.sink DEFAULT stream.to_memory()) RETURNS text LANGUAGE plpgsql AS $$
DECLARE detail text; hint text;
BEGIN
	PERFORM stream.create_query('tr_q', query, sink, mode, trigger, start => false);
	PERFORM stream.drop_query('tr_q');
	RETURN 'ok';
EXCEPTION WHEN feature_not_supported THEN
	GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
	RETURN concat_ws(E'\n', SQLERRM, nullif(detail, ''), nullif(hint, ''));
END $$;

-- real_time: update mode, and operators that can take a batch in pieces
\pset format unaligned
\pset tuples_only on
SET client_min_messages = warning;
SELECT tr_make('SELECT v FROM tr_in', 'update', stream.real_time('1 minute'));
SELECT tr_make('SELECT k, count(*) AS n FROM tr_in GROUP BY k', 'update', stream.real_time('1 minute'));
SELECT tr_make('SELECT DISTINCT k FROM tr_in', 'update', stream.real_time('1 minute'));
SELECT tr_make($$SELECT t.k, t.n FROM tr_in i, LATERAL stream.transform_with_state('tr_p', i.k, i) AS t(k text, n int)$$, 'update', stream.real_time('1 minute'));
SELECT tr_make('SELECT v FROM tr_in', 'append', stream.real_time('1 minute'));
SELECT tr_make('SELECT k, count(*) AS n FROM tr_in GROUP BY k', 'complete', stream.real_time('1 minute'));
SELECT tr_make('SELECT i.v FROM tr_in i JOIN tr_old o ON i.k = o.k', 'update', stream.real_time('1 minute'));
SELECT tr_make($$SELECT k, stream.session(at, '1 minute') AS s, count(*) AS n FROM tr_in GROUP BY 1, 2$$, 'update', stream.real_time('1 minute'));
SELECT tr_make('SELECT v FROM tr_in', 'update', stream.real_time('1 minute'), stream.to_function('tr_batch'));
-- continuous: nothing that remembers
SELECT tr_make('SELECT v FROM tr_in UNION ALL SELECT v FROM tr_old', 'append', stream.continuous('1 minute'));
SELECT tr_make('SELECT v FROM tr_in', 'update', stream.continuous('1 minute'));
SELECT tr_make('SELECT DISTINCT k FROM tr_in', 'append', stream.continuous('1 minute'));
SELECT tr_make('SELECT v FROM tr_in', 'append', stream.continuous('1 minute'), stream.to_function('tr_batch'));
RESET client_min_messages;
\pset tuples_only off
\pset format aligned

-- in the foreground a trigger of them is one whole batch
INSERT INTO tr_in_t VALUES ('a', 1, '2026-03-01 10:00'), ('a', 2, '2026-03-01 10:01'), ('b', 3, '2026-03-01 10:02');
SELECT stream.create_query('tr_rt', $$SELECT t.k, t.n FROM tr_in i, LATERAL stream.transform_with_state('tr_p', i.k, i) AS t(k text, n int)$$, stream.to_table('tr_rt_out'), 'update', stream.real_time('1 minute'), start => false);
CALL stream.run_batch('tr_rt', NULL);
CALL stream.run_batch('tr_rt', NULL);
SELECT k, n, batch_id FROM tr_rt_out ORDER BY k; -- a call per row
SELECT batch_id FROM stream.commit_log JOIN stream.queries ON id = query_id WHERE name = 'tr_rt';
-- alter_query knows the same refusals
SELECT stream.alter_query('tr_rt', trigger => stream.continuous('1 minute'));
SELECT stream.alter_query('tr_rt', trigger => stream.available_now());
SELECT stream.drop_query('tr_rt');
DROP TABLE tr_rt_out;

-- Lengths that, added to a time of our days, would not fit: refused wherever an interval is given
\pset format unaligned
\pset tuples_only on
SELECT tr_make('SELECT v FROM tr_in', 'append', stream.processing_time('84000000 days'));
SELECT stream.create_query('tr_q', 'SELECT v FROM tr_in', stream.to_memory(), options => '{"idle_timeout": "230000 years"}');
SELECT stream.create_source('tr_far', 'table', options => '{"table": "tr_in_t"}', event_time => 'at', watermark_delay => '230000 years');
SELECT tr_make('SELECT v FROM tr_in', 'append', stream.processing_time('63000000 days'));
\pset tuples_only off
\pset format aligned

-- once: one batch, whatever the limits say
SELECT stream.create_query('tr_once', 'SELECT v FROM tr_in', stream.to_table('tr_once_out'), trigger => stream.once(), options => '{"max_rows_per_batch": 1, "min_rows_per_batch": 100}', start => false);
CALL stream.run_batch('tr_once', NULL);
SELECT count(*), count(DISTINCT batch_id) FROM tr_once_out;
INSERT INTO tr_in_t VALUES ('c', 4, '2026-03-01 10:03'), ('c', 5, '2026-03-01 10:03');
CALL stream.run_batch('tr_once', NULL);
SELECT batch_id, count(*) FROM tr_once_out GROUP BY 1 ORDER BY 1;
SELECT stream.drop_query('tr_once');
DROP TABLE tr_once_out;

SET stream_ext.test_clock = '2026-03-02 00:00:00+00';
-- idle_timeout: history first, then live. The history ends at 10:03; nothing of the live windows closes until it has been silent long enough
ALTER TABLE tr_old_t RENAME TO tr_live_t;
SELECT stream.create_query('tr_both', $$SELECT stream.tumble(at, '1 minute') AS w, count(*) AS n FROM (SELECT at FROM tr_in UNION ALL SELECT at FROM tr_old) x GROUP BY 1$$,
	stream.to_table('tr_both_out'), options => '{"idle_timeout": "1500 milliseconds"}', start => false);
INSERT INTO tr_live_t VALUES ('l', 1, '2026-03-01 11:00'), ('l', 2, '2026-03-01 11:05');
CALL stream.process_all_available('tr_both');
SELECT lower(w)::time AS minute, n FROM tr_both_out ORDER BY 1;
SELECT watermark FROM stream.queries WHERE name = 'tr_both';
SET stream_ext.test_clock = '2026-03-02 00:00:02+00';
INSERT INTO tr_live_t VALUES ('l', 3, '2026-03-01 11:10');
CALL stream.process_all_available('tr_both');
SELECT lower(w)::time AS minute, n FROM tr_both_out ORDER BY 1;
SELECT watermark FROM stream.queries WHERE name = 'tr_both';
-- when all are silent nobody is waited for, and nothing is left to do
SET stream_ext.test_clock = '2026-03-02 00:00:04+00';
CALL stream.run_batch('tr_both', NULL);
SELECT watermark FROM stream.queries WHERE name = 'tr_both';
-- history speaks again, live is silent by now
INSERT INTO tr_in_t VALUES ('h', 1, '2026-03-01 11:20');
CALL stream.process_all_available('tr_both');
SELECT watermark FROM stream.queries WHERE name = 'tr_both';
SELECT stream.drop_query('tr_both');
DROP TABLE tr_both_out;
-- time alone closes windows: a batch without data when the silent source is let go
SELECT stream.create_query('tr_both', $$SELECT stream.tumble(at, '1 minute') AS w, count(*) AS n FROM (SELECT at FROM tr_in UNION ALL SELECT at FROM tr_old) x GROUP BY 1$$,
	stream.to_table('tr_both_out'), options => '{"idle_timeout": "1500 milliseconds"}', start => false);
DELETE FROM tr_in_t WHERE k = 'h';
CALL stream.run_batch('tr_both', NULL);
INSERT INTO tr_live_t VALUES ('l', 4, '2026-03-01 12:00');
CALL stream.process_all_available('tr_both');
SELECT watermark FROM stream.queries WHERE name = 'tr_both';
SET stream_ext.test_clock = '2026-03-02 00:00:06+00';
CALL stream.process_all_available('tr_both');
SELECT watermark FROM stream.queries WHERE name = 'tr_both';
SELECT lower(w)::time AS minute, n FROM tr_both_out ORDER BY 1;
SELECT stream.drop_query('tr_both');
DROP TABLE tr_both_out;
RESET stream_ext.test_clock;

-- max_event_time_skew: one clock a day ahead. Times are minutes after the base, so that the wall clock may be what it is
CREATE TABLE tr_dev_t (at timestamptz);
SELECT stream.create_source('tr_dev', 'table', options => '{"table": "tr_dev_t"}', event_time => 'at', watermark_delay => '1 minute');
CREATE TABLE tr_base AS SELECT date_trunc('minute', now()) - interval '20 minutes' AS at;
SELECT stream.create_query('tr_free', $$SELECT stream.tumble(at, '1 minute') AS w, count(*) AS n FROM tr_dev GROUP BY 1$$, stream.to_table('tr_free_out'), start => false);
SELECT stream.create_query('tr_skew', $$SELECT stream.tumble(at, '1 minute') AS w, count(*) AS n FROM tr_dev GROUP BY 1$$, stream.to_table('tr_skew_out'), options => '{"max_event_time_skew": "5 minutes"}', start => false);
INSERT INTO tr_dev_t SELECT at + interval '10 seconds' FROM tr_base;
CALL stream.process_all_available('tr_free');
CALL stream.process_all_available('tr_skew');
INSERT INTO tr_dev_t SELECT at + interval '1 day' FROM tr_base;
CALL stream.process_all_available('tr_free');
CALL stream.process_all_available('tr_skew');
INSERT INTO tr_dev_t SELECT at + interval '5 minutes 30 seconds' FROM tr_base;
CALL stream.process_all_available('tr_free');
CALL stream.process_all_available('tr_skew');
INSERT INTO tr_dev_t SELECT at + interval '6 minutes 30 seconds' FROM tr_base;
CALL stream.process_all_available('tr_free');
CALL stream.process_all_available('tr_skew');
SELECT q.name, q.rows_late, q.watermark - b.at AS watermark, q.state_rows FROM stream.queries q, tr_base b WHERE q.name IN ('tr_free', 'tr_skew') ORDER BY 1;
SELECT lower(w) - at AS after, n FROM tr_skew_out, tr_base ORDER BY 1;
SELECT lower(w) - at AS after, n FROM tr_free_out, tr_base ORDER BY 1;
SELECT query, num_input_rows AS rows, progress->'sources'->0->'numRowsAheadOfClock' AS ahead, progress->'stateOperators'->0->'numRowsDroppedByWatermark' AS late,
	regexp_replace(progress->>'warning', 'watermark [-0-9: .+]+ is', 'watermark … is') AS warning
FROM stream.progress WHERE query IN ('tr_free', 'tr_skew') AND num_input_rows > 0 ORDER BY query, batch_id;
SELECT stream.drop_query('tr_free');
SELECT stream.drop_query('tr_skew');
DROP TABLE tr_free_out, tr_skew_out, tr_base;
SELECT stream.drop_processor('tr_p');
DROP FUNCTION tr_make, tr_batch, tr_input;
DROP FOREIGN TABLE tr_in, tr_old, tr_dev;
DROP TABLE tr_in_t, tr_live_t, tr_dev_t;
