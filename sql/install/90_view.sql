/*
 * What users read. A role sees the queries of roles it is a member of; superusers and pg_monitor see all.
 */

CREATE VIEW stream.visible_query WITH (security_barrier) AS
    SELECT q.id, q.name, coalesce(r.rolname, q.owner) AS owner, q.sink, q.output_mode, q.trigger
    FROM stream.query q
    LEFT JOIN pg_catalog.pg_class v ON v.relname = ('query_' || q.id) AND v.relnamespace = 'stream'::pg_catalog.regnamespace
    LEFT JOIN pg_catalog.pg_roles r ON r.oid = v.relowner
    WHERE pg_catalog.pg_has_role('pg_monitor', 'MEMBER')
       OR (r.oid IS NOT NULL AND pg_catalog.pg_has_role(r.oid, 'MEMBER'));
COMMENT ON VIEW stream.visible_query IS 'the queries the current role may see; a query belongs to the owner of its view';

CREATE VIEW stream.offset_log WITH (security_barrier) AS
    SELECT o.query_id, o.batch_id, o.offsets, o.watermark, o.batch_time, o.conf, o.logged_at
    FROM stream.offset_entry o JOIN stream.visible_query q ON q.id = o.query_id;
COMMENT ON VIEW stream.offset_log IS 'what each batch was told to read, written before it ran';

CREATE VIEW stream.commit_log WITH (security_barrier) AS
    SELECT c.query_id, c.batch_id, c.next_watermark, c.committed_at
    FROM stream.commit_entry c JOIN stream.visible_query q ON q.id = c.query_id;
COMMENT ON VIEW stream.commit_log IS 'batches that are done, with the watermark for the next';

CREATE VIEW stream.progress WITH (security_barrier) AS
    SELECT q.name AS query,
           p.batch_id,
           p.at,
           (p.progress->>'numInputRows')::bigint AS num_input_rows,
           (p.progress->'sink'->>'numOutputRows')::bigint AS num_output_rows,
           (p.progress->>'inputRowsPerSecond')::float8 AS input_rows_per_second,
           (p.progress->>'processedRowsPerSecond')::float8 AS processed_rows_per_second,
           (p.progress->'durationMs'->>'triggerExecution')::bigint AS duration_ms,
           o.watermark,
           p.progress
    FROM stream.progress_entry p
    JOIN stream.visible_query q ON q.id = p.query_id
    LEFT JOIN stream.offset_entry o ON o.query_id = p.query_id AND o.batch_id = p.batch_id;
COMMENT ON VIEW stream.progress IS 'how each of the retained batches went; column progress is Spark''s StreamingQueryProgress';

CREATE VIEW stream.dead_letters WITH (security_barrier) AS
    SELECT d.id, q.name AS query, d.batch_id, d.source, d.reason, d."position", d.raw, d.error, d.at
    FROM stream.dead_letter d JOIN stream.visible_query q ON q.id = d.query_id
    WHERE NOT EXISTS (SELECT FROM stream.replay_entry r WHERE r.query_id = d.query_id AND r.letter_id = d.id AND r.batch_id IS NOT NULL);
COMMENT ON VIEW stream.dead_letters IS 'rows that could not be used: bytes, where they came from, why';

CREATE VIEW stream.queries WITH (security_barrier) AS
    SELECT q.id,
           q.name,
           r.run_id,
           q.owner,
           CASE WHEN w.stopping THEN 'stopping' ELSE coalesce(r.status, 'stopped') END AS status,
           w.message,
           coalesce(w.is_data_available, false) AS is_data_available,
           coalesce(w.is_trigger_active, false) AS is_trigger_active,
           q.output_mode,
           (q.trigger).kind || coalesce('(' || ((q.trigger).period)::text || ')', '') AS trigger,
           (q.sink).kind || coalesce(' ' || (q.sink).target, '') AS sink,
           p.batch_id AS last_batch_id,
           p.at AS last_batch_at,
           (p.progress->'durationMs'->>'triggerExecution')::bigint AS batch_duration_ms,
           (extract(epoch FROM (q.trigger).period) * 1000)::bigint AS trigger_interval_ms,
           (p.progress->>'inputRowsPerSecond')::float8 AS input_rows_per_second,
           (p.progress->>'processedRowsPerSecond')::float8 AS processed_rows_per_second,
           c.next_watermark AS watermark,
           coalesce(s.state_rows, 0) AS state_rows,
           coalesce(s.state_bytes, 0) AS state_bytes,
           coalesce(c.rows_late, 0) AS rows_late,
           coalesce(c.rows_bad, 0) AS rows_bad,
           coalesce((q.trigger).period > interval '0'
                    AND (p.progress->'durationMs'->>'triggerExecution')::float8 > extract(epoch FROM (q.trigger).period) * 1000, false) AS falling_behind,
           coalesce(r.failures, 0) AS failures,
           r.error,
           w.pid
    FROM stream.visible_query q
    LEFT JOIN stream.query_run r ON r.query_id = q.id
    LEFT JOIN stream.worker_status() w ON w.query_id = q.id
    LEFT JOIN LATERAL (SELECT * FROM stream.progress_entry e WHERE e.query_id = q.id ORDER BY e.batch_id DESC LIMIT 1) p ON true
    LEFT JOIN LATERAL (SELECT * FROM stream.commit_entry e WHERE e.query_id = q.id ORDER BY e.batch_id DESC LIMIT 1) c ON true
    LEFT JOIN LATERAL (SELECT sum((op->>'numRowsTotal')::bigint)::bigint AS state_rows, sum((op->>'memoryUsedBytes')::bigint)::bigint AS state_bytes
                       FROM jsonb_array_elements(p.progress->'stateOperators') op) s ON true;
COMMENT ON VIEW stream.queries IS 'every query with its status, rates, watermark, state size and last error';

GRANT SELECT ON stream.offset_log, stream.commit_log, stream.progress, stream.dead_letters, stream.queries TO PUBLIC;
