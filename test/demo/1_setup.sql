-- The topic as a relation, what is known of the cards, and the model.
CREATE EXTENSION stream_ext;

CREATE SERVER shop FOREIGN DATA WRAPPER stream_kafka OPTIONS ("bootstrap.servers" :'broker');

SELECT stream.create_source('payment', 'kafka',
    columns => 'card text, store text, country text, amount numeric, ts timestamptz, kafka_timestamp timestamptz',
    options => '{"server": "shop", "topic": "payments", "starting_offsets": "earliest"}',
    event_time => 'ts', watermark_delay => '2 minutes');

CREATE TABLE card (card text PRIMARY KEY, holder text, home text, usual numeric);
INSERT INTO card
SELECT format('card-%s', to_char(n, 'FM0000')), 'Customer ' || n, (ARRAY['CZ', 'DE', 'FR', 'PL', 'US'])[n % 5 + 1], 100
FROM generate_series(0, 999) n;

CREATE FUNCTION fraud_score(amount numeric, usual numeric, country text, home text) RETURNS float8
LANGUAGE sql IMMUTABLE
RETURN 1 / (1 + exp(4 - 0.5 * amount / usual - CASE WHEN country <> home THEN 2 ELSE 0 END));
