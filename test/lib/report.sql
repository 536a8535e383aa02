-- What make report shows: an aggregate with a watermark and late rows, plain alerts, a query that falls behind its interval, one that has given up.
CREATE EXTENSION stream_ext;
CREATE SERVER shop FOREIGN DATA WRAPPER stream_kafka OPTIONS ("bootstrap.servers" :'broker');
SELECT stream.create_source('payment', 'kafka', columns => 'card text, store text, country text, amount numeric, ts timestamptz, kafka_offset bigint',
    options => '{"server": "shop", "topic": "payments", "starting_offsets": "earliest"}', event_time => 'ts', watermark_delay => '2 seconds');
SELECT stream.create_query('sales per second', 'SELECT store, stream.tumble(ts, ''1 second'') AS second, count(*) AS n, sum(amount) AS revenue FROM payment GROUP BY store, second',
    stream.to_table('sale'), output_mode => 'update', options => '{"late_rows": "dead_letter"}');
SELECT stream.create_query('large payments', 'SELECT card, store, amount, ts FROM payment WHERE amount > 500', stream.to_table('large_payment'));
SELECT stream.create_query('slow lookups, every 200 ms', 'SELECT card, amount, pg_sleep(0.008 + 0.006 * random()) IS NULL AS known FROM payment', stream.to_table('looked_up'),
    trigger => stream.processing_time('200 milliseconds'), options => '{"max_rows_per_batch": 30}');
SELECT stream.create_query('ratios', 'SELECT card, 100 / (600 - kafka_offset) AS ratio FROM payment', stream.to_table('ratio'), options => '{"max_retries": 1}');
