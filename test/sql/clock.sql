-- The clock steps back, and ahead, and back again: a query's own time does not; watermarks, windows, timers and TTL go by it.
SET client_min_messages = warning;
CREATE TABLE input_t (k text, v int, ts timestamptz);
SELECT stream.create_source('input', 'table', options => '{"table": "input_t"}', event_time => 'ts', watermark_delay => '1 minute');
CREATE PROCEDURE clock_is(t text) LANGUAGE sql AS $$SELECT set_config('stream_ext.test_clock', '2026-03-01 ' || t || '+00', false)$$;
CREATE FUNCTION remembered(key text, rows input[]) RETURNS TABLE (k text, was int, at timestamptz) LANGUAGE plpgsql AS $$
BEGIN
    k := key; was := stream.state_get('n', NULL::int); at := stream.processing_time_now();
    PERFORM stream.state_update('n', rows[1].v), stream.register_timer(stream.processing_time_now() + interval '20 minutes');
    RETURN NEXT;
END $$;
CREATE FUNCTION fired(key text, at timestamptz) RETURNS TABLE (k text, was int, at2 timestamptz) LANGUAGE sql AS $$SELECT 'timer of ' || key, NULL::int, at$$;
SELECT stream.create_processor('remembered', 'remembered(text, input[])', 'fired(text, timestamptz)', time_mode => 'processing_time',
    state => '{"n": {"kind": "value", "type": "int", "ttl": "10 minutes"}}');
SELECT stream.create_query('windows', 'SELECT stream.tumble(ts, ''1 minute'') AS w, count(*) AS n FROM input GROUP BY w', stream.to_table('windows_out'), start => false) IS NOT NULL AS made;
SELECT stream.create_query('custom', 'SELECT t.* FROM input i, LATERAL stream.transform_with_state(''remembered'', i.k, i) AS t(k text, was int, at timestamptz)', stream.to_table('custom_out'), start => false) IS NOT NULL AS made;
SELECT stream.create_query('times', 'SELECT v, now() AS at FROM input', stream.to_table('times_out'), start => false) IS NOT NULL AS made;

CALL clock_is('10:00');
INSERT INTO input_t VALUES ('a', 1, '2026-03-01 09:50+00');
CALL stream.process_all_available('windows');
CALL stream.process_all_available('custom');
CALL stream.process_all_available('times');
-- an hour back: time stands still
CALL clock_is('09:00');
INSERT INTO input_t VALUES ('a', 2, '2026-03-01 09:53+00');
CALL stream.process_all_available('windows');
CALL stream.process_all_available('custom');
CALL stream.process_all_available('times');
-- catching up: what had to expire does, no earlier
CALL clock_is('10:05');
INSERT INTO input_t VALUES ('a', 3, '2026-03-01 09:51:30+00');
CALL stream.process_all_available('windows');
CALL stream.process_all_available('custom');
CALL stream.process_all_available('times');
CALL clock_is('10:21');
CALL stream.process_all_available('custom');
INSERT INTO input_t VALUES ('a', 4, '2026-03-01 09:54+00');
CALL stream.process_all_available('windows');
CALL stream.process_all_available('custom');
CALL stream.process_all_available('times');
SELECT * FROM times_out ORDER BY v;
SELECT w, n FROM windows_out ORDER BY w;
SELECT * FROM custom_out ORDER BY batch_id, k;
SELECT name, bool_and(batch_time >= before) AS time_never_retreats, bool_and(coalesce(watermark >= watermark_before, true)) AS watermark_never_retreats
FROM (SELECT q.name, o.batch_time, lag(o.batch_time) OVER q AS before, o.watermark, lag(o.watermark) OVER q AS watermark_before
      FROM stream.offset_log o JOIN stream.queries q ON q.id = o.query_id WINDOW q AS (PARTITION BY q.id ORDER BY o.batch_id)) x
WHERE before IS NOT NULL GROUP BY name ORDER BY name;
SELECT bool_and(input_rows_per_second >= 0), bool_and(duration_ms >= 0) FROM stream.progress;
SELECT name, falling_behind FROM stream.queries ORDER BY name;
SELECT query, rows_late FROM stream.stat ORDER BY query;
