-- What explain_query draws: the sink's stage on top, below each stage the operators it reads, below each operator the stages that feed it.
SET client_min_messages = warning;
CREATE TABLE a_t (id int, k int, ts timestamptz);
CREATE TABLE b_t (id int, k int, ts timestamptz);
CREATE TABLE side (k int PRIMARY KEY, name text);
SELECT stream.create_source('a', 'table', options => '{"table": "a_t"}', event_time => 'ts', watermark_delay => '1 minute');
SELECT stream.create_source('b', 'table', options => '{"table": "b_t"}', event_time => 'ts', watermark_delay => '2 minutes');
CREATE SEQUENCE number;
CREATE FUNCTION explained(query text, mode text DEFAULT 'append') RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE name text := 'q' || nextval('number');
BEGIN
    PERFORM stream.create_query(name, query, stream.to_table(name || '_out'), output_mode => mode, start => false);
    RETURN QUERY SELECT * FROM stream.explain_query(name);
END $$;


-- stateless
SELECT explained('SELECT a.id FROM a WHERE a.id > 5');
-- two sources, one operator
SELECT explained('SELECT a.id, b.id AS other FROM a JOIN b ON a.k = b.k AND b.ts BETWEEN a.ts AND a.ts + interval ''5 minutes''');
-- operators over operators
SELECT explained('SELECT w, count(*) AS n FROM (SELECT a.k, stream.tumble(a.ts, ''1 minute'') AS w FROM a JOIN b ON a.k = b.k AND b.ts BETWEEN a.ts AND a.ts + interval ''5 minutes'') x GROUP BY w');
SELECT explained('SELECT k, count(*) AS n FROM (SELECT DISTINCT k, ts FROM a) d GROUP BY k HAVING count(*) > 1', 'update');
-- an operator read twice: what stays and what leaves
SELECT explained('SELECT k, id FROM (SELECT *, row_number() OVER (PARTITION BY k ORDER BY ts DESC) AS place FROM a) x WHERE place <= 2', 'update');
