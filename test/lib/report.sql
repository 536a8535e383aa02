-- What make report shows: an aggregate with a watermark, a copy that falls behind its interval, a query that has given up, dead letters.
CREATE EXTENSION stream_ext;
CREATE TABLE orders (id bigint, store text, amount numeric, ts timestamptz);
SELECT stream.create_source('order_stream', 'table', options => '{"table": "orders"}', event_time => 'ts', watermark_delay => '5 seconds');
SELECT stream.create_query('sales per second', 'SELECT store, stream.tumble(ts, ''1 second'') AS second, count(*) AS n, sum(amount) AS revenue FROM order_stream GROUP BY store, second',
    stream.to_table('sale'), output_mode => 'update', options => '{"late_rows": "dead_letter"}');
SELECT stream.create_query('copy every 200 ms', 'SELECT id, store, amount, pg_sleep(0.02) IS NULL AS slow FROM order_stream WHERE id % 100 = 0', stream.to_table('order_copy'),
    trigger => stream.processing_time('200 milliseconds'));
SELECT stream.create_query('ratios', 'SELECT id, 1 / (300 - id) AS ratio FROM order_stream', stream.to_table('ratio'), options => '{"max_retries": 1, "max_rows_per_batch": 50}');
DO $$
BEGIN
    FOR i IN 1 .. 40 LOOP
        INSERT INTO orders SELECT i * 50 + n, 's' || n % 5, n, clock_timestamp() - CASE WHEN n = 7 AND i > 20 THEN interval '1 hour' ELSE interval '0' END FROM generate_series(1, 20 + i * 7 % 90) n;
        COMMIT;
        PERFORM pg_sleep(0.15);
    END LOOP;
END $$;
CALL stream.process_all_available('sales per second');
