-- Every payment scored as it comes in, beside what is known of its card.
SELECT stream.create_query('alerts', $$
    SELECT p.card, c.holder, p.store, p.country, c.home, p.amount, p.ts, p.kafka_timestamp AS produced_at,
           fraud_score(p.amount, c.usual, p.country, c.home) AS score
    FROM payment p JOIN card c ON c.card = p.card
    WHERE fraud_score(p.amount, c.usual, p.country, c.home) > 0.9 $$,
    stream.to_table('alert'));

-- Orders and revenue per store and minute, kept up to date …
SELECT stream.create_query('sales_now', $$
    SELECT store, stream.tumble(ts, '1 minute') AS minute, count(*) AS orders, sum(amount) AS revenue
    FROM payment GROUP BY store, minute $$,
    stream.to_table('sale_now'), output_mode => 'update');

-- … and the same once and for all, when the minute can no longer change (two minutes' grace).
SELECT stream.create_query('sales_final', $$
    SELECT store, stream.tumble(ts, '1 minute') AS minute, count(*) AS orders, sum(amount) AS revenue
    FROM payment GROUP BY store, minute $$,
    stream.to_table('sale_final'), output_mode => 'append');
