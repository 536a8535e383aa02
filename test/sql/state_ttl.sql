-- Elements of a list expire one by one, by their own writes; a read neither shows what has expired nor renews what has not; nothing is left behind.
SET client_min_messages = warning;
CREATE TABLE input_t (k text, what text, v int);
SELECT stream.create_source('input', 'table', options => '{"table": "input_t"}');
CREATE FUNCTION keep(key text, rows input[]) RETURNS TABLE (k text, kept int[], single int, entries text) LANGUAGE plpgsql AS $$
DECLARE r input;
BEGIN
    FOREACH r IN ARRAY rows LOOP
        IF r.what = 'write' THEN
            PERFORM stream.list_append('l', r.v), stream.state_update('s', r.v), stream.map_put('m', r.v, r.v);
        END IF;
        k := key;
        SELECT array_agg(x) INTO kept FROM stream.list_get('l', NULL::int) x;
        single := stream.state_get('s', NULL::int);
        SELECT string_agg(m.key || '=' || m.value, ' ' ORDER BY m.key) INTO entries FROM stream.map_entries('m', NULL::int, NULL::int) m;
        RETURN NEXT;
    END LOOP;
END $$;
SELECT stream.create_processor('keep', 'keep(text, input[])', time_mode => 'processing_time',
    state => '{"l": {"kind": "list", "type": "int", "ttl": "10 s"}, "s": {"kind": "value", "type": "int", "ttl": "10 s"}, "m": {"kind": "map", "key_type": "int", "type": "int", "ttl": "10 s"}}');
CREATE FUNCTION make(name text, provider text) RETURNS void LANGUAGE sql AS
    $$SELECT stream.create_query(name, 'SELECT t.* FROM input i, LATERAL stream.transform_with_state(''keep'', i.k, i) AS t(k text, kept int[], single int, entries text)',
        stream.to_table(name || '_out'), start => false, options => jsonb_build_object('state_provider', provider))$$;
SELECT make('in_memory', 'memory'), make('in_place', 'table');

CREATE PROCEDURE at(clock text, what text, v int DEFAULT NULL) LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('stream_ext.test_clock', '2026-03-01 00:00:' || clock || '+00', false);
    IF what IS NOT NULL THEN
        INSERT INTO input_t VALUES ('a', what, v);
    END IF;
END $$;
CALL at('00', 'write', 1);
CALL stream.process_all_available('in_memory');
CALL stream.process_all_available('in_place');
CALL at('06', 'write', 2);
CALL stream.process_all_available('in_memory');
CALL stream.process_all_available('in_place');
CALL at('09.999', 'read');
CALL stream.process_all_available('in_memory');
CALL stream.process_all_available('in_place');
CALL at('11', 'read');
CALL stream.process_all_available('in_memory');
CALL stream.process_all_available('in_place');
CALL at('17', 'read');
CALL stream.process_all_available('in_memory');
CALL stream.process_all_available('in_place');
SELECT batch_id, kept, single, entries FROM in_memory_out ORDER BY batch_id;
SELECT count(*) AS differences FROM ((TABLE in_memory_out EXCEPT TABLE in_place_out) UNION ALL (TABLE in_place_out EXCEPT TABLE in_memory_out)) d;
SELECT name, state_rows FROM stream.queries ORDER BY name;
SELECT count(*) FROM stream.state('in_memory');
-- Expiry alone is reason for a batch: state goes without rows.
CALL at('20', 'write', 3);
CALL stream.process_all_available('in_memory');
SELECT state_rows > 0 AS holds FROM stream.queries WHERE name = 'in_memory';
CALL at('31', NULL);
CALL stream.process_all_available('in_memory');
SELECT state_rows FROM stream.queries WHERE name = 'in_memory';
SELECT num_input_rows FROM stream.progress WHERE query = 'in_memory' ORDER BY batch_id DESC LIMIT 1;

-- Keys of DISTINCT within the watermark at the end of time: for as long as there could be is as long as there is
CREATE TABLE far_t (k text, v int, at timestamptz);
SELECT stream.create_source('far', 'table', options => '{"table": "far_t"}', event_time => 'at', watermark_delay => '10 days');
SELECT stream.create_query('far', 'SELECT DISTINCT ON (k) k, v FROM far', stream.to_table('far_out', '{"batch_id_column": null}'), start => false, options => '{"dedup_within_watermark": true}') > 0 AS made;
INSERT INTO far_t VALUES ('a', 1, '2026-03-01'), ('z', 2, '294276-12-31 23:59:59');
CALL stream.process_all_available('far');
INSERT INTO far_t VALUES ('z', 3, '294276-12-31 23:59:59');
CALL stream.process_all_available('far');
INSERT INTO far_t VALUES ('z', 4, '294276-12-31 23:59:59');
CALL stream.process_all_available('far');
SELECT * FROM far_out ORDER BY k;
