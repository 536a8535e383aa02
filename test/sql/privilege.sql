-- Who may do what with every object of the extension, asked of the catalog, so that a new object has to appear here; and that no function of it lends anybody rights.
-- (Unaligned: a new object is one line in the answer.)
\pset format unaligned
\pset footer off
SET client_min_messages = warning;
CREATE ROLE regress_privilege_owner LOGIN;
CREATE ROLE regress_privilege_member IN ROLE regress_privilege_owner;
CREATE ROLE regress_privilege_other LOGIN;
CREATE ROLE regress_privilege_monitor IN ROLE pg_monitor;
GRANT CREATE ON SCHEMA public TO regress_privilege_owner;
GRANT USAGE ON FOREIGN SERVER stream_table TO regress_privilege_owner, regress_privilege_other;
GRANT CREATE ON SCHEMA public TO regress_privilege_other;

SET ROLE regress_privilege_owner;
CREATE TABLE mine_t (id int, k int);
SELECT stream.create_source('mine', 'table', options => '{"table": "mine_t"}');
CREATE FUNCTION handle(key int, rows mine[]) RETURNS SETOF int LANGUAGE sql AS 'SELECT 1';
SELECT stream.create_processor('p', 'handle(int, mine[])');
-- Called while the query is planned, whoever has it planned.
CREATE FUNCTION as_owner(n int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$
BEGIN
    IF current_user <> 'regress_privilege_owner' THEN
        RAISE EXCEPTION USING ERRCODE = 'YY000', MESSAGE = 'the owner''s code runs as ' || current_user;
    END IF;
    RETURN n;
END $$;
SET search_path = public, pg_temp;
SELECT stream.create_query('q', 'SELECT k, count(*) AS n FROM mine WHERE k > as_owner(0) GROUP BY k', stream.to_table('q_out'), output_mode => 'update', start => false) > 0 AS made;
RESET search_path;
RESET ROLE;
SET SESSION AUTHORIZATION regress_privilege_owner;
INSERT INTO mine_t VALUES (1, 1), (2, 1);
CALL stream.process_all_available('q');
RESET SESSION AUTHORIZATION;
INSERT INTO stream.attempt_entry SELECT id, 1, NULL, now(), now(), 'failed', 0, '{}', '22012', 'secret words', 1 FROM stream.query;
INSERT INTO stream.dead_letter (query_id, batch_id, source, reason, raw, at) SELECT id, 0, 'public.mine', 'bad_row', 'secret words', now() FROM stream.query;

-- Tables and sequences: nobody. Views: SELECT.
SELECT c.relname, c.relkind AS kind, string_agg(p.privilege, ' ' ORDER BY p.privilege) AS public_may
FROM pg_class c
LEFT JOIN unnest('{SELECT,INSERT,UPDATE,DELETE,TRUNCATE,REFERENCES,TRIGGER,USAGE}'::text[]) AS p(privilege)
    ON CASE WHEN c.relkind = 'S' THEN p.privilege IN ('SELECT', 'UPDATE', 'USAGE') AND has_sequence_privilege('regress_privilege_other', c.oid, CASE WHEN p.privilege IN ('SELECT', 'UPDATE', 'USAGE') THEN p.privilege ELSE 'USAGE' END)
            ELSE p.privilege <> 'USAGE' AND has_table_privilege('regress_privilege_other', c.oid, CASE WHEN p.privilege = 'USAGE' THEN 'SELECT' ELSE p.privilege END) END
WHERE c.relnamespace = 'stream'::regnamespace AND c.relkind IN ('r', 'v', 'S', 'f', 'm', 'p') AND c.relname !~ '^(query|state_row|memory)_[0-9]+$'
GROUP BY c.oid, c.relname, c.relkind ORDER BY c.relkind, c.relname COLLATE "C";

-- What each view shows to whom: its rows about somebody else's query.
CREATE FUNCTION rows_seen(role text, view text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE n bigint;
BEGIN
    EXECUTE format('SET LOCAL ROLE %I', role);
    EXECUTE format('SELECT count(*) FROM stream.%I', view) INTO n;
    RESET ROLE;
    RETURN CASE WHEN n > 0 THEN 'yes' ELSE '-' END;
EXCEPTION WHEN insufficient_privilege THEN
    RETURN 'refused';
END $$;
SELECT c.relname, rows_seen('regress_privilege_owner', c.relname) AS owner, rows_seen('regress_privilege_member', c.relname) AS member,
    rows_seen('regress_privilege_other', c.relname) AS other, rows_seen('regress_privilege_monitor', c.relname) AS monitor
FROM pg_class c WHERE c.relnamespace = 'stream'::regnamespace AND c.relkind = 'v' AND c.relname !~ '^query_[0-9]+$' ORDER BY c.relname COLLATE "C";

-- Every view keeps its rows from functions of its readers.
SELECT relname FROM pg_class c WHERE relnamespace = 'stream'::regnamespace AND relkind = 'v' AND relname !~ '^query_[0-9]+$'
    AND NOT coalesce('security_barrier=true' = ANY (reloptions), false);
CREATE FUNCTION leak(text) RETURNS boolean LANGUAGE plpgsql COST 0.0000001 AS $$BEGIN RAISE WARNING 'leaked: %', $1; RETURN true; END$$;
SET client_min_messages = warning;
SET ROLE regress_privilege_other;
SELECT count(*) FROM stream.attempts WHERE leak(error);
SELECT count(*) FROM stream.dead_letters WHERE leak(encode(raw, 'escape'));
SELECT count(*) FROM stream.queries WHERE leak(name);
RESET ROLE;

-- Functions: no SECURITY DEFINER, none that CREATE could replace unnoticed.
SELECT p.oid::regprocedure FROM pg_proc p WHERE p.pronamespace = 'stream'::regnamespace AND p.prosecdef;
SELECT p.oid::regprocedure FROM pg_proc p WHERE p.pronamespace = 'stream'::regnamespace AND p.prolang = (SELECT oid FROM pg_language WHERE lanname = 'plpgsql');
-- Those in SQL have bodies that were parsed when they were made, or one expression that is inlined.
SELECT p.oid::regprocedure FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang
WHERE p.pronamespace = 'stream'::regnamespace AND l.lanname = 'sql' AND p.prosqlbody IS NULL AND p.prosrc ~ '[^._a-z](count|sum|replace|format)\(';

-- Every function that is about a query, a source, or a processor, called about somebody else's. Whatever succeeds is undone.
CREATE FUNCTION attempt(role text, call text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('SET LOCAL ROLE %I', role);
    EXECUTE call;
    RAISE EXCEPTION USING ERRCODE = 'ZZ000';
EXCEPTION WHEN OTHERS THEN
    RETURN CASE WHEN SQLSTATE = 'ZZ000' THEN 'may' ELSE SQLSTATE END;
END $$;
CREATE VIEW called AS
    SELECT p.proname, p.proname || '(' || coalesce(array_to_string(p.proargnames[1:p.pronargs], ', '), '') || ')' AS function,
        CASE WHEN p.prokind = 'p' THEN 'CALL ' ELSE 'SELECT * FROM ' END || format('stream.%I(', p.proname)
        || array_to_string(ARRAY(
            SELECT CASE WHEN a.n = 1 THEN CASE WHEN p.proname ~ 'source' THEN '''mine''' WHEN p.proname ~ 'processor' THEN '''p''' WHEN p.proargnames[1] = 'table' THEN '''mine_t''' ELSE '''q''' END
                        WHEN a.type = 'boolean'::regtype THEN 'false' WHEN a.type = 'interval'::regtype THEN '''1 ms''' WHEN a.type = 'bigint'::regtype THEN '0'
                        WHEN a.type = 'integer'::regtype THEN '0' WHEN p.proname = 'alter_source' AND a.type = 'jsonb'::regtype THEN '''{"strict_append": true}''' ELSE 'NULL::' || a.type::regtype END
            FROM unnest(p.proargtypes::oid[]) WITH ORDINALITY a(type, n) ORDER BY a.n), ', ')
        || CASE WHEN p.proname = 'run_batch' THEN ', NULL' ELSE '' END || ')' AS call
    FROM pg_proc p
    WHERE p.pronamespace = 'stream'::regnamespace AND p.pronargs > 0 AND p.proargnames[1] IN ('name', 'query', 'table') AND p.proname !~ '^create_|^to_'
    UNION ALL VALUES ('report_query', 'report_query(query_id)', 'SELECT 1 / count(stream.report_query(id)) FROM (SELECT max(substring(relname FROM 7)::bigint) AS id FROM pg_class WHERE relname ~ ''^query_[0-9]+$'') x');
SELECT function, attempt('regress_privilege_owner', call) AS owner, attempt('regress_privilege_member', call) AS member, attempt('regress_privilege_other', call) AS other,
    attempt('regress_privilege_monitor', call) AS monitor, attempt(session_user, call) AS superuser
FROM called ORDER BY function COLLATE "C";

-- A session is as it was after it has dealt with another role's query: same role, same search_path.
CREATE VIEW dealing AS SELECT proname, call FROM called WHERE proname IN ('alter_query', 'explain_query', 'replay_dead_letters', 'reset_query', 'state', 'state_changes', 'state_metadata');
GRANT SELECT ON dealing TO regress_privilege_member;
CREATE FUNCTION session_after(call text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    BEGIN
        EXECUTE call;
    EXCEPTION WHEN OTHERS THEN
        NULL;
    END;
    RETURN current_user || ' ' || current_setting('search_path');
END $$;
BEGIN;
SET LOCAL ROLE regress_privilege_member;
SELECT proname COLLATE "C" AS function, session_after(call) FROM dealing ORDER BY 1;
ROLLBACK;

-- Nor does a read-only transaction change anything.
BEGIN READ ONLY;
SELECT stream.reset_query('q');
ROLLBACK;
-- Somebody else's source, with nothing to change about it.
SELECT attempt('regress_privilege_other', 'SELECT stream.alter_source(''mine'')');

-- All other functions: windows, sinks, triggers, what handlers call, what is made of the caller's own.
SELECT DISTINCT p.proname COLLATE "C" AS others FROM pg_proc p WHERE p.pronamespace = 'stream'::regnamespace AND p.proname NOT IN (SELECT proname FROM called) ORDER BY 1;

-- Foreign-data wrappers and servers: the network and files want a grant.
SELECT s.srvname, has_server_privilege('regress_privilege_monitor', s.srvname, 'USAGE') AS public_may FROM pg_foreign_server s WHERE s.srvname ~ '^stream_' ORDER BY 1;
SELECT f.fdwname, has_foreign_data_wrapper_privilege('regress_privilege_monitor', f.fdwname, 'USAGE') AS public_may FROM pg_foreign_data_wrapper f WHERE f.fdwname ~ '^stream_' ORDER BY 1;

SET ROLE regress_privilege_other;
SELECT stream.create_source('clock', 'rate');
RESET ROLE;
-- Nobody makes anything in the extension's schema, or in another role's name.
SELECT attempt('regress_privilege_other', 'CREATE TABLE stream.x ()') AS table, attempt('regress_privilege_other', 'CREATE FUNCTION stream.x() RETURNS int LANGUAGE sql AS ''SELECT 1''') AS function,
    attempt('regress_privilege_other', 'DROP EXTENSION stream_ext CASCADE') AS extension,
    attempt('regress_privilege_other', $$SELECT stream.create_query('mine too', 'SELECT id FROM mine', stream.to_table('theirs'), start => false)$$) AS reads_mine,
    attempt('regress_privilege_other', $$SELECT stream.create_query('into mine', 'SELECT value FROM clock', stream.to_table('q_out'), start => false)$$) AS writes_mine,
    attempt('regress_privilege_other', $$SELECT stream.create_source('theft', 'table', options => '{"table": "mine_t"}')$$) AS source_over_mine;

SELECT stream.drop_query('q');
SELECT stream.drop_processor('p');
DROP OWNED BY regress_privilege_owner, regress_privilege_member, regress_privilege_other CASCADE;
DROP ROLE regress_privilege_owner, regress_privilege_member, regress_privilege_other, regress_privilege_monitor;
