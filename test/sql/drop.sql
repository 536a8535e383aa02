-- What a query reads or calls cannot go from under it: the error says which query, not only which view holds its SELECT.
CREATE TABLE t (id int, note text);
CREATE TABLE country (code text PRIMARY KEY, name text);
CREATE VIEW country_name AS SELECT code, name FROM country;
CREATE TYPE mood AS ENUM ('good', 'bad');
CREATE FUNCTION twice(int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT $1 * 2';
SELECT stream.create_source('s', 'table', options => '{"table": "t"}');
SELECT stream.create_query('by country', 'SELECT s.id, c.name, twice(s.id) AS two FROM s JOIN country c ON c.code = s.note', stream.to_table('a'), start => false) > 0 AS made;
SELECT stream.create_query('by view', 'SELECT s.id, c.name, ''good''::mood AS m FROM s JOIN country_name c ON c.code = s.note', stream.to_table('b'), start => false) > 0 AS made;
DROP TABLE country;
DROP VIEW country_name;
DROP FUNCTION twice(int);
DROP TYPE mood;
DROP FOREIGN TABLE s;
ALTER TABLE country DROP COLUMN name;
ALTER TABLE country ALTER COLUMN code TYPE varchar;
-- As many as there are; a view of another schema is none of ours, nor is one that looks like it.
CREATE SCHEMA other;
CREATE VIEW other.query_1 AS SELECT code FROM country;
CREATE VIEW "stream.query_1" AS SELECT code FROM country;
DROP TABLE country;
CREATE ROLE drop_owner LOGIN;
GRANT CREATE ON SCHEMA public TO drop_owner;
GRANT SELECT ON s TO drop_owner;
SET SESSION AUTHORIZATION drop_owner;
SELECT stream.create_query('theirs', 'SELECT id FROM s', stream.to_table('c'), start => false) > 0 AS made;
RESET SESSION AUTHORIZATION;
DROP ROLE drop_owner;
-- Other errors of such statements stay as they are, and are caught as usual.
DROP TABLE no_such_table;
DO $$ BEGIN DROP TABLE country; EXCEPTION WHEN dependent_objects_still_exist THEN RAISE NOTICE 'caught: %', SQLERRM; END $$;
SELECT count(*) FROM country;
DROP OWNED BY drop_owner CASCADE;
DROP ROLE drop_owner;
