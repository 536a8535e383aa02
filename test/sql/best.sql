-- The best rows of each key, DISTINCT ON … ORDER BY and row_number() … <= n; and groups that HAVING no longer lets through: rows that leave the target.
CREATE SCHEMA best;
SET search_path = best;
\set VERBOSITY default
\set SHOW_CONTEXT never
CREATE FUNCTION make(name text, query text, sink stream.sink DEFAULT NULL, mode text DEFAULT 'update') RETURNS text
    LANGUAGE sql AS $$ SELECT 'made ' || name FROM stream.create_query(name, query, coalesce(sink, stream.to_table('got_' || name)), mode, start => false) $$;
CREATE PROCEDURE process_all() LANGUAGE plpgsql AS $$
DECLARE q text;
BEGIN
    FOR q IN SELECT name FROM stream.queries ORDER BY id LOOP
        CALL stream.process_all_available(q);
    END LOOP;
END $$;
CREATE TABLE bid_t (id int, item text, price int, w numeric, note json);
SELECT stream.create_source('bid', 'table', options => '{"table": "bid_t"}');

--
-- The last, the highest: a better row takes the place of the one before, an equal one does not. NULL keys are one key.
--
SELECT make('highest', 'SELECT DISTINCT ON (item) item, id, price FROM bid ORDER BY item, price DESC NULLS LAST');
SELECT make('lowest', 'SELECT DISTINCT ON (item) item, id, price, w FROM bid ORDER BY item, price NULLS FIRST, w DESC');
SELECT make('newest', 'SELECT DISTINCT ON (i) upper(item) AS i, id + 0 AS id FROM bid ORDER BY i, bid.id DESC');
SELECT make('first', 'SELECT DISTINCT ON (item) item, id FROM bid ORDER BY item');
\d got_highest
CREATE TABLE happened (what text);
CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO happened VALUES (TG_OP); RETURN NULL; END $$;
CREATE TRIGGER note AFTER INSERT OR UPDATE OR DELETE ON got_highest FOR EACH ROW EXECUTE FUNCTION note();
INSERT INTO bid_t VALUES (1, 'a', 10, 1), (2, 'a', 12, 1), (3, 'b', 5, 1), (4, 'a', 12, 2), (5, NULL, NULL, 1), (6, 'b', NULL, 1);
CALL process_all();
TABLE got_highest ORDER BY item;
TABLE got_lowest ORDER BY item;
TABLE got_newest ORDER BY i;
INSERT INTO bid_t VALUES (7, 'a', 12, 3), (8, 'b', NULL, 2), (9, NULL, 1, 1), (10, 'c', 1, 1);
CALL process_all();
TABLE got_highest ORDER BY item;
TABLE got_lowest ORDER BY item;
TABLE got_newest ORDER BY i;
SELECT item, id FROM got_first ORDER BY item;
SELECT what, count(*) FROM happened GROUP BY 1 ORDER BY 1;
SELECT (progress->'stateOperators'->0->>'operatorName') AS operator, batch_id, progress->'stateOperators'->0->>'numRowsTotal' AS keys, progress->'stateOperators'->0->>'numRowsUpdated' AS updated
FROM stream.progress WHERE query = 'highest' ORDER BY batch_id;

--
-- Top n: with its place shown a row takes the place of another; without it the ones pushed out leave, by whole row or by a key of the user's. Rows
-- that are equal are rows still.
--
SELECT make('placed', 'SELECT item, place, id, price FROM (SELECT *, row_number() OVER (PARTITION BY item ORDER BY price DESC NULLS LAST) AS place FROM bid) x WHERE place <= 2');
SELECT make('top', 'SELECT item, price FROM (SELECT *, row_number() OVER (PARTITION BY item ORDER BY price DESC NULLS LAST) AS place FROM bid) x WHERE place <= 2');
SELECT make('by_id', 'SELECT id, price, item FROM (SELECT *, row_number() OVER (PARTITION BY item ORDER BY price DESC NULLS LAST) AS place FROM bid) x WHERE 3 > place',
            stream.to_table('got_by_id', '{"key": ["id"]}'));
SELECT make('best_only', 'SELECT price, item, id FROM (SELECT *, row_number() OVER (PARTITION BY item ORDER BY price DESC NULLS LAST) AS place FROM bid) x WHERE place = 1');
SELECT make('second', 'SELECT item, id FROM (SELECT *, row_number() OVER (PARTITION BY item ORDER BY price DESC NULLS LAST) AS place FROM bid) x WHERE place = 2');
SELECT make('overall', 'SELECT id, price FROM (SELECT id, price, row_number() OVER (ORDER BY price DESC NULLS LAST) AS place FROM bid) x WHERE place < 4');
SELECT make('first_two', 'WITH x AS (SELECT item, id, row_number() OVER (PARTITION BY item) AS place FROM bid) SELECT item, id FROM x WHERE place BETWEEN 1 AND 2');
SELECT make('ordinal', 'SELECT item, ordinal, id FROM (SELECT item, id, ''no. '' || row_number() OVER w AS ordinal, row_number() OVER w AS n FROM bid WINDOW w AS (PARTITION BY item ORDER BY price DESC NULLS LAST)) x WHERE n <= 2');
SELECT make('dear', 'SELECT item, id, price FROM (SELECT *, row_number() OVER (PARTITION BY item ORDER BY id DESC) AS place FROM bid) x WHERE place <= 2 AND price > 10');
\d got_placed
\d got_top
CALL process_all();
SELECT item, place, id, price FROM got_placed ORDER BY item, place;
SELECT item, price FROM got_top ORDER BY item, price DESC;
INSERT INTO bid_t VALUES (11, 'a', 12, 1), (12, 'b', 6, 1), (13, 'a', 13, 1), (14, 'c', 1, 1), (15, 'c', 1, 1), (16, NULL, 12, 1);
CALL process_all();
SELECT item, place, id, price FROM got_placed ORDER BY item, place;
SELECT item, price FROM got_top ORDER BY item, price DESC;
SELECT id, price, item FROM got_by_id ORDER BY item, price DESC;
SELECT price, item, id FROM got_best_only ORDER BY item;
SELECT item, id FROM got_second ORDER BY item;
SELECT id, price FROM got_overall ORDER BY price DESC, id;
SELECT item, id FROM got_first_two ORDER BY item, id;
SELECT item, ordinal, id FROM got_ordinal ORDER BY item, ordinal;
SELECT item, id, price FROM got_dear ORDER BY item, id;

--
-- After a restart and after a failure they go on from what is committed.
--
\c -
SET search_path = best;
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('best.fail', true) = 'on' THEN
        RAISE EXCEPTION 'not today';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER refuse BEFORE INSERT OR UPDATE ON got_top FOR EACH ROW EXECUTE FUNCTION refuse();
SET best.fail = on;
INSERT INTO bid_t VALUES (17, 'a', 14, 1), (18, 'c', 2, 1);
CALL stream.process_all_available('top');
SELECT item, price FROM got_top ORDER BY item, price DESC;
SET best.fail = off;
CALL process_all();
SELECT item, price FROM got_top ORDER BY item, price DESC;
SELECT item, ordinal, id FROM got_ordinal ORDER BY item, ordinal;
-- all of them against the plain SELECT
SELECT count(*) AS wrong FROM ((SELECT item, price FROM (SELECT *, row_number() OVER (PARTITION BY item ORDER BY price DESC NULLS LAST, id) AS place FROM bid) x WHERE place <= 2)
                               EXCEPT ALL (SELECT item, price FROM got_top)) x;

--
-- State, changes of it, explain.
--
SELECT key, value FROM stream.state('top') ORDER BY key::text, value->'row_number';
SELECT key, value FROM stream.state('highest') ORDER BY key::text;
SELECT batch_id, change_type, key, value FROM stream.state_changes('top', 0, 2, 2) ORDER BY key::text, value->'row_number';
SELECT * FROM stream.explain_query('top');
SELECT * FROM stream.explain_query('highest');

--
-- Targets of the user's: columns of other types, types that cannot be compared, partitions.
--
CREATE TABLE got_wide (item varchar(10) NOT NULL, id bigint, price numeric(10, 2), note json) PARTITION BY LIST (item);
CREATE TABLE got_wide_a PARTITION OF got_wide FOR VALUES IN ('a');
CREATE TABLE got_wide_rest PARTITION OF got_wide DEFAULT;
SELECT make('wide', 'SELECT item, id, price, note FROM (SELECT *, row_number() OVER (PARTITION BY item ORDER BY price DESC NULLS LAST) AS place FROM bid WHERE item IS NOT NULL) x WHERE place <= 2',
            stream.to_table('got_wide'));
CALL stream.process_all_available('wide');
INSERT INTO bid_t VALUES (19, 'a', 20, 1, '{"x":  1}'), (20, 'b', 20, 1, NULL), (21, 'b', 20, 1, '[]');
CALL process_all();
INSERT INTO bid_t VALUES (22, 'a', 21, 1, '{"x":  1}'), (23, 'a', 22, 1, '{"x": 2}'), (24, 'b', 23, 1, '[]'), (25, 'b', 23, 1, '[]');
CALL process_all();
SELECT tableoid::regclass, * FROM got_wide ORDER BY item, id;

--
-- Event time among the keys: closed keys are forgotten, rows for them are late.
--
CREATE TABLE reading_t (device text, ts timestamptz, v int);
SELECT stream.create_source('reading', 'table', options => '{"table": "reading_t"}', event_time => 'ts', watermark_delay => '1 minute');
SELECT make('last_of_minute', 'SELECT DISTINCT ON (device, w) device, stream.tumble(ts, ''1 minute'') AS w, v FROM reading ORDER BY device, w, ts DESC');
SELECT make('top_of_day', 'SELECT device, d, v FROM (SELECT device, date_trunc(''day'', ts) AS d, v, row_number() OVER (PARTITION BY device, date_trunc(''day'', ts) ORDER BY v DESC) AS n FROM reading) x WHERE n <= 2');
INSERT INTO reading_t VALUES ('x', '2026-03-01 10:00:10+00', 1), ('x', '2026-03-01 10:00:50+00', 2), ('x', '2026-03-01 10:00:20+00', 3), ('x', '2026-03-01 10:05+00', 4), ('x', NULL, 9);
CALL stream.process_all_available('last_of_minute');
CALL stream.process_all_available('top_of_day');
INSERT INTO reading_t VALUES ('x', '2026-03-01 10:00:55+00', 5), ('x', '2026-03-01 10:05:01+00', 6);
CALL stream.process_all_available('last_of_minute');
CALL stream.process_all_available('top_of_day');
SELECT device, w, v FROM got_last_of_minute ORDER BY w;
SELECT device, d, v FROM got_top_of_day ORDER BY v;
SELECT name, rows_late, state_rows FROM stream.queries WHERE name IN ('last_of_minute', 'top_of_day') ORDER BY name;

--
-- Conditions above keep-best, and HAVING and its like: rows that stop qualifying leave, also from under several levels; nothing is computed
-- from rows that do not get that far.
--
SELECT make('cheap_last', 'SELECT item, price FROM (SELECT DISTINCT ON (item) item, price, id FROM bid ORDER BY item, id DESC) x WHERE price < 10');
SELECT make('average', 'SELECT item, avg(price) AS a FROM bid GROUP BY item HAVING avg(price) > 10');
SELECT make('nested', 'SELECT k, 60 / n AS share FROM (SELECT item AS k, count(price) AS n FROM bid GROUP BY item HAVING count(price) > 0) x WHERE 60 / n > 10');
SELECT make('total', 'SELECT count(*) AS n FROM bid HAVING count(*) < 30');
CALL process_all();
SELECT item, price FROM got_cheap_last ORDER BY item;
SELECT item, round(a, 2) FROM got_average ORDER BY item;
SELECT k, share FROM got_nested ORDER BY k;
SELECT n FROM got_total;
INSERT INTO bid_t VALUES (26, 'a', 1, 1), (27, 'c', 50, 1), (28, 'b', 0, 1), (29, 'd', NULL, 1), (30, NULL, 1, 1), (31, NULL, 1, 1), (32, NULL, 1, 1);
CALL process_all();
SELECT item, price FROM got_cheap_last ORDER BY item;
SELECT item, round(a, 2) FROM got_average ORDER BY item;
SELECT k, share FROM got_nested ORDER BY k;
SELECT n FROM got_total;
-- under a key of the user's, or where no table is written, nothing can leave
SELECT make('own_key', 'SELECT item, count(*) AS n, max(id) AS last FROM bid GROUP BY item HAVING count(*) > 1', stream.to_table('got_own_key', '{"key": ["last"]}'));
SELECT make('noted', 'SELECT item, count(*) AS n FROM bid GROUP BY item HAVING count(*) > 1', stream.to_memory());

--
-- What leaves is deleted with the owner's rights.
--
CREATE ROLE regress_best_user LOGIN;
GRANT USAGE, CREATE ON SCHEMA best TO regress_best_user;
GRANT SELECT ON bid, bid_t TO regress_best_user;
CREATE TABLE got_granted (item text UNIQUE NULLS NOT DISTINCT, n bigint);
GRANT SELECT, INSERT, UPDATE ON got_granted TO regress_best_user;
SET SESSION AUTHORIZATION regress_best_user;
SELECT make('granted', 'SELECT item, count(*) AS n FROM bid GROUP BY item HAVING count(*) < 5');
RESET SESSION AUTHORIZATION;
GRANT DELETE ON got_granted TO regress_best_user;
SET SESSION AUTHORIZATION regress_best_user;
SELECT make('granted', 'SELECT item, count(*) AS n FROM bid GROUP BY item HAVING count(*) < 5');
CALL stream.process_all_available('granted');
RESET SESSION AUTHORIZATION;
REVOKE DELETE ON got_granted FROM regress_best_user;
INSERT INTO bid_t SELECT i, 'd', 1, 1 FROM generate_series(33, 36) i;
SET SESSION AUTHORIZATION regress_best_user;
CALL stream.process_all_available('granted');
RESET SESSION AUTHORIZATION;

--
-- Refused.
--
SELECT make('q', 'SELECT DISTINCT ON (item) item, id FROM bid ORDER BY item, id DESC', mode => 'append');
SELECT make('q', 'SELECT DISTINCT ON (item) item, id FROM bid ORDER BY item, id DESC', mode => 'complete');
SELECT make('q', 'SELECT DISTINCT ON (item) item, id FROM bid ORDER BY item, id DESC', stream.to_memory());
SELECT make('q', 'SELECT DISTINCT ON (item) item, id FROM bid ORDER BY item, id DESC', stream.to_table('got_q', '{"key": ["id"]}'));
SELECT make('q', 'SELECT id FROM (SELECT id, row_number() OVER (ORDER BY price) AS n FROM bid) x WHERE n <= 3', mode => 'append');
SELECT make('q', 'SELECT id FROM (SELECT id, row_number() OVER (ORDER BY price) AS n FROM bid) x WHERE n <= 3', stream.to_memory());
SELECT make('q', 'SELECT id, row_number() OVER (ORDER BY price) AS n FROM bid');
SELECT make('q', 'SELECT id, n FROM (SELECT id, row_number() OVER (ORDER BY price) AS n FROM bid) x WHERE n > 3');
SELECT make('q', 'SELECT id, n FROM (SELECT id, row_number() OVER (ORDER BY price) AS n FROM bid) x WHERE n <= 0');
SELECT make('q', 'SELECT id, n FROM (SELECT id, row_number() OVER (ORDER BY price) AS n FROM bid) x WHERE n <= id');
SELECT make('q', 'SELECT id FROM (SELECT id, rank() OVER (ORDER BY price) AS n FROM bid) x WHERE n <= 3');
SELECT make('q', 'SELECT id FROM (SELECT id, row_number() OVER (ORDER BY price) AS n, row_number() OVER (ORDER BY id) AS m FROM bid) x WHERE n <= 3 AND m <= 3');
SELECT make('q', 'SELECT item FROM (SELECT item, row_number() OVER (ORDER BY count(*) DESC) AS n FROM bid GROUP BY item) x WHERE n <= 3');
SELECT make('q', 'SELECT item, count(*) AS c FROM (SELECT item, row_number() OVER (PARTITION BY item ORDER BY price) AS n FROM bid) x WHERE n <= 3 GROUP BY item');
SELECT make('q', 'SELECT x.id FROM (SELECT id, row_number() OVER (ORDER BY price) AS n FROM bid) x JOIN happened ON what = id::text WHERE n <= 3');
SELECT make('q', 'SELECT DISTINCT ON (item) item, random() AS r FROM bid ORDER BY item, r');
SELECT make('q', 'SELECT DISTINCT ON (item) item, (id, price) AS pair FROM bid ORDER BY item, id');
SELECT stream.alter_query('top', 'SELECT item, price FROM (SELECT *, row_number() OVER (PARTITION BY item ORDER BY price DESC NULLS LAST) AS place FROM bid) x WHERE place <= 3');
SELECT stream.alter_query('top', 'SELECT item, price FROM (SELECT *, row_number() OVER (PARTITION BY item ORDER BY price NULLS LAST) AS place FROM bid) x WHERE place <= 2');
-- the order of the SELECT list and a condition above are free
SELECT stream.alter_query('top', 'SELECT price, item FROM (SELECT *, row_number() OVER (PARTITION BY item ORDER BY price DESC NULLS LAST) AS place FROM bid) x WHERE place <= 2 AND price > 0');

SELECT count(stream.drop_query(name)) FROM stream.queries;
SELECT count(*) FROM stream.state_change;
SET client_min_messages = warning;
DROP OWNED BY regress_best_user;
DROP ROLE regress_best_user;
DROP SCHEMA best CASCADE;
