--
-- The state reader: state as of a batch, its changes, what there is; for owners only, and with the owner's rights.
--
\set VERBOSITY terse
\set SHOW_CONTEXT never
CREATE SCHEMA reader;
SET search_path = reader;
CREATE TABLE in_t (k text, v int, ts timestamptz);
SELECT stream.create_source('input', 'table', options => '{"table": "in_t"}', event_time => 'ts', watermark_delay => '0 seconds');
SELECT stream.create_query('sums', 'SELECT k AS name, sum(v) AS total, array_agg(v) AS list, count(DISTINCT v) AS kinds FROM input GROUP BY k',
    stream.to_table('sums_out'), 'update', start => false) > 0 AS created;
SELECT stream.create_query('windows', 'SELECT stream.tumble(ts, ''10 seconds'') AS w, count(*) AS n FROM input GROUP BY stream.tumble(ts, ''10 seconds'')',
    stream.to_table('windows_out'), 'append', start => false) > 0 AS created;
SELECT stream.create_query('plain', 'SELECT k FROM input', stream.to_table('plain_out'), start => false) > 0 AS created;

-- Before the first batch there is nothing.
SELECT * FROM stream.state('sums');
SELECT * FROM stream.state_metadata('sums');

INSERT INTO in_t VALUES ('a', 1, '2020-01-01 00:00:01'), ('b', 2, '2020-01-01 00:00:02'), (NULL, 3, '2020-01-01 00:00:03');
CALL stream.process_all_available('sums');
CALL stream.process_all_available('windows');
INSERT INTO in_t VALUES ('a', 1, '2020-01-01 00:00:09'), ('b', NULL, '2020-01-01 00:00:15');
CALL stream.process_all_available('sums');
CALL stream.process_all_available('windows');

SELECT * FROM stream.state('sums') ORDER BY key::text;
SELECT * FROM stream.state('sums', 0, 0) ORDER BY key::text;
SELECT * FROM stream.state('sums', state_name => 'distinct_1') ORDER BY key::text;
SELECT * FROM stream.state_changes('sums', 0, 0, 1);
SELECT operator_id, operator_name, state_name, rows, min_batch_id FROM stream.state_metadata('sums');

-- Windows expire; a closed one is a change of kind delete.
SELECT * FROM stream.state('windows');
SELECT * FROM stream.state('windows', batch_id => 0);
SELECT change_type, key, value FROM stream.state_changes('windows', 0, 0, (SELECT max(batch_id) FROM stream.commit_log JOIN stream.queries q ON q.id = query_id WHERE q.name = 'windows'));

-- Of joins both sides; what has been matched waits on, it may match again.
SELECT stream.create_query('pairs', 'SELECT a.k, a.v AS a, b.v AS b FROM input a LEFT JOIN input b ON a.k = b.k AND a.v < b.v AND b.ts BETWEEN a.ts AND a.ts + interval ''10 seconds''',
    stream.to_table('pairs_out'), start => false) > 0 AS created;
CALL stream.process_all_available('pairs');
SELECT * FROM stream.state('pairs') ORDER BY state, key::text, value::text;
SELECT key, value FROM stream.state('pairs', state_name => 'right') ORDER BY key::text, value::text;
SELECT operator_name, state_name, rows FROM stream.state_metadata('pairs');

-- Of custom state every variable and the timers; of lists and maps each element, with its own expiry.
CREATE FUNCTION remember(key text, rows input[]) RETURNS TABLE (n int) LANGUAGE plpgsql AS $$
DECLARE r input;
BEGIN
    FOREACH r IN ARRAY rows LOOP
        PERFORM stream.list_append('list', repeat(r.k, coalesce(r.v, 0) * 100)), stream.map_put('map', coalesce(r.v, 0), r.ts), stream.register_timer('2100-01-01');
    END LOOP;
    PERFORM stream.state_update('one', rows[1].k);
END $$;
CREATE FUNCTION remembered(key text, expires_at timestamptz) RETURNS TABLE (n int) LANGUAGE sql AS 'SELECT 1';
SELECT stream.create_processor('remember', 'remember(text,input[])', 'remembered(text,timestamptz)', time_mode => 'processing_time',
    state => '{"one": {"kind": "value", "type": "text"}, "list": {"kind": "list", "type": "text", "ttl": "1 hour"}, "map": {"kind": "map", "key_type": "int", "type": "timestamptz"}}');
SELECT stream.create_query('memories', 'SELECT t.n FROM input i, LATERAL stream.transform_with_state(''remember'', i.k, i) AS t(n int) WHERE i.k IS NOT NULL',
    stream.to_table('memories_out'), start => false) > 0 AS created;
CALL stream.process_all_available('memories');
SELECT key, CASE WHEN state = 'list' THEN to_jsonb(length(value::text)) ELSE value END AS value,
    CASE WHEN state = 'timers' THEN expires_at::text ELSE (expires_at - (SELECT max(batch_time) FROM stream.offset_log))::text END AS expires, state, element
FROM stream.state('memories') ORDER BY state, key::text, element, value::text;
-- Which keys are the largest?
SELECT key, count(*) AS entries, sum(pg_column_size(value)) > 300 AS large FROM stream.state('memories') GROUP BY key ORDER BY sum(pg_column_size(value)) DESC LIMIT 2;

-- What does not exist.
SELECT * FROM stream.state('nobody');
SELECT * FROM stream.state('sums', 7);
SELECT * FROM stream.state('sums', 0, 99);
SELECT * FROM stream.state('sums', 0, -1);
SELECT * FROM stream.state('sums', 0, NULL, 'left');
SELECT * FROM stream.state('plain');
SELECT * FROM stream.state_changes('sums', 0, -1, 0);
SELECT * FROM stream.state_changes('sums', 0, 1, 0);
SELECT * FROM stream.state_changes('sums', 0, 0, NULL);

-- Others may not look; and whoever looks, functions of the query run as its owner.
CREATE ROLE regress_reader_owner LOGIN;
CREATE ROLE regress_reader_other;
GRANT USAGE, CREATE ON SCHEMA reader TO regress_reader_owner;
GRANT SELECT ON input, in_t TO regress_reader_owner;
SET SESSION AUTHORIZATION regress_reader_owner;
CREATE FUNCTION who_final(int) RETURNS text LANGUAGE sql AS $$ SELECT current_user || ' ' || $1 $$;
CREATE AGGREGATE who(int) (sfunc = int4pl, stype = int, initcond = '0', finalfunc = who_final);
SELECT stream.create_query('owned', 'SELECT k, who(1) FROM input GROUP BY k', stream.to_table('owned_out'), 'update', start => false) > 0 AS created;
CALL stream.process_all_available('owned');
RESET SESSION AUTHORIZATION;
SELECT * FROM stream.state('owned') ORDER BY key::text;
SELECT current_user = session_user AS unchanged, current_setting('search_path');
SET ROLE regress_reader_other;
SELECT * FROM stream.state('owned');
SELECT * FROM stream.state_changes('owned', 0, 0, 0);
SELECT * FROM stream.state_metadata('owned');
RESET ROLE;

SELECT count(stream.drop_query(name)) FROM stream.queries;
SELECT count(stream.drop_processor(name)) FROM stream.processors;
SET client_min_messages = warning;
DROP OWNED BY regress_reader_owner;
DROP ROLE regress_reader_owner, regress_reader_other;
DROP SCHEMA reader CASCADE;
