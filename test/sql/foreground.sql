--
-- Batches in the foreground: nobody but a session of the owner runs them, and the owner's settings of when the query was made hold in them.
--
SET client_min_messages = warning;
CREATE ROLE regress_foreground_owner LOGIN;
CREATE ROLE regress_foreground_member LOGIN IN ROLE regress_foreground_owner;
CREATE ROLE regress_foreground_other LOGIN;
GRANT CREATE ON SCHEMA public TO regress_foreground_owner;
GRANT USAGE ON FOREIGN SERVER stream_table TO regress_foreground_owner;
-- What the owner may see of it: the even ones.
CREATE TABLE label (id int, name text);
INSERT INTO label SELECT i, 'label ' || i FROM generate_series(1, 6) i;
ALTER TABLE label ENABLE ROW LEVEL SECURITY;
CREATE POLICY even ON label USING (id % 2 = 0);
GRANT SELECT ON label TO regress_foreground_owner;
-- Functions of one name on two paths.
CREATE SCHEMA good;
CREATE SCHEMA evil;
CREATE FUNCTION good.helper() RETURNS text LANGUAGE sql AS $$ SELECT 'good' $$;
CREATE FUNCTION evil.helper() RETURNS text LANGUAGE sql AS $$ SELECT 'evil as ' || current_user $$;
GRANT USAGE ON SCHEMA good, evil TO regress_foreground_owner;
CREATE FUNCTION helped() RETURNS text LANGUAGE plpgsql AS $$ BEGIN RETURN helper(); END $$;

SET SESSION AUTHORIZATION regress_foreground_owner;
CREATE TABLE mine_t (id int);
SELECT stream.create_source('mine', 'table', options => '{"table": "mine_t"}');
SET search_path = public, good;
SELECT stream.create_query('q', 'SELECT m.id, l.name, helped() AS helper, current_user::text AS me FROM mine m JOIN label l USING (id)', stream.to_table('q_out'), start => false) > 0 AS made;
INSERT INTO mine_t VALUES (1), (2);
RESET search_path;

-- Not a member, who may do everything else with it, nor the member as the owner; not a superuser, nor the superuser as the owner; nobody else at all.
SET SESSION AUTHORIZATION regress_foreground_member;
CALL stream.run_batch('q', NULL);
SET ROLE regress_foreground_owner;
CALL stream.run_batch('q', NULL);
CALL stream.process_all_available('q');
RESET ROLE;
RESET SESSION AUTHORIZATION;
CALL stream.process_all_available('q');
SET ROLE regress_foreground_owner;
CALL stream.run_batch('q', NULL);
RESET ROLE;
SET SESSION AUTHORIZATION regress_foreground_other;
CALL stream.run_batch('q', NULL);
-- Not the owner as somebody else, and not where a batch could not commit.
SET SESSION AUTHORIZATION regress_foreground_owner;
BEGIN;
CALL stream.run_batch('q', NULL);
ROLLBACK;
DO $$ BEGIN PERFORM 1; CALL stream.process_all_available('q'); EXCEPTION WHEN OTHERS THEN RAISE; END $$;
SELECT count(*) FROM q_out;

-- The owner, with whatever settings.
SET search_path = evil, public;
SET row_security = off;
CALL stream.process_all_available('q');
INSERT INTO public.mine_t VALUES (3), (4);
CALL stream.run_batch('q', NULL);
SELECT id, name, helper, me, batch_id FROM q_out ORDER BY id;
SHOW search_path;
SHOW row_security;
RESET row_security;
RESET search_path;

SELECT stream.drop_query('q');
RESET SESSION AUTHORIZATION;
DROP TABLE label, mine_t CASCADE;
DROP OWNED BY regress_foreground_owner, regress_foreground_member, regress_foreground_other;
DROP ROLE regress_foreground_member, regress_foreground_owner, regress_foreground_other;
