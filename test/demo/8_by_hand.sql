-- The same SELECT, run by hand over the whole topic: what the continuous queries should have come to.
WITH by_hand AS (
    SELECT store, stream.tumble(ts, '1 minute') AS minute, count(*) AS orders, sum(amount) AS revenue FROM payment GROUP BY store, minute
)
SELECT (SELECT sum(orders) FROM by_hand) AS "in the topic",
       (SELECT sum(orders) FROM sale_now) AS "counted by the query",
       (SELECT count(*) FROM (TABLE by_hand EXCEPT SELECT store, minute, orders, revenue FROM sale_now) d) AS "minutes that differ",
       (SELECT count(*) FROM payment p JOIN card c ON c.card = p.card WHERE fraud_score(p.amount, c.usual, p.country, c.home) > 0.9) AS "alerts by hand",
       (SELECT count(*) FROM alert) AS "alerts by the query";
