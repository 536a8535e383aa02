-- CREATE EXTENSION where somebody has been before: a schema of his own, objects in the path; and what installing and dropping leaves.
\set SHOW_CONTEXT never
SET client_min_messages = warning;
DROP EXTENSION stream_ext CASCADE;
CREATE ROLE regress_install_mallory;
SELECT format('GRANT CREATE ON DATABASE %I TO regress_install_mallory', current_database()) \gexec
GRANT CREATE ON SCHEMA public TO regress_install_mallory;

DROP SCHEMA stream;
SET ROLE regress_install_mallory;
CREATE SCHEMA stream;
RESET ROLE;
CREATE EXTENSION stream_ext;
ALTER SCHEMA stream OWNER TO CURRENT_USER;
GRANT CREATE ON SCHEMA stream TO regress_install_mallory;
SET ROLE regress_install_mallory;
CREATE FUNCTION stream.replace(text, text, text) RETURNS text LANGUAGE sql AS 'SELECT ''mine''::text';
RESET ROLE;
CREATE EXTENSION stream_ext;
DROP FUNCTION stream.replace(text, text, text);
SET ROLE regress_install_mallory;
CREATE TYPE stream.sink AS (kind text, target text, options jsonb);
RESET ROLE;
CREATE EXTENSION stream_ext;
DROP SCHEMA stream CASCADE;

-- Objects before pg_catalog's in the path of whoever installs and uses it.
CREATE TABLE trap (what text);
CREATE FUNCTION public.count(bigint) RETURNS bigint LANGUAGE sql AS 'INSERT INTO trap VALUES (''count'') RETURNING 1::bigint';
CREATE FUNCTION public.nextval(text) RETURNS bigint LANGUAGE sql AS 'INSERT INTO trap VALUES (''nextval'') RETURNING 1::bigint';
CREATE FUNCTION public.equal(text, text) RETURNS boolean LANGUAGE sql AS 'INSERT INTO trap VALUES (''='') RETURNING true';
CREATE OPERATOR public.= (LEFTARG = text, RIGHTARG = text, FUNCTION = public.equal);
CREATE TABLE public.query (id int);
SET search_path = public, pg_catalog;
CREATE EXTENSION stream_ext;
SELECT nspowner = (SELECT oid FROM pg_catalog.pg_roles WHERE rolname OPERATOR(pg_catalog.=) current_user) AS ours, has_schema_privilege('regress_install_mallory', 'stream', 'CREATE') AS mallory_creates
FROM pg_catalog.pg_namespace WHERE nspname OPERATOR(pg_catalog.=) 'stream'::name;
CREATE TABLE input_t (v int);
SELECT stream.create_source('input', 'table', options => '{"table": "input_t"}');
SELECT stream.create_query('q', 'SELECT v FROM input', stream.to_table('q_out'), start => false) > 0 AS made;
INSERT INTO input_t VALUES (1);
CALL stream.process_all_available('q');
SELECT name, status, last_batch_id, falling_behind FROM stream.queries;
SELECT query, batches, rows_in FROM stream.stat;
SELECT stream.drop_query('q');
TABLE trap;
RESET search_path;

-- It leaves an empty schema, and tables that take rows as before; and comes back.
DROP TABLE q_out;
DROP EXTENSION stream_ext CASCADE;
SELECT count(*) FROM pg_class WHERE relnamespace = 'stream'::regnamespace;
SELECT count(*) FROM pg_foreign_data_wrapper WHERE fdwname ~ '^stream_';
INSERT INTO input_t VALUES (2);
CREATE EXTENSION stream_ext;
SELECT stream.create_source('input', 'table', options => '{"table": "input_t"}');
SELECT stream.create_query('q', 'SELECT v FROM input', stream.to_table('q_out'), start => false) > 0 AS made;
INSERT INTO input_t VALUES (3);
CALL stream.process_all_available('q');
INSERT INTO input_t VALUES (4);
CALL stream.process_all_available('q');
SELECT v FROM q_out ORDER BY v;
SELECT stream.drop_query('q');
CREATE EXTENSION stream_ext;
CREATE EXTENSION IF NOT EXISTS stream_ext;

-- Nobody but a superuser installs it.
DROP EXTENSION stream_ext CASCADE;
SET ROLE regress_install_mallory;
CREATE EXTENSION stream_ext;
RESET ROLE;
DROP OWNED BY regress_install_mallory;
DROP ROLE regress_install_mallory;
