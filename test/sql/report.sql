-- The page of stream.report_html(): whole, well-formed whatever names and errors say, nothing from elsewhere, and only what the caller may see.
SET client_min_messages = warning;
CREATE TABLE event_t (id int, ts timestamptz);
SELECT stream.create_source('event', 'table', options => '{"table": "event_t"}', event_time => 'ts', watermark_delay => '1 minute');
CREATE FUNCTION as_xml(page text) RETURNS xml LANGUAGE sql AS $$SELECT xmlparse(document page)$$;
CREATE FUNCTION found(path text) RETURNS text[] LANGUAGE sql AS
    $$SELECT xpath(path, as_xml(stream.report_html()), ARRAY[ARRAY['h', 'http://www.w3.org/1999/xhtml'], ARRAY['s', 'http://www.w3.org/2000/svg']])::text[]$$;
SELECT found('//h:body/h:p/text()') IS NOT NULL AS page_without_queries;
SELECT found('//h:section');

-- names, text and errors from the wild
SELECT stream.create_query(E'<script>alert("1")</script> & ]]> \x02 ''x''', 'SELECT id, stream.tumble(ts, ''1 minute'') AS w, count(*) AS n FROM event GROUP BY id, w',
    stream.to_table('counted'), output_mode => 'update', start => false) AS id \gset
SELECT name FROM stream.queries \gset
INSERT INTO event_t SELECT i, '2026-03-01 10:00:00+00'::timestamptz + i * interval '10 seconds' FROM generate_series(1, 30) i;
CALL stream.run_batch(:'name', NULL);
INSERT INTO event_t SELECT i, '2026-03-01 10:05:00+00'::timestamptz + i * interval '10 seconds' FROM generate_series(1, 30) i;
CALL stream.process_all_available(:'name');
UPDATE stream.query_run SET failures = 3, sqlstate = '22P02', error = E'invalid <b>"input"</b> & more\nCONTEXT:  \x7f </pre></section></html>', status = 'failed' WHERE query_id = :id;
INSERT INTO stream.dead_letter (query_id, batch_id, source, reason, error, at) SELECT :id, 0, '<i>public.event</i>', 'bad_row', E'\x01<img src="http://evil/">', '2026-03-01 10:00:00+00' FROM generate_series(1, 3);
SELECT found('//h:section/h:h2/text()');
SELECT found('//h:section[1]/h:h2/h:span/text()');
SELECT found('//h:pre/text()');
SELECT found('//h:figcaption/text()[1]');
SELECT found('//h:p[not(.//text())]') AS empty_paragraphs;
SELECT cardinality(found('//s:svg')) AS charts, cardinality(found('//s:polyline')) AS lines;
SELECT found('//h:section[1]//h:td/text()');
SELECT found('//h:section[3]//h:td/text()');
SELECT found('//h:script | //h:img | //h:link | //@src | //@href | //@onload') AS nothing_active;
SELECT found('//h:title/text()') IS NOT NULL AS titled, stream.report_html() !~ 'url\(|@import|javascript:' AS self_contained;
-- the lines stay inside their frames
SELECT bool_and(p::float8 BETWEEN 0 AND 300) FROM unnest(found('//s:polyline/@points')) x, regexp_split_to_table(x, '[ ,]') p;
SELECT stream.report_chart('none', '', '{}') IS NULL AS nothing, stream.report_chart('nulls', '', '{NULL,NULL}') IS NULL AS nulls,
    stream.report_chart('one', 'x', '{5}') ~ 'points="2.0,2.0"' AS one, stream.report_chart('zeros', 'x', '{0,0}') ~ 'points="2.0,62.0 298.0,62.0"' AS zeros;

-- no operator or function in the caller's search_path is asked
CREATE SCHEMA hostile;
CREATE FUNCTION hostile.trap(text, text) RETURNS text LANGUAGE plpgsql AS $$BEGIN RAISE EXCEPTION 'trapped'; END$$;
CREATE OPERATOR hostile.|| (LEFTARG = text, RIGHTARG = text, FUNCTION = hostile.trap);
CREATE FUNCTION hostile.replace(text, text, text) RETURNS text LANGUAGE plpgsql AS $$BEGIN RAISE EXCEPTION 'trapped'; END$$;
CREATE TABLE hostile.queries (a int);
SET search_path = hostile, pg_catalog;
SELECT length(stream.report_html()) > 1000 AS whole;
RESET search_path;

-- others see nothing of it
CREATE ROLE regress_report;
SET ROLE regress_report;
SELECT stream.report_html() !~ 'script|evil' AS unseen, stream.report_html() ~ 'No query' AS says_so;
RESET ROLE;
DROP ROLE regress_report;

-- no view looks dear enough to be compiled (JIT takes seconds), even with tables nobody has analysed
CREATE FUNCTION cost(view regclass) RETURNS float8 LANGUAGE plpgsql AS $$
DECLARE plan json;
BEGIN
    EXECUTE format('EXPLAIN (FORMAT json) SELECT * FROM %s', view) INTO plan;
    RETURN plan->0->'Plan'->>'Total Cost';
END $$;
SELECT relname, round(cost(oid)) FROM pg_class WHERE relnamespace = 'stream'::regnamespace AND relkind = 'v' AND cost(oid) > 30000;
