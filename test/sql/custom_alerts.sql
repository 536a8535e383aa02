--
-- Custom state at work: a store gone quiet, by the clock and by event time, and cards used in too many countries. The clock is the test's.
--
\set VERBOSITY terse
\set SHOW_CONTEXT never
CREATE SCHEMA alerting;
SET search_path = alerting;
SET stream_ext.test_clock = '2026-03-01 12:00:00+00';
CREATE TABLE checkout_t (store text, amount numeric, at timestamptz);
SELECT stream.create_source('checkout', 'table', options => '{"table": "checkout_t"}', event_time => 'at', watermark_delay => '1 minute');

-- No checkout for ten minutes: each one puts the store's only timer off; when it fires, the store is quiet.
CREATE TYPE quiet AS (store text, last_seen timestamptz, said_at timestamptz);
CREATE FUNCTION checkout_seen(key text, rows checkout[]) RETURNS SETOF quiet LANGUAGE plpgsql AS $$
BEGIN
    PERFORM stream.delete_timer(t) FROM stream.list_timers() t;
    PERFORM stream.state_update('last_seen', rows[cardinality(rows)].at);
    PERFORM stream.register_timer(stream.processing_time_now() + interval '10 minutes');
END $$;
CREATE FUNCTION store_quiet(key text, expires_at timestamptz) RETURNS SETOF quiet LANGUAGE sql AS
$$ SELECT key, stream.state_get('last_seen', NULL::timestamptz), expires_at $$;
SELECT stream.create_processor('quiet_store', 'checkout_seen(text,checkout[])', 'store_quiet(text,timestamptz)',
    state => '{"last_seen": {"kind": "value", "type": "timestamptz"}}', time_mode => 'processing_time');
-- The same by event time: silent for ten minutes of what the checkouts say.
CREATE FUNCTION checkout_seen_at(key text, rows checkout[]) RETURNS SETOF quiet LANGUAGE plpgsql AS $$
DECLARE last_seen timestamptz := greatest(stream.state_get('last_seen', NULL::timestamptz), (SELECT max(r.at) FROM unnest(rows) r));
BEGIN
    PERFORM stream.delete_timer(t) FROM stream.list_timers() t;
    PERFORM stream.state_update('last_seen', last_seen);
    PERFORM stream.register_timer(last_seen + interval '10 minutes');
END $$;
SELECT stream.create_processor('quiet_store_at', 'checkout_seen_at(text,checkout[])', 'store_quiet(text,timestamptz)',
    state => '{"last_seen": {"kind": "value", "type": "timestamptz"}}', time_mode => 'event_time');
SELECT stream.create_query(name || '_' || p, format($q$ SELECT a.* FROM checkout c,
    LATERAL stream.transform_with_state(%L, c.store, c) AS a(store text, last_seen timestamptz, said_at timestamptz) $q$, processor),
    stream.to_table(name || '_out_' || p), options => jsonb_build_object('state_provider', p), start => false) > 0 AS made
FROM unnest(ARRAY['memory', 'table']) p, (VALUES ('quiet', 'quiet_store'), ('quiet_at', 'quiet_store_at')) q (name, processor) ORDER BY 1;
CREATE PROCEDURE batch() LANGUAGE plpgsql AS $$
DECLARE q text;
BEGIN
    FOR q IN SELECT name FROM stream.queries ORDER BY id LOOP CALL stream.process_all_available(q); END LOOP;
END $$;

INSERT INTO checkout_t VALUES ('here', 1, '2026-03-01 11:59'), ('there', 2, '2026-03-01 11:59');
CALL batch();
SET stream_ext.test_clock = '2026-03-01 12:06:00+00';
INSERT INTO checkout_t VALUES ('here', 1, '2026-03-01 12:05:30');
CALL batch();
-- 12:10: the other store is quiet; nothing comes in, the timer is enough. Once.
SET stream_ext.test_clock = '2026-03-01 12:09:59+00';
CALL batch();
SELECT * FROM quiet_out_memory;
SET stream_ext.test_clock = '2026-03-01 12:10:00+00';
CALL batch();
CALL batch();
SELECT * FROM quiet_out_memory;
SELECT * FROM quiet_out_table;
-- Both are read at any time: the value and the timers of each store.
SELECT key, value, state FROM stream.state('quiet_memory', state_name => 'last_seen') ORDER BY key::text;
SELECT key, value, expires_at, state FROM stream.state('quiet_table', state_name => 'timers') ORDER BY key::text;
-- The clock steps back an hour: no timer comes again, batch time stands still, what is new is taken; then far ahead: one batch, and what is due fires once.
SET stream_ext.test_clock = '2026-03-01 11:10:00+00';
INSERT INTO checkout_t VALUES ('there', 3, '2026-03-01 12:07');
CALL batch();
SELECT max(batch_time), count(*) FROM stream.offset_log WHERE query_id = (SELECT id FROM stream.queries WHERE name = 'quiet_memory');
SET stream_ext.test_clock = '2026-03-02 12:00:00+00';
CALL batch();
SELECT count(*) FROM stream.offset_log WHERE query_id = (SELECT id FROM stream.queries WHERE name = 'quiet_memory');
SELECT store, last_seen, said_at FROM quiet_out_memory ORDER BY said_at, store;
SELECT count(*) FROM (TABLE quiet_out_memory EXCEPT ALL TABLE quiet_out_table) d;
SELECT count(*) FROM stream.state('quiet_table', state_name => 'timers');
-- By event time nothing of this has happened; checkouts elsewhere move the watermark.
SELECT * FROM quiet_at_out_memory;
INSERT INTO checkout_t VALUES ('elsewhere', 1, '2026-03-01 12:17:30');
CALL batch();
SELECT store, last_seen, said_at FROM quiet_at_out_memory ORDER BY said_at, store;
SELECT count(*) FROM (TABLE quiet_at_out_memory EXCEPT ALL TABLE quiet_at_out_table) d;
SELECT key, value FROM stream.state('quiet_at_table', state_name => 'timers') ORDER BY key::text;

-- A timer set for a time that has passed fires at once, and once.
CREATE FUNCTION set_past(key text, rows checkout[]) RETURNS SETOF quiet LANGUAGE plpgsql AS
$$ BEGIN PERFORM stream.register_timer('2026-03-01 10:00'); END $$;
CREATE FUNCTION tell_past(key text, expires_at timestamptz) RETURNS SETOF quiet LANGUAGE sql AS $$ SELECT key, NULL::timestamptz, expires_at $$;
SELECT stream.create_processor('past_' || m, 'set_past(text,checkout[])', 'tell_past(text,timestamptz)', time_mode => m) FROM unnest(ARRAY['processing_time', 'event_time']) m;
SELECT stream.create_query('past_' || m, format($q$ SELECT a.* FROM checkout c,
    LATERAL stream.transform_with_state(%L, c.store, c) AS a(store text, last_seen timestamptz, said_at timestamptz) WHERE c.store = 'here' $q$, 'past_' || m),
    stream.to_table('past_' || m || '_out'), start => false) > 0 AS made FROM unnest(ARRAY['processing_time', 'event_time']) m;
CALL batch();
INSERT INTO checkout_t VALUES ('elsewhere', 1, '2026-03-01 12:18');
CALL batch();
SELECT store, said_at FROM past_processing_time_out;
SELECT store, said_at FROM past_event_time_out;
SELECT count(*) FROM stream.state('past_event_time', state_name => 'timers');

--
-- Cards paid with in three countries within ten minutes: the uses of the last ten minutes are a list; an event timer forgets them.
--
CREATE TABLE payment_t (card text, country text, at timestamptz);
SELECT stream.create_source('payment', 'table', options => '{"table": "payment_t"}', event_time => 'at', watermark_delay => '5 minutes');
CREATE TYPE card_use AS (at timestamptz, country text);
CREATE FUNCTION card_used(key text, rows payment[]) RETURNS TABLE (card text, at timestamptz, countries text[]) LANGUAGE plpgsql AS $$
DECLARE
    recent card_use[] := ARRAY(SELECT u FROM stream.list_get('recent', NULL::card_use) u);
    newest timestamptz;
    p payment;
BEGIN
    FOREACH p IN ARRAY rows LOOP
        recent := recent || ROW(p.at, p.country)::card_use;
        SELECT key, p.at, array_agg(DISTINCT u.country) INTO card, at, countries FROM unnest(recent) u WHERE u.at BETWEEN p.at - interval '10 minutes' AND p.at;
        IF cardinality(countries) >= 3 THEN
            RETURN NEXT;
        END IF;
    END LOOP;
    newest := (SELECT max(u.at) FROM unnest(recent) u);
    PERFORM stream.list_put('recent', ARRAY(SELECT u FROM unnest(recent) u WHERE u.at > newest - interval '15 minutes'));
    PERFORM stream.delete_timer(t) FROM stream.list_timers() t;
    PERFORM stream.register_timer(newest + interval '10 minutes');
END $$;
CREATE FUNCTION card_rested(key text, expires_at timestamptz) RETURNS TABLE (card text, at timestamptz, countries text[]) LANGUAGE plpgsql AS
$$ BEGIN PERFORM stream.list_clear('recent'); END $$;
SELECT stream.create_processor('velocity', 'card_used(text,payment[])', 'card_rested(text,timestamptz)',
    state => '{"recent": {"kind": "list", "type": "card_use"}}', time_mode => 'event_time');
SELECT stream.create_query('velocity_' || p, $q$ SELECT a.* FROM payment p, LATERAL stream.transform_with_state('velocity', p.card, p) AS a(card text, at timestamptz, countries text[]) $q$,
    stream.to_table('velocity_out_' || p), options => jsonb_build_object('state_provider', p), start => false) > 0 AS made FROM unnest(ARRAY['memory', 'table']) p;
INSERT INTO payment_t VALUES ('a', 'CZ', '2026-03-01 12:00'), ('b', 'CZ', '2026-03-01 12:00'), ('a', 'DE', '2026-03-01 12:04'), ('b', 'DE', '2026-03-01 12:05'), ('b', 'DE', '2026-03-01 12:06');
CALL batch();
INSERT INTO payment_t VALUES ('a', 'FR', '2026-03-01 12:09'), ('b', 'FR', '2026-03-01 12:11');
CALL batch();
SELECT card, at, countries FROM velocity_out_memory ORDER BY at;
-- Out of order, within the delay.
INSERT INTO payment_t VALUES ('c', 'CZ', '2026-03-01 12:12'), ('c', 'PL', '2026-03-01 12:08'), ('c', 'AT', '2026-03-01 12:10'), ('c', 'CZ', '2026-03-01 12:13');
CALL batch();
SELECT card, at, countries FROM velocity_out_memory ORDER BY at;
SELECT key, count(*) FROM stream.state('velocity_table', state_name => 'recent') GROUP BY key ORDER BY key::text;
-- Rested: the state is empty again.
INSERT INTO payment_t VALUES ('d', 'CZ', '2026-03-01 13:00');
CALL batch();
SELECT key, count(*) FROM stream.state('velocity_table', state_name => 'recent') GROUP BY key ORDER BY key::text;
SELECT count(*) FROM (TABLE velocity_out_memory EXCEPT ALL TABLE velocity_out_table) d;

-- A list of rows is read by its columns, whole, in the select list; and so is one of a domain over rows.
CREATE DOMAIN abroad AS card_use CHECK ((VALUE).country <> 'CZ');
CREATE FUNCTION shapes(key text, rows payment[]) RETURNS TABLE (t text) LANGUAGE plpgsql AS $$
BEGIN
    PERFORM stream.list_put('uses', ARRAY[ROW(rows[1].at, 'CZ'), ROW(rows[1].at, NULL)]::card_use[]), stream.list_append('trips', ROW(NULL, 'FR')::abroad);
    RETURN QUERY SELECT 'columns ' || concat_ws(' ', u.at, u.country) FROM stream.list_get('uses', NULL::card_use) u;
    RETURN QUERY SELECT 'row ' || u::text FROM stream.list_get('uses', NULL::card_use) u;
    RETURN QUERY SELECT 'select list ' || u::text FROM (SELECT stream.list_get('uses', NULL::card_use) AS u) x;
    RETURN QUERY SELECT 'domain ' || concat_ws(' ', u.at, u.country) FROM stream.list_get('trips', NULL::abroad) u;
    RETURN QUERY SELECT 'domain in the select list ' || u::text FROM (SELECT stream.list_get('trips', NULL::abroad) AS u) x;
END $$;
SELECT stream.create_processor('shapes', 'shapes(text,payment[])', state => '{"uses": {"kind": "list", "type": "card_use"}, "trips": {"kind": "list", "type": "abroad"}}');
SELECT stream.create_query('shapes', $$SELECT s.t FROM payment p, LATERAL stream.transform_with_state('shapes', p.card, p) AS s(t text) WHERE p.card = 'd'$$,
    stream.to_table('shapes_out'), start => false) > 0 AS made;
CALL stream.process_all_available('shapes');
SELECT t FROM shapes_out;

SELECT count(stream.drop_query(name)) FROM stream.queries;
SELECT count(stream.drop_processor(name)) FROM stream.processors;
SET client_min_messages = warning;
DROP SCHEMA alerting CASCADE;
