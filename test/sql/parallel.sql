-- Option parallelism: tasks read and fold their shares; results are those of one process, in the same order. All batches go to tasks here.
SET stream_ext.task_rows = 0;
CREATE TABLE event (id bigint, k text, at timestamptz, v int);
SELECT stream.create_source('events', 'table', options => '{"table": "event"}', event_time => 'at', watermark_delay => '10 seconds');
CREATE TABLE shop (k text, city text);
INSERT INTO shop SELECT 'k' || i, 'city' || i % 3 FROM generate_series(0, 6) i;
INSERT INTO event SELECT i, 'k' || i % 7, '2026-01-01Z'::timestamptz + i * interval '1 second', i FROM generate_series(1, 400) i;

-- What runs where.
SELECT stream.create_query('sums', $$ SELECT s.city, stream.tumble(e.at, '1 minute') AS w, count(*) AS n, sum(v) AS s, avg(v) AS a, max(v::numeric) AS m, count(*) FILTER (WHERE v > 50) AS f
	FROM events e JOIN shop s USING (k) WHERE v % 2 = 0 GROUP BY 1, 2 $$, stream.to_table('sums'), 'update', options => '{"parallelism": 3}', start => false);
CREATE FUNCTION twice(i int) RETURNS int LANGUAGE sql IMMUTABLE RETURN i * 2;
SELECT stream.create_query('careful', 'SELECT k, sum(twice(v)) AS s FROM events GROUP BY k', stream.to_table('careful'), 'update', options => '{"parallelism": 2}', start => false);
SELECT stream.create_query('ordered', 'SELECT k, array_agg(id) AS ids FROM events GROUP BY k', stream.to_table('ordered'), 'update', options => '{"parallelism": 2}', start => false);
SELECT stream.create_query('first', 'SELECT DISTINCT ON (k) k, id FROM events', stream.to_table('first'), options => '{"parallelism": 2}', start => false);
SELECT stream.create_query('rows', 'SELECT id, v + 1 AS v FROM events WHERE v % 3 = 0', stream.to_table('rows'), options => '{"parallelism": 2}', start => false);
SELECT stream.create_query('twofold', 'SELECT k, count(*) AS n FROM (SELECT k FROM events UNION ALL SELECT k FROM events WHERE v < 10) u GROUP BY k', stream.to_table('twofold'), 'complete',
	options => '{"parallelism": 2}', start => false);
SELECT stream.create_query('hops', 'SELECT k, stream.hop(at, ''2 minutes'', ''30 seconds'') AS w, count(*) AS n, sum(v) AS s, avg(v::numeric) AS a FROM events GROUP BY 1, 2', stream.to_table('hops'),
	options => '{"parallelism": 2}', start => false);
SELECT stream.create_query('inexact', 'SELECT v::numeric AS k, count(*) AS n FROM events GROUP BY 1', stream.to_table('inexact'), 'update', options => '{"parallelism": 2}', start => false);
-- An aggregate that could be combined, but does not say that it is PARALLEL SAFE.
CREATE TABLE added (v int);
CREATE FUNCTION add_noted(s int, v int) RETURNS int LANGUAGE plpgsql AS $$ BEGIN INSERT INTO added VALUES (v); RETURN s + v; END $$;
CREATE AGGREGATE noted_sum(int) (sfunc = add_noted, stype = int, combinefunc = int4pl, initcond = 0);
SELECT stream.create_query('noted', 'SELECT noted_sum(v) AS s FROM events', stream.to_table('noted'), 'complete', options => '{"parallelism": 2}', start => false);
CALL stream.process_all_available('noted');
SELECT s, (SELECT sum(v) FROM added) AS added FROM noted;
SELECT q, regexp_replace(l, '^ *', '') FROM unnest(ARRAY['sums', 'careful', 'noted', 'ordered', 'first', 'rows', 'twofold', 'hops', 'inexact']) q, LATERAL stream.explain_query(q) l WHERE l ~ 'Tasks';

SELECT stream.create_query('unsaid', 'SELECT k, count(*) AS n FROM events GROUP BY k', stream.to_table('unsaid'), 'complete', start => false);
SELECT count(*) FROM stream.explain_query('unsaid') l WHERE l ~ 'Tasks';
SET stream_ext.parallelism = 2;
SELECT count(*) FROM stream.explain_query('unsaid') l WHERE l ~ 'Tasks';
CALL stream.process_all_available('unsaid');
RESET stream_ext.parallelism;
SELECT k, n = (SELECT count(*) FROM event e WHERE e.k = u.k) AS same FROM unsaid u ORDER BY k;

-- One process's results, over two batches.
CALL stream.process_all_available('sums');
CALL stream.process_all_available('careful');
CALL stream.process_all_available('ordered');
CALL stream.process_all_available('first');
CALL stream.process_all_available('rows');
CALL stream.process_all_available('twofold');
CALL stream.process_all_available('hops');
INSERT INTO event SELECT i, 'k' || i % 8, '2026-01-01Z'::timestamptz + i * interval '1 second', i FROM generate_series(401, 700) i;
CALL stream.process_all_available('sums');
CALL stream.process_all_available('careful');
CALL stream.process_all_available('ordered');
CALL stream.process_all_available('first');
CALL stream.process_all_available('rows');
CALL stream.process_all_available('twofold');
CALL stream.process_all_available('hops');
WITH hand AS (SELECT s.city, stream.tumble(e.at, '1 minute') AS w, count(*) AS n, sum(v) AS s, avg(v) AS a, max(v::numeric) AS m, count(*) FILTER (WHERE v > 50) AS f
	FROM event e JOIN shop s USING (k) WHERE v % 2 = 0 GROUP BY 1, 2), here AS (SELECT city, w, n, s, a, m, f FROM sums)
SELECT (SELECT count(*) FROM hand) AS groups, (SELECT count(*) FROM (TABLE hand EXCEPT TABLE here) x) AS lost, (SELECT count(*) FROM (TABLE here EXCEPT TABLE hand) x) AS wrong;
SELECT k, s = (SELECT sum(2 * v) FROM event e WHERE e.k = c.k) AS same FROM careful c ORDER BY k;
SELECT k, ids = (SELECT array_agg(id ORDER BY id) FROM event e WHERE e.k = o.k) AS in_order FROM ordered o ORDER BY k;
SELECT k, id FROM first ORDER BY k;
SELECT count(*), sum(v), array_agg(id ORDER BY ctid) = array_agg(id ORDER BY id) AS in_order FROM rows;
SELECT k, n = (SELECT count(*) + count(*) FILTER (WHERE v < 10) FROM event e WHERE e.k = b.k) AS same FROM twofold b ORDER BY k;
WITH hand AS (SELECT k, w, count(*) AS n, sum(v) AS s, avg(v::numeric) AS a FROM event, LATERAL stream.hop(at, '2 minutes', '30 seconds') w GROUP BY 1, 2 HAVING upper(w) <= '2026-01-01 00:11:30Z'),
	here AS (SELECT k, w, n, s, a FROM hops)
SELECT (SELECT count(*) FROM hand) AS windows, (SELECT count(*) FROM (TABLE hand EXCEPT TABLE here) x) AS lost, (SELECT count(*) FROM (TABLE here EXCEPT TABLE hand) x) AS wrong;
SELECT query, batch_id, num_input_rows, num_output_rows, watermark FROM stream.progress WHERE query IN ('sums', 'rows') ORDER BY query DESC, batch_id;

-- Another number of tasks goes on from the same state; with one process it is the one that reads.
SELECT stream.alter_query('sums', options => '{"parallelism": 1, "late_rows": "dead_letter"}');
INSERT INTO event SELECT i, 'k' || i % 7, '2026-01-01Z'::timestamptz + i * interval '1 second', i FROM generate_series(701, 800) i;
CALL stream.process_all_available('sums');
SELECT stream.alter_query('sums', options => '{"parallelism": 2, "late_rows": "dead_letter"}');
INSERT INTO event VALUES (801, 'k1', '2026-01-01 00:00:05Z', 802), (802, 'k1', '2026-01-01 00:13:21Z', 802), (803, 'k2', NULL, 4);
CALL stream.process_all_available('sums');
SELECT sum(n), (SELECT count(*) FROM event e JOIN shop USING (k) WHERE v % 2 = 0) - 2 AS wanted FROM sums;
SELECT source, reason, convert_from(raw, 'UTF8')::json ->> 'city' AS city, error FROM stream.dead_letters ORDER BY error;
SELECT rows_late, state_rows > 0 AS has_state FROM stream.queries WHERE name = 'sums';

-- Errors of a task are those of the batch, which comes again.
SELECT stream.create_query('divided', 'SELECT k, sum(100 / (v - 803)) AS s FROM events GROUP BY k', stream.to_table('divided'), 'update', options => '{"parallelism": 2}', start => false);
INSERT INTO event VALUES (804, 'k3', '2026-01-01 00:13:22Z', 803);
CALL stream.process_all_available('divided');
CALL stream.process_all_available('divided');
UPDATE event SET v = 1 WHERE id = 804;
CALL stream.process_all_available('divided');
SELECT count(*), (SELECT array_agg(batch_id) FROM stream.commit_log JOIN stream.queries q ON q.id = query_id WHERE name = 'divided') AS batches FROM divided;

-- What cannot be shared says so; what is no number of tasks is refused.
SELECT stream.create_source('ticks', 'rate', options => '{"rows_per_second": 1}');
SELECT stream.create_query('alone', 'SELECT * FROM ticks', stream.to_table('alone'), options => '{"parallelism": 2}', start => false);
SELECT stream.create_query('none', 'SELECT * FROM ticks', stream.to_table('none'), options => '{"parallelism": 0}', start => false);
