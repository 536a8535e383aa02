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

CREATE VIEW stream.attempts WITH (security_barrier) AS
    SELECT q.name AS query, a.attempt, a.run_id, a.started_at, a.ended_at, coalesce(a.outcome, 'running') AS outcome, a.batch_id, a.range, a.sqlstate, a.error
    FROM stream.attempt_entry a JOIN stream.visible_query q ON q.id = a.query_id;
COMMENT ON VIEW stream.attempts IS 'the last 100 attempts to run each query in the background: begun, ended, how; of failures the SQLSTATE, the error with its context, the batch and its range';

/* STRICT, so that it is not inlined: the planner would count on a hundred times a hundred partitions of each source, and compile (JIT) for seconds. */
CREATE FUNCTION stream.source_partitions(latest jsonb, reached jsonb, lanes jsonb)
RETURNS TABLE (partition text, rows_behind bigint, last_event_time timestamptz)
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE COST 100 ROWS 4
BEGIN ATOMIC
    SELECT p.partition, p.rows_behind, l.last_event_time
    FROM (
        SELECT o.key AS partition, o.key::bigint AS lane, o.value::bigint - coalesce((reached->>o.key)::bigint, 0) AS rows_behind
        FROM jsonb_each(latest) o
        WHERE jsonb_typeof(o.value) = 'number'
        UNION ALL
        SELECT t.key || '/' || o.key, coalesce((latest->'@lanes'->>t.key)::bigint, 0) * 4096 + o.key::bigint,
               o.value::bigint - coalesce((reached->t.key->>o.key)::bigint, 0)
        FROM jsonb_each(latest) t CROSS JOIN LATERAL jsonb_each(t.value) o
        WHERE jsonb_typeof(t.value) = 'object' AND t.key !~ '^@'
    ) p
    FULL JOIN (
        SELECT e.n - 1 AS lane, '2000-01-01 00:00:00+00'::timestamptz + e.us::bigint * interval '1 microsecond' AS last_event_time
        FROM jsonb_array_elements_text(lanes) WITH ORDINALITY e(us, n)
        WHERE e.us IS NOT NULL
    ) l ON l.lane = p.lane;
END;
COMMENT ON FUNCTION stream.source_partitions(jsonb, jsonb, jsonb) IS 'part of source_lag: a source by partition, from its newest positions, those the query has reached, and the newest event times';

/* A batch that has been planned and not committed yet, failing perhaps, knows more of what waits; how far the query has come is what is committed. */
CREATE VIEW stream.source_lag WITH (security_barrier) AS
    WITH last AS (
        SELECT q.id, q.name, c.watermarks, coalesce(c.offsets, o.starts) AS reached, c.batch_id IS NOT DISTINCT FROM o.batch_id AS done, o.starts, o.offsets, o.logged_at,
               o.conf->'latest' AS latest, o.conf->'waiting' AS waiting
        FROM stream.visible_query q
        CROSS JOIN LATERAL (SELECT * FROM stream.offset_entry e WHERE e.query_id = q.id ORDER BY e.batch_id DESC LIMIT 1) o
        LEFT JOIN LATERAL (SELECT e.batch_id, e.watermarks, r.offsets
                           FROM stream.commit_entry e JOIN stream.offset_entry r ON r.query_id = e.query_id AND r.batch_id = e.batch_id
                           WHERE e.query_id = q.id ORDER BY e.batch_id DESC LIMIT 1) c ON true
    )
    SELECT l.id AS query_id, l.name AS query, s.source, p.partition,
           CASE WHEN p.partition IS NOT NULL THEN p.rows_behind
                WHEN l.done OR l.starts->s.source IS NOT DISTINCT FROM l.offsets->s.source THEN (l.waiting->>s.source)::bigint
           END AS rows_behind,
           p.last_event_time, statement_timestamp() - p.last_event_time AS event_time_lag, l.logged_at AS as_of
    FROM last l
    CROSS JOIN LATERAL unnest(ARRAY(SELECT jsonb_object_keys(l.offsets) UNION SELECT jsonb_object_keys(l.waiting) UNION SELECT jsonb_object_keys(l.watermarks))) s(source)
    LEFT JOIN LATERAL stream.source_partitions(coalesce(l.latest->s.source, '{}'), coalesce(l.reached->s.source, '{}'), coalesce(l.watermarks->s.source->'lanes', '[]')) p ON true;
COMMENT ON VIEW stream.source_lag IS
    'how far each source of a query is behind, by partition: rows that waited when it last planned a batch (as_of; NULL: the source does not know without counting), and event time';

/* STRICT as source_partitions is. */
CREATE FUNCTION stream.entry_backlog(conf jsonb, offsets jsonb) RETURNS bigint
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE COST 20
BEGIN ATOMIC
    SELECT CASE WHEN conf ? 'waiting'
                THEN coalesce((conf->>'left')::bigint, 0)
                     + (SELECT CASE WHEN count(n) = count(*) THEN coalesce(sum(n), 0)::bigint END
                        FROM (SELECT (conf->'waiting'->>k)::bigint AS n FROM jsonb_object_keys(offsets) k WHERE (conf->'latest' ? k) IS NOT TRUE) s)
                ELSE 0
           END;
END;
COMMENT ON FUNCTION stream.entry_backlog(jsonb, jsonb) IS 'part of operations: rows that waited behind a batch when it was planned, NULL: not known';

CREATE VIEW stream.operations WITH (security_barrier) AS
    SELECT q.name AS query, o.pid, o.operation, o.batch_id, o.rows_done,
           CASE o.operation
                WHEN 'running a batch' THEN (planned.conf->>'rows')::bigint
                WHEN 'loading state'
                THEN (SELECT sum((op->>'numRowsTotal')::bigint)::bigint
                      FROM stream.progress_entry e CROSS JOIN LATERAL jsonb_array_elements(e.progress->'stateOperators') op
                      WHERE e.query_id = o.query_id AND e.batch_id = o.batch_id)
           END AS rows_total,
           nullif(o.bytes_done, 0) AS bytes_done,
           CASE o.operation WHEN 'running a batch' THEN (planned.conf->>'bytes')::bigint END AS bytes_total,
           o.started_at
    FROM stream.running_operations() o
    JOIN stream.visible_query q ON q.id = o.query_id
    LEFT JOIN stream.offset_entry planned ON planned.query_id = o.query_id AND planned.batch_id = o.batch_id
    UNION ALL
    SELECT b.name, b.pid, 'catching up', b.batch_id, done.rows, done.rows + b.running + b.backlog, NULL, NULL, since.logged_at
    FROM (
        SELECT q.id, q.name, coalesce(w.pid, r.pid) AS pid, e.batch_id, stream.entry_backlog(e.conf, e.offsets) AS backlog,
               CASE WHEN EXISTS (SELECT FROM stream.commit_entry c WHERE c.query_id = e.query_id AND c.batch_id = e.batch_id) THEN 0
                    ELSE (e.conf->>'rows')::bigint
               END AS running,
               (SELECT coalesce(max(z.batch_id), -1) + 1
                FROM stream.offset_entry z WHERE z.query_id = q.id AND stream.entry_backlog(z.conf, z.offsets) = 0) AS first
        FROM stream.visible_query q
        LEFT JOIN stream.worker_status() w ON w.query_id = q.id
        LEFT JOIN (SELECT query_id, min(pid) AS pid FROM stream.running_operations() WHERE operation = 'running a batch' GROUP BY query_id) r ON r.query_id = q.id
        CROSS JOIN LATERAL (SELECT * FROM stream.offset_entry e WHERE e.query_id = q.id ORDER BY e.batch_id DESC LIMIT 1) e
        WHERE r.pid IS NOT NULL OR w.is_data_available
    ) b
    CROSS JOIN LATERAL (SELECT coalesce(sum((p.progress->>'numInputRows')::bigint), 0)::bigint AS rows
                        FROM stream.progress_entry p WHERE p.query_id = b.id AND p.batch_id >= b.first) done
    CROSS JOIN LATERAL (SELECT e.logged_at FROM stream.offset_entry e WHERE e.query_id = b.id AND e.batch_id >= b.first ORDER BY e.batch_id LIMIT 1) since
    WHERE b.backlog IS DISTINCT FROM 0 AND b.first < b.batch_id;
COMMENT ON VIEW stream.operations IS
    'long operations that run right now: batches, catching up by more than one of them, loading and folding of state, rewinding; like the views pg_stat_progress_*. Totals are NULL where the source does not know them without counting';

CREATE VIEW stream.stat WITH (security_barrier) AS
    SELECT q.id AS query_id,
           q.name AS query,
           coalesce(c.batch_id + 1, 0) AS batches,
           coalesce(c.rows_in, 0) AS rows_in,
           coalesce(c.rows_out, 0) AS rows_out,
           coalesce(c.rows_late, 0) AS rows_late,
           coalesce(c.rows_bad, 0) AS rows_bad,
           coalesce(c.busy_us, 0) / 1000.0::float8 AS busy_ms,
           coalesce(a.attempt, 0) AS attempts,
           coalesce(a.failures, 0) AS failures,
           (SELECT count(*) FROM stream.dead_letter d WHERE d.query_id = q.id) AS dead_letters,
           c.committed_at AS last_batch_at
    FROM stream.visible_query q
    LEFT JOIN LATERAL (SELECT * FROM stream.commit_entry e WHERE e.query_id = q.id ORDER BY e.batch_id DESC LIMIT 1) c ON true
    LEFT JOIN LATERAL (SELECT * FROM stream.attempt_entry e WHERE e.query_id = q.id ORDER BY e.attempt DESC LIMIT 1) a ON true;
COMMENT ON VIEW stream.stat IS 'counters of each query since it was created or reset, each batch counted once';

/* Is a query falling behind, by its last ten batches, and what helps. */
CREATE VIEW stream.pace WITH (security_barrier) AS
    WITH recent AS (
        SELECT q.id, extract(epoch FROM (q.trigger).period) * 1000 AS period_ms, (q.trigger).kind = 'processing_time' AS ticks, e.*
        FROM stream.visible_query q
        CROSS JOIN LATERAL (
            SELECT p.batch_id,
                   row_number() OVER (ORDER BY p.batch_id DESC) AS age,
                   (p.progress->'durationMs'->>'triggerExecution')::float8 AS duration_ms,
                   (p.progress->>'numInputRows')::float8 AS rows,
                   (p.progress->>'inputRowsPerSecond')::float8 AS rate,
                   (o.conf->>'left')::bigint AS backlog
            FROM (SELECT * FROM stream.progress_entry p WHERE p.query_id = q.id ORDER BY p.batch_id DESC LIMIT 10) p
            LEFT JOIN stream.offset_entry o ON o.query_id = p.query_id AND o.batch_id = p.batch_id
        ) e
    ), summary AS (
        SELECT id, bool_and(ticks) AND max(period_ms) > 0 AS ticks, max(period_ms) AS period_ms,
               max(duration_ms) FILTER (WHERE age = 1) AS last_ms,
               count(*) AS batches,
               sum(duration_ms) FILTER (WHERE rate > 0) AS busy_ms,
               sum(rows / nullif(rate, 0)) * 1000 AS elapsed_ms,
               count(*) FILTER (WHERE rate > 0) AS measured,
               max(backlog) FILTER (WHERE age = 1) AS backlog_now,
               (array_agg(backlog ORDER BY age DESC))[1] AS backlog_before
        FROM recent GROUP BY id
    ), verdict AS (
        SELECT id,
               CASE WHEN ticks AND last_ms > period_ms
                    THEN format('the last batch took %s ms, the trigger''s interval is %s ms', last_ms, round(period_ms))
                    WHEN measured >= 3 AND busy_ms > 1.1 * elapsed_ms
                    THEN format('rows come faster than they are processed: the last %s batches took %s ms for what came in %s ms', measured, busy_ms, round(elapsed_ms::numeric))
                    WHEN batches >= 3 AND backlog_now > backlog_before AND backlog_now > 0
                    THEN format('the backlog grows: %s rows now, %s rows %s batches ago', backlog_now, backlog_before, batches - 1)
               END AS reason,
               ticks
        FROM summary
    )
    SELECT id AS query_id, reason,
           CASE WHEN reason IS NULL THEN NULL
                WHEN ticks THEN 'Make batches cheaper (stream.explain_query shows their plans), or the interval longer (stream.alter_query). max_rows_per_batch bounds a batch.'
                ELSE 'Make batches cheaper (stream.explain_query shows their plans), raise max_rows_per_batch if it is set low, or split the query by a condition on its key.'
           END AS advice
    FROM verdict;
COMMENT ON VIEW stream.pace IS 'is a query falling behind: the reason, NULL if it is not, and what helps';

/* Do nearly all rows of a source turn out to be unreadable: by the last ten batches, and, where rows come one by one, further back until there are twenty. */
CREATE VIEW stream.quality WITH (security_barrier) AS
    WITH batch AS (
        SELECT q.id, p.age, s.source->>'description' AS description, (s.source->>'numInputRows')::bigint AS rows, (s.source->>'numBadRows')::bigint AS rows_bad
        FROM stream.visible_query q
        LEFT JOIN LATERAL (SELECT e.batch_id, e.rows_bad FROM stream.commit_entry e WHERE e.query_id = q.id ORDER BY e.batch_id DESC LIMIT 1) c ON true
        LEFT JOIN stream.commit_entry before ON before.query_id = q.id AND before.batch_id = c.batch_id - 100
        CROSS JOIN LATERAL (
            SELECT e.progress, row_number() OVER (ORDER BY e.batch_id DESC) AS age
            FROM stream.progress_entry e WHERE e.query_id = q.id ORDER BY e.batch_id DESC
            LIMIT CASE WHEN c.rows_bad > coalesce(before.rows_bad, 0) THEN 100 ELSE 10 END /* without unreadable rows, nothing to look for */
        ) p
        CROSS JOIN LATERAL jsonb_array_elements(p.progress->'sources') s(source)
    ), recent AS (
        SELECT id, description, sum(rows) AS rows, sum(rows_bad) AS rows_bad
        FROM (SELECT *, sum(rows) OVER (PARTITION BY id, description ORDER BY age) - rows AS rows_since FROM batch) b
        WHERE age <= 10 OR rows_since < 20
        GROUP BY 1, 2
    )
    SELECT id AS query_id, description AS source, rows, rows_bad,
           CASE WHEN rows >= 20 AND rows_bad > 0.9 * rows
                THEN format('%s of the last %s rows of %s cannot be read', rows_bad, rows, description)
           END AS reason,
           CASE WHEN rows >= 20 AND rows_bad > 0.9 * rows
                THEN 'stream.dead_letters says why, unless on_bad_row is skip. Mend the source (stream.alter_source), then stream.replay_dead_letters feeds them in again.'
           END AS advice
    FROM recent;
COMMENT ON VIEW stream.quality IS 'rows and unreadable rows of each source of a query in its last ten batches, or in more until there are twenty rows; the reason, if the unreadable are nearly all, and what helps';

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
           b.reason IS NOT NULL AS falling_behind,
           coalesce(r.failures, 0) AS failures,
           r.error,
           w.pid,
           r.sqlstate,
           r.retry_at,
           f.batch_id AS failed_batch_id,
           f.range AS failed_range,
           b.reason AS behind_reason,
           b.advice AS behind_advice,
           u.reason AS unreadable_reason,
           u.advice AS unreadable_advice
    FROM stream.visible_query q
    LEFT JOIN stream.query_run r ON r.query_id = q.id
    LEFT JOIN stream.worker_status() w ON w.query_id = q.id
    LEFT JOIN LATERAL (SELECT * FROM stream.progress_entry e WHERE e.query_id = q.id ORDER BY e.batch_id DESC LIMIT 1) p ON true
    LEFT JOIN LATERAL (SELECT * FROM stream.commit_entry e WHERE e.query_id = q.id ORDER BY e.batch_id DESC LIMIT 1) c ON true
    LEFT JOIN LATERAL (SELECT sum((op->>'numRowsTotal')::bigint)::bigint AS state_rows, sum((op->>'memoryUsedBytes')::bigint)::bigint AS state_bytes
                       FROM jsonb_array_elements(p.progress->'stateOperators') op) s ON true
    LEFT JOIN LATERAL (SELECT a.batch_id, a.range FROM stream.attempt_entry a
                       WHERE a.query_id = q.id AND r.error IS NOT NULL AND a.sqlstate IS NOT NULL ORDER BY a.attempt DESC LIMIT 1) f ON true
    LEFT JOIN stream.pace b ON b.query_id = q.id
    LEFT JOIN LATERAL (SELECT string_agg(s.reason, '; ' ORDER BY s.source) AS reason, min(s.advice) AS advice FROM stream.quality s WHERE s.query_id = q.id) u ON true;
COMMENT ON VIEW stream.queries IS 'every query with its status, rates, watermark, state size and last error';

CREATE VIEW stream.change_slots WITH (security_barrier) AS
    SELECT q.name AS query,
           s.source,
           s.slot,
           coalesce(r.active, false) AS active,
           r.wal_status,
           pg_catalog.pg_wal_lsn_diff(CASE WHEN pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_last_wal_replay_lsn() ELSE pg_catalog.pg_current_wal_lsn() END,
                                      r.restart_lsn)::bigint AS bytes_held
    FROM stream.change_slot s
    JOIN stream.visible_query q ON q.id = s.query_id
    LEFT JOIN pg_catalog.pg_replication_slots r ON r.slot_name = s.slot AND r.database = pg_catalog.current_database();
COMMENT ON VIEW stream.change_slots IS 'replication slots of queries over changes sources, and how much WAL each holds back; wal_status NULL: the slot is gone';

GRANT SELECT ON stream.offset_log, stream.commit_log, stream.progress, stream.dead_letters, stream.queries, stream.attempts, stream.source_lag,
    stream.operations, stream.stat, stream.pace, stream.quality, stream.change_slots TO PUBLIC;
