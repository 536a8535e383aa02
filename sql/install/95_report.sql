/*
 * One page for people: everything the caller may see, as XHTML with its drawings inside, nothing fetched from elsewhere.
 * The bodies are parsed when they are created, so nobody's search_path has a say in them. Danger: every value from outside goes through report_text.
 */

CREATE FUNCTION stream.report_text(value text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT replace(replace(replace(replace(replace(regexp_replace(coalesce(value, ''), '[\x01-\x08\x0B\x0C\x0E-\x1F\x7F\uFFFE\uFFFF]', '?', 'g'),
                                           '&', '&amp;'), '<', '&lt;'), '>', '&gt;'), '"', '&quot;'), '''', '&#39;');
END;
COMMENT ON FUNCTION stream.report_text(text) IS 'part of report_html: text made harmless inside HTML';

CREATE FUNCTION stream.report_number(value double precision) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT CASE WHEN value IS NULL THEN '' WHEN abs(value) >= 1e15 THEN value::text
                WHEN abs(value) >= 100 OR value = trunc(value) THEN round(value::numeric)::text ELSE trim_scale(round(value::numeric, 3))::text END;
END;
COMMENT ON FUNCTION stream.report_number(double precision) IS 'part of report_html: a number for people';

CREATE FUNCTION stream.report_chart(title text, unit text, points double precision[]) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT format('<figure><figcaption>%s: <b>%s</b> %s</figcaption><svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 300 64" role="img" aria-label="%s"><title>%s to %s %s</title>'
                  '<polyline points="%s"/><circle cx="%s" cy="%s" r="2"/></svg></figure>',
                  stream.report_text(title), stream.report_number(line.last), stream.report_text(unit), stream.report_text(title),
                  stream.report_number(line.low), stream.report_number(line.high), stream.report_text(unit), line.path, line.x, line.y)
    FROM (
        SELECT string_agg(p.x || ',' || p.y, ' ' ORDER BY p.n) AS path, min(p.value) AS low, max(p.value) AS high,
               (array_agg(p.value ORDER BY p.n DESC))[1] AS last, (array_agg(p.x ORDER BY p.n DESC))[1] AS x, (array_agg(p.y ORDER BY p.n DESC))[1] AS y
        FROM (
            SELECT v.n, v.value,
                   round((2 + 296.0 * (v.n - 1) / greatest(cardinality(points) - 1, 1))::numeric, 1) AS x,
                   round((62 - 60 * v.value / coalesce(nullif((SELECT max(abs(m)) FROM unnest(points) m), 0), 1))::numeric, 1) AS y
            FROM unnest(points) WITH ORDINALITY v(value, n)
            WHERE v.value IS NOT NULL
        ) p
    ) line
    WHERE line.path IS NOT NULL;
END;
COMMENT ON FUNCTION stream.report_chart(text, text, double precision[]) IS 'part of report_html: a line over the last batches as SVG; NULL without points';

CREATE FUNCTION stream.report_query(query_id bigint) RETURNS text LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT format('<section id="query-%s"><h2>%s <span class="status %s">%s</span></h2>', q.id, stream.report_text(q.name), stream.report_text(q.status),
                  stream.report_text(q.status))
        || '<p>' || stream.report_text(concat_ws(' · ', 'owner ' || q.owner, q.trigger, q.output_mode, 'into ' || q.sink,
                                                'watermark ' || to_char(q.watermark, 'YYYY-MM-DD HH24:MI:SS TZ'), q.message)) || '</p>'
        || CASE WHEN q.falling_behind
                THEN '<p class="bad">' || stream.report_text(q.behind_reason) || '<br/>' || stream.report_text(q.behind_advice) || '</p>' ELSE '' END
        || CASE WHEN q.unreadable_reason IS NOT NULL
                THEN '<p class="bad">' || stream.report_text(q.unreadable_reason) || '<br/>' || stream.report_text(q.unreadable_advice) || '</p>' ELSE '' END
        || CASE WHEN q.error IS NOT NULL
                THEN format('<pre class="bad">%s failures in a row%s; %s: %s</pre>', q.failures, coalesce(', at batch ' || q.failed_batch_id, ''),
                            stream.report_text(q.sqlstate), stream.report_text(q.error)) ELSE '' END
        || format('<table><tr><th>batches</th><th>rows in</th><th>rows out</th><th>late</th><th>unreadable</th><th>dead letters</th><th>failures</th>'
                  '<th>state rows</th><th>state bytes</th></tr><tr><td>%s</td><td>%s</td><td>%s</td><td>%s</td><td>%s</td><td>%s</td><td>%s</td><td>%s</td><td>%s</td></tr></table>',
                  s.batches, s.rows_in, s.rows_out, s.rows_late, s.rows_bad, s.dead_letters, s.failures, q.state_rows, q.state_bytes)
        || coalesce('<div class="charts">' || concat(stream.report_chart('throughput', 'rows/s', c.rates), stream.report_chart('batch duration', 'ms', c.durations),
                                                    stream.report_chart('latency (commit less newest event time)', 's', c.latencies),
                                                    stream.report_chart('state', 'rows', c.states)) || '</div>', '')
        || '</section>'
    FROM stream.queries q
    JOIN stream.stat s ON s.query_id = q.id
    CROSS JOIN LATERAL (
        SELECT array_agg(p.rate ORDER BY p.batch_id) AS rates, array_agg(p.duration ORDER BY p.batch_id) AS durations,
               array_agg(p.latency ORDER BY p.batch_id) AS latencies, array_agg(p.state ORDER BY p.batch_id) AS states
        FROM (
            SELECT r.batch_id, r.processed_rows_per_second AS rate, r.duration_ms::double precision AS duration,
                   extract(epoch FROM r.at - (r.progress->'eventTime'->>'max')::timestamptz)::double precision AS latency,
                   (SELECT sum((o->>'numRowsTotal')::double precision) FROM jsonb_array_elements(r.progress->'stateOperators') o) AS state
            FROM stream.progress r WHERE r.query = q.name ORDER BY r.batch_id DESC LIMIT 100
        ) p
    ) c
    WHERE q.id = report_query.query_id;
END;
COMMENT ON FUNCTION stream.report_query(bigint) IS 'part of report_html: one query';

CREATE FUNCTION stream.report_html() RETURNS text LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT '<!DOCTYPE html>
<html xmlns="http://www.w3.org/1999/xhtml" lang="en"><head><meta charset="utf-8"/><title>streaming queries</title><style>
body { font: 14px/1.4 system-ui, sans-serif; margin: 1.5em auto; max-width: 75em; padding: 0 1em; color: #222; background: #fff }
h1, h2 { font-weight: 600 } h2 { font-size: 1.15em; margin: 0 0 .3em }
section { border: 1px solid #d5d8dc; border-radius: 6px; padding: .8em 1em; margin: 1em 0 } p { margin: .3em 0 }
table { border-collapse: collapse; margin: .5em 0 } th, td { text-align: right; padding: .15em .8em; border-bottom: 1px solid #e5e7ea }
th { font-weight: 500; color: #666 } td.text, th.text { text-align: left }
.status { font-size: .8em; padding: .1em .6em; border-radius: 1em; background: #ddd } .running { background: #cdebd3 } .failed { background: #f6c9c9 }
.restarting { background: #fbe3b5 } .bad { color: #9c1c1c } pre { white-space: pre-wrap; margin: .3em 0 }
.charts { display: flex; flex-wrap: wrap; gap: 1em } figure { margin: 0; width: 300px } figcaption { font-size: .85em; color: #555 }
svg { width: 300px; height: 64px; background: #f6f7f9 } polyline { fill: none; stroke: #2f6fb3; stroke-width: 1.5 } circle { fill: #2f6fb3 }
</style></head><body><h1>Streaming queries of ' || stream.report_text(current_database()) || '</h1><p>'
        || stream.report_text(to_char(statement_timestamp(), 'YYYY-MM-DD HH24:MI:SS TZ')) || ' · as seen by ' || stream.report_text(current_user)
        || coalesce((SELECT ' · ' || string_agg(count || ' ' || stream.report_text(status), ', ' ORDER BY status)
                     FROM (SELECT status, count(*) FROM stream.queries GROUP BY status) n), '')
        || '</p>'
        || coalesce((SELECT string_agg(stream.report_query(q.id), E'\n' ORDER BY q.name) FROM stream.queries q), '<p>No query.</p>')
        || coalesce((SELECT '<section><h2>Slowest partitions</h2><table><tr><th class="text">query</th><th class="text">source</th><th class="text">partition</th>'
                            '<th>rows behind</th><th>newest event</th><th>behind the clock</th></tr>'
                            || string_agg(format('<tr><td class="text">%s</td><td class="text">%s</td><td class="text">%s</td><td title="as of %s">%s</td><td>%s</td><td>%s</td></tr>',
                                                 stream.report_text(l.query), stream.report_text(l.source), stream.report_text(l.partition),
                                                 to_char(l.as_of, 'YYYY-MM-DD HH24:MI:SS'), l.rows_behind,
                                                 to_char(l.last_event_time, 'YYYY-MM-DD HH24:MI:SS'), date_trunc('second', l.event_time_lag)),
                                          '' ORDER BY l.event_time_lag DESC NULLS LAST, l.rows_behind DESC NULLS LAST, l.query, l.partition)
                            || '</table></section>'
                     FROM (SELECT * FROM stream.source_lag ORDER BY event_time_lag DESC NULLS LAST, rows_behind DESC NULLS LAST LIMIT 20) l HAVING count(*) > 0), '')
        || coalesce((SELECT '<section><h2>Dead letters</h2><table><tr><th class="text">query</th><th class="text">source</th><th class="text">reason</th>'
                            '<th>letters</th><th>newest</th><th class="text">its error</th></tr>'
                            || string_agg(format('<tr><td class="text">%s</td><td class="text">%s</td><td class="text">%s</td><td>%s</td><td>%s</td><td class="text">%s</td></tr>',
                                                 stream.report_text(d.query), stream.report_text(d.source), stream.report_text(d.reason), d.letters,
                                                 to_char(d.newest, 'YYYY-MM-DD HH24:MI:SS'), stream.report_text(left(d.error, 300))),
                                          '' ORDER BY d.newest DESC, d.query, d.reason)
                            || '</table></section>'
                     FROM (SELECT query, source, reason, count(*) AS letters, max(at) AS newest, (array_agg(error ORDER BY id DESC))[1] AS error
                           FROM stream.dead_letters GROUP BY query, source, reason ORDER BY max(at) DESC LIMIT 50) d HAVING count(*) > 0), '')
        || '</body></html>';
END;
COMMENT ON FUNCTION stream.report_html() IS 'a page about all queries the caller may see: status, charts of the last batches, slowest partitions, dead letters; self-contained';
