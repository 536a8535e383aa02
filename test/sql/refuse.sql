-- What cannot stream is refused when the query is created: what, where in the text, why, and the way out.
CREATE SCHEMA refuse;
SET search_path = refuse;
\set SHOW_CONTEXT never
CREATE TABLE input_t (value int, ts timestamptz, other timestamptz, k text, p point);
SELECT stream.create_source('input', 'table', options => '{"table": "input_t"}', event_time => 'ts', watermark_delay => '10 seconds');
SELECT stream.create_source('twin', 'table', options => '{"table": "input_t"}', event_time => 'other', watermark_delay => '10 seconds');
SELECT stream.create_source('bare', 'table', options => '{"table": "input_t"}');
SELECT stream.create_source('late', 'table', options => '{"table": "input_t"}', event_time => 'ts');
CREATE TABLE dim (k int PRIMARY KEY, name text);
CREATE FUNCTION make(query text, mode text DEFAULT 'append', options jsonb DEFAULT '{}') RETURNS text
    LANGUAGE sql AS $$ SELECT 'made' FROM stream.create_query('q', query, stream.to_table('out'), mode, options => options, start => false) $$;
CREATE FUNCTION try(query text, mode text DEFAULT 'append', options jsonb DEFAULT '{}') RETURNS text
    LANGUAGE plpgsql AS $$
BEGIN
    PERFORM stream.create_query('q', query, stream.to_table('out'), mode, options => options, start => false);
    PERFORM stream.drop_query('q');
    DROP TABLE out;
    RETURN 'made';
END $$;

-- No stream, no SELECT.
SELECT make('SELECT 1 AS one');
SELECT make('SELECT k FROM dim');
SELECT make('SELECT value FROM input_t');
SELECT make('DELETE FROM dim');

-- Clauses.
SELECT make('SELECT value, row_number() OVER (ORDER BY ts) AS n FROM input');
SELECT make('SELECT value, k, count(*) AS n FROM input GROUP BY GROUPING SETS ((value), (k))', 'complete');
SELECT make('SELECT value, k, count(*) AS n FROM input GROUP BY ROLLUP (value, k)', 'update');
SELECT make('SELECT value FROM input OFFSET 2');
SELECT make('SELECT value FROM input LIMIT 2 OFFSET 2');
SELECT make('SELECT value FROM input FOR UPDATE');
SELECT make('SELECT value FROM input ORDER BY value');
SELECT make('SELECT value, count(*) AS n FROM input GROUP BY value ORDER BY n', 'update');
SELECT make('SELECT value FROM input LIMIT 5', 'update');
SELECT make('SELECT value FROM input LIMIT (SELECT count(*) FROM dim)');
SELECT make('SELECT DISTINCT value FROM input', 'complete');
SELECT make('SELECT DISTINCT ON (value) value, ts FROM input ORDER BY value, ts DESC');
SELECT make('WITH RECURSIVE r AS (SELECT value FROM input UNION ALL SELECT value + 1 FROM r WHERE value < 5) SELECT * FROM r');
SELECT make('WITH w AS (DELETE FROM dim RETURNING k) SELECT value FROM input JOIN w ON w.k = value');

-- Set operations.
SELECT make('SELECT value FROM input UNION SELECT value FROM bare');
SELECT make('SELECT value FROM input INTERSECT SELECT value FROM bare');
SELECT make('SELECT value FROM input EXCEPT ALL SELECT k FROM dim');
SELECT make('SELECT value FROM input UNION ALL SELECT k FROM dim');
SELECT make('SELECT value, count(*) AS n FROM input GROUP BY 1 UNION ALL SELECT value, count(*) FROM bare GROUP BY 1', 'update');
SELECT make('SELECT k, generate_series(1, n) AS g FROM (SELECT k, count(*) AS n FROM input GROUP BY k) x', 'update');

-- Output modes.
SELECT make('SELECT value FROM input', 'complete');
SELECT make('SELECT value, count(*) AS n FROM input GROUP BY 1 UNION ALL SELECT value, 1 FROM input', 'complete');
SELECT make('SELECT value, count(*) AS n FROM bare GROUP BY value');
SELECT make('SELECT value, count(*) AS n FROM input GROUP BY value');
SELECT make('SELECT stream.tumble(ts, ''5 seconds'') AS w, count(*) AS n FROM bare GROUP BY 1');
SELECT make('SELECT stream.tumble(ts, ''5 seconds'') AS w, count(*) AS n FROM late GROUP BY 1');
SELECT make('SELECT count(*) AS n FROM input');
SELECT make('SELECT count(*) AS n FROM input GROUP BY value', 'update');
SELECT make('SELECT n, count(*) AS c FROM (SELECT value, count(*) AS n FROM input GROUP BY value) a GROUP BY n', 'update');
SELECT make('SELECT max(n) AS n FROM (SELECT value, count(*) AS n FROM input GROUP BY value) a', 'complete');
SELECT make('SELECT DISTINCT n FROM (SELECT value, count(*) AS n FROM input GROUP BY value) a', 'update');

SELECT make('SELECT s.value, d.name FROM input s JOIN dim d ON d.k = s.value', 'complete');
SELECT make('SELECT i.value FROM input i LEFT JOIN twin t ON i.value = t.value AND t.other BETWEEN i.ts AND i.ts + interval ''1 min''', 'complete');
SELECT make('SELECT value FROM input i WHERE EXISTS (SELECT FROM twin t WHERE t.value = i.value AND t.other = i.ts)', 'complete');
SELECT make('SELECT value FROM input LIMIT 5', 'complete');
SELECT make('SELECT value FROM input ORDER BY value', 'complete');
SELECT make('SELECT value, lag(value) OVER (ORDER BY ts) AS before FROM input', 'complete');
SELECT make('SELECT value, count(*) AS n FROM input GROUP BY value LIMIT 3', 'update');
SELECT make('SELECT k, count(*) AS n FROM (SELECT DISTINCT ON (value) value, k FROM input) d GROUP BY k');
SELECT make('SELECT n, count(*) AS c FROM (SELECT value, stream.tumble(ts, ''5 s'') AS w, count(*) AS n FROM input GROUP BY 1, 2) a GROUP BY n');

-- Update mode: what stands above groups, sessions or best rows that change.
SELECT make('SELECT k, count(*) AS n FROM input GROUP BY k UNION ALL SELECT k, value FROM input', 'update');
SELECT make('SELECT k, upper(s) AS at, n FROM (SELECT k, stream.session(ts, ''5 s'') AS s, count(*) AS n FROM input GROUP BY 1, 2) x UNION ALL SELECT k, ts, 1 FROM input', 'update');
SELECT make('SELECT k, v FROM (SELECT k, value AS v, row_number() OVER (PARTITION BY k ORDER BY value) AS rn FROM input) x WHERE rn <= 2 UNION ALL SELECT k, 1 FROM input', 'update');
SELECT make('SELECT d.name, s, n FROM (SELECT value, stream.session(ts, ''5 s'') AS s, count(*) AS n FROM input GROUP BY 1, 2) x JOIN dim d ON d.k = x.value', 'update');
SELECT make('SELECT x.k, d.name, v FROM (SELECT k, value AS v, row_number() OVER (PARTITION BY k ORDER BY value) AS rn FROM input) x JOIN dim d ON d.k = v WHERE rn <= 2', 'update');
SELECT make('SELECT k, count(*) AS n FROM (SELECT k, row_number() OVER (PARTITION BY k ORDER BY value) AS rn FROM input) x WHERE rn <= 2 GROUP BY k', 'update');
SELECT make('SELECT DISTINCT k FROM (SELECT k, stream.session(ts, ''5 s'') AS s, count(*) AS n FROM input GROUP BY 1, 2) x', 'update');
SELECT make('SELECT k, sum(n) AS n FROM (SELECT k, stream.session(ts, ''5 s'') AS s, count(*) AS n FROM input GROUP BY 1, 2) x GROUP BY k', 'update');
SELECT make('SELECT value FROM (SELECT value, count(*) AS n FROM input GROUP BY value) c WHERE EXISTS (SELECT FROM twin t WHERE t.value = c.value)', 'update');

-- Not event time any more: it went through something that is not followed.
SELECT make('SELECT ts + ''1 hour'' AS t, count(*) AS n FROM input GROUP BY 1');
SELECT make('SELECT ts::date AS d, count(*) AS n FROM input GROUP BY 1');
SELECT make('SELECT stream.tumble(other, ''5 seconds'') AS w, count(*) AS n FROM input GROUP BY 1');
SELECT make('SELECT date_bin(make_interval(secs => value), ts, ''epoch'') AS b, count(*) AS n FROM input GROUP BY 1');
SELECT make('SELECT max AS w, count(*) AS n FROM (SELECT stream.tumble(ts, ''5 s'') AS w, max(ts) FROM input GROUP BY 1) x GROUP BY 1');
SELECT make('SELECT t, count(*) AS n FROM (SELECT ts AS t FROM input UNION ALL SELECT ts FROM bare) u GROUP BY t');
SELECT make('SELECT b, count(*) AS n FROM (SELECT date_trunc(''hour'', ts) AS b FROM input UNION ALL SELECT date_trunc(''day'', ts) FROM input) u GROUP BY b');

-- Keys and aggregates.
SELECT make('SELECT p, count(*) AS n FROM input GROUP BY p', 'update');
SELECT make('SELECT d.k, d.name, count(*) AS n FROM input i JOIN dim d ON d.k = i.value GROUP BY d.k', 'update');
SELECT make('SELECT random() < 0.5 AS r, count(*) AS n FROM input GROUP BY 1', 'update');
SELECT make('SELECT value, count(*) AS n FROM input WHERE clock_timestamp() > ts GROUP BY 1', 'update');
SELECT make('SELECT DISTINCT value, nextval(''stream.query_id_seq'') AS id FROM input');
SELECT make('SELECT d.k, n FROM dim d, LATERAL (SELECT count(*) AS n FROM input i WHERE i.value = d.k) x', 'update');

-- Joins and subqueries.
SELECT make('SELECT d.k FROM input s RIGHT JOIN dim d ON s.value = d.k');
SELECT make('SELECT d.k FROM dim d LEFT JOIN input s ON s.value = d.k');
SELECT make('SELECT d.k FROM input s FULL JOIN dim d ON s.value = d.k');
SELECT make('SELECT i.value FROM input i JOIN bare b ON i.value = b.value', 'complete');
SELECT make('SELECT value FROM input i WHERE NOT EXISTS (SELECT FROM bare b WHERE b.value = i.value)');
SELECT make('SELECT value FROM input i WHERE value NOT IN (SELECT value FROM bare)');
SELECT make('SELECT k, (SELECT max(value) FROM input) AS m FROM dim');
SELECT make('WITH s AS (SELECT value, random() AS r FROM input) SELECT * FROM s UNION ALL SELECT * FROM s');

-- Joins of streams.
SELECT make('SELECT i.value FROM input i JOIN twin t ON i.value < t.value');
SELECT make('SELECT i.value FROM input i, twin t');
SELECT make('SELECT i.value FROM input i LEFT JOIN bare b ON i.value = b.value AND b.ts BETWEEN i.ts AND i.ts + interval ''1 min''');
SELECT make('SELECT i.value FROM input i LEFT JOIN twin t ON i.value = t.value');
SELECT make('SELECT i.value FROM input i FULL JOIN twin t ON i.value = t.value AND t.other < i.ts');
SELECT make('SELECT i.value FROM input i LEFT JOIN twin t ON i.value = t.value AND t.other BETWEEN i.ts AND i.ts + interval ''1 min''', 'update');
SELECT make('SELECT value FROM input i WHERE EXISTS (SELECT FROM twin t WHERE t.value = i.value)');
SELECT make('SELECT value FROM input i WHERE k = ''a'' OR EXISTS (SELECT FROM twin t WHERE t.value = i.value)');
SELECT make('SELECT k FROM dim WHERE k IN (SELECT value FROM input)');
SELECT make('SELECT value FROM input i WHERE value IN (SELECT max(value) FROM twin GROUP BY k)');
SELECT make('SELECT i.value FROM input i JOIN twin t ON i.value = t.value AND EXISTS (SELECT FROM dim d WHERE d.k = i.value + t.value)');
SELECT make('SELECT i.value FROM input i JOIN LATERAL (SELECT t.value + i.value AS v FROM twin t) x ON x.v = i.value');
SELECT make('SELECT i.value, x.other FROM input i, LATERAL (SELECT t.other FROM twin t WHERE t.value = i.value) x');
SELECT make('SELECT a.value FROM (SELECT i.value, i.ts, t.other FROM input i JOIN twin t ON i.value = t.value AND i.ts = t.other) a JOIN input j ON a.value = j.value');
SELECT make('SELECT stream.tumble(i.ts, ''5 s'') AS w, count(*) AS n FROM input i JOIN twin t ON i.value = t.value GROUP BY 1');
SELECT make('SELECT stream.tumble(i.ts, ''5 s'') AS w, count(*) AS n FROM input i JOIN twin t ON i.value = t.value AND t.other < i.ts + t.value * interval ''1 s'' GROUP BY 1');
SELECT make('SELECT i.ts, t.other, count(*) AS n FROM input i JOIN twin t ON i.value = t.value AND t.other = i.ts GROUP BY 1, 2');
SELECT make('SELECT n, i.value FROM (SELECT value, count(*) AS n FROM twin GROUP BY value) c JOIN input i USING (value)', 'update');
CREATE TABLE parent (value int, ts timestamptz, other timestamptz, k text, p point);
ALTER FOREIGN TABLE bare INHERIT parent;
SELECT make('SELECT i.value FROM input i JOIN parent p ON p.value = i.value');
ALTER FOREIGN TABLE bare NO INHERIT parent;

-- Options.
SELECT make('SELECT value FROM bare', options => '{"watermarks": {"bare": "1 minute"}}');
SELECT make('SELECT value FROM input', options => '{"watermarks": {"refuse.input": "1 minute", "imput": "1 minute"}}');
SELECT make('SELECT value FROM input', options => '{"watermarks": {"input": "-1 minute"}}');
SELECT make('SELECT value FROM input', options => '{"watermarks": "1 minute"}');
SELECT make('SELECT value FROM input', options => '{"late_rows": "drop|dead_letter"}');
SELECT make('SELECT value FROM input', options => '{"max_rows_per_batch": 9223372036854775807}');
SELECT make('SELECT DISTINCT value FROM bare', options => '{"dedup_within_watermark": true}');

-- Accepted, beside all that.
SELECT try('SELECT value, random() AS r, clock_timestamp() AS t FROM input');
SELECT try('SELECT value, count(*) AS n, random() AS r FROM input GROUP BY value', 'update');
SELECT try('SELECT s.value, d.name FROM input s LEFT JOIN dim d ON s.value = d.k WHERE s.value NOT IN (SELECT k FROM dim WHERE name IS NULL)');
SELECT try('SELECT value FROM input UNION ALL SELECT value + 1 FROM input');
SELECT try('WITH RECURSIVE r AS (SELECT 1 AS k UNION ALL SELECT k + 1 FROM r WHERE k < 5) SELECT value, count(*) AS n FROM input JOIN r ON r.k = value GROUP BY 1', 'update');
SELECT try('SELECT stream.tumble(ts, ''5 seconds'') AS w, count(*) AS n FROM late GROUP BY 1', options => '{"watermarks": {"late": "1 minute"}}');
SELECT try('SELECT value, grouping(value) AS g, count(*) AS n FROM input GROUP BY value ORDER BY n LIMIT 3', 'complete');
SELECT try('SELECT count(*) AS n FROM (SELECT DISTINCT value FROM input) d', 'complete');
SELECT try('SELECT value FROM input LIMIT 5');
SELECT try('SELECT value, count(*) AS n FROM input GROUP BY 1 UNION ALL SELECT value, count(*) FROM bare GROUP BY 1', 'complete');
SELECT try('SELECT d.name, s, n FROM (SELECT value, stream.session(ts, ''5 s'') AS s, count(*) AS n FROM input GROUP BY 1, 2) x JOIN dim d ON d.k = x.value');
SELECT try('SELECT x.value, d.name, n FROM (SELECT value, count(*) AS n FROM input GROUP BY 1) x LEFT JOIN dim d ON d.k = x.value', 'update');
SELECT try(q) FROM unnest(ARRAY[
    'SELECT ts, count(*) AS n FROM input GROUP BY ts',
    'SELECT date_trunc(''month'', ts, ''Europe/Berlin'') AS m, count(*) AS n FROM input GROUP BY 1',
    'SELECT date_bin(''15 minutes'', ts, ''2001-01-01'') AS b, count(*) AS n FROM input GROUP BY 1',
    'SELECT value, stream.hop(ts, ''10 seconds'', ''5 seconds'') AS w, count(*) AS n FROM input GROUP BY 1, 2',
    'SELECT lower(w) AS "from", count(*) AS n FROM input, stream.tumble(ts, ''5 seconds'') w GROUP BY lower(w)',
    'SELECT stream.tumble_local(ts, ''1 day'', ''Europe/Berlin'') AS d, count(*) AS n FROM input GROUP BY 1',
    'WITH a AS (SELECT stream.tumble(ts, ''5 s'') AS w, count(*) AS n FROM input GROUP BY 1) SELECT stream.tumble(stream.window_time(w), ''1 min'') AS w, sum(n) AS n FROM a GROUP BY 1',
    'SELECT w, count(*) AS n FROM (SELECT stream.tumble(i.ts, ''5 s'') AS w FROM input i JOIN dim d ON d.k = i.value UNION ALL SELECT stream.tumble(other, ''1 min'') FROM twin) u GROUP BY w']) q;
