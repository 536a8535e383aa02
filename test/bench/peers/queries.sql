-- queries.sql: the workloads of `make bench-peers`, by stream_ext: the same as in spark.py, each written into a table. :servers, :batch
-- Each reads a topic of its own, that bears its name.

CREATE SERVER peers FOREIGN DATA WRAPPER stream_kafka OPTIONS ("bootstrap.servers" :'servers');
SELECT stream.create_source(topic, 'kafka', columns => 'id bigint, card text, store text, amount float8, country text, ts timestamptz',
	options => json_build_object('server', 'peers', 'topic', topic, 'starting_offsets', 'earliest')::jsonb,
	event_time => 'ts', watermark_delay => CASE topic WHEN 'pay_d' THEN interval '1 hour' ELSE interval '1 minute' END)
FROM unnest('{pay_a,pay_b1k,pay_b100k,pay_bbig,pay_c,pay_d,pay_e,paid,pay_f,pay_g,pay_t,pay_h}'::text[]) topic;

CREATE TABLE card_risk (card text PRIMARY KEY, risk int);
INSERT INTO card_risk SELECT 'c' || lpad(i::text, 7, '0'), i % 100 FROM generate_series(0, 9999) i;
ANALYZE card_risk;

-- F: a card that pays, then is silent for two minutes of event time, is reported once.
CREATE FUNCTION card_paid(key text, rows pay_f[]) RETURNS TABLE (card text, payments bigint) LANGUAGE plpgsql AS $$
BEGIN
	PERFORM stream.delete_timer(at) FROM stream.list_timers() at;
	PERFORM stream.state_update('payments', coalesce(stream.state_get('payments', NULL::bigint), 0) + cardinality(rows));
	PERFORM stream.register_timer(rows[cardinality(rows)].ts + interval '2 minutes');
END $$;
CREATE FUNCTION card_silent(key text, at timestamptz) RETURNS TABLE (card text, payments bigint) LANGUAGE plpgsql AS $$
BEGIN
	card := key;
	payments := stream.state_get('payments', NULL::bigint);
	PERFORM stream.state_clear('payments');
	RETURN NEXT;
END $$;
SELECT stream.create_processor('silent_cards', 'card_paid(text,pay_f[])', 'card_silent(text,timestamptz)',
	'{"payments": {"kind": "value", "type": "bigint"}}', 'event_time');

CREATE TABLE workload (name text PRIMARY KEY, mode text, query text, options jsonb DEFAULT '{}');
INSERT INTO workload (name, mode, query) VALUES
('A', 'append', 'SELECT p.*, r.risk FROM pay_a p JOIN card_risk r USING (card) WHERE p.amount > 900 AND r.risk < 50'),
('B1k', 'update', $$SELECT store, stream.tumble(ts, '1 minute') AS minute, count(*) AS orders, sum(amount) AS revenue FROM pay_b1k GROUP BY store, minute$$),
('B100k', 'update', $$SELECT store, stream.tumble(ts, '1 minute') AS minute, count(*) AS orders, sum(amount) AS revenue FROM pay_b100k GROUP BY store, minute$$),
('Bbig', 'update', $$SELECT store, stream.tumble(ts, '1 minute') AS minute, count(*) AS orders, sum(amount) AS revenue FROM pay_bbig GROUP BY store, minute$$),
('C', 'append', $$SELECT store, stream.tumble(ts, '1 minute') AS minute, count(*) AS orders, sum(amount) AS revenue FROM pay_c GROUP BY store, minute$$),
('E', 'append', $$SELECT o.id, o.store, o.ts AS ordered, p.ts AS paid, p.amount FROM pay_e o JOIN paid p ON p.id = o.id AND p.ts BETWEEN o.ts AND o.ts + interval '5 minutes'$$),
('F', 'append', $$SELECT t.* FROM pay_f p, LATERAL stream.transform_with_state('silent_cards', p.card, p) AS t(card text, payments bigint)$$),
('G', 'update', 'SELECT id, count(*) AS n, sum(amount) AS total FROM pay_g GROUP BY id'),
('T', 'update', $$SELECT store, stream.tumble(ts, '1 hour') AS hour, count(*) AS orders, sum(amount) AS revenue FROM pay_t GROUP BY store, hour$$),
('H', 'update', $$SELECT store, stream.hop(ts, '1 hour', '1 minute') AS hour, count(*) AS orders, sum(amount) AS revenue FROM pay_h GROUP BY store, hour$$);
INSERT INTO workload (name, mode, options, query) VALUES
('D', 'append', '{"dedup_within_watermark": true}', 'SELECT DISTINCT ON (id) id, card, store, amount, country, ts FROM pay_d');
UPDATE workload SET options = options || jsonb_build_object('max_rows_per_batch', :batch);
