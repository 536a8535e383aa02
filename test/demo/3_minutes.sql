SELECT to_char(lower(n.minute), 'HH24:MI') AS minute, n.stores, n.orders, n.revenue,
       CASE WHEN f.orders IS NULL THEN 'still open' WHEN f = n THEN 'final, the same' ELSE 'DIFFERS' END AS "append mode says"
FROM (SELECT minute, count(*) AS stores, sum(orders) AS orders, sum(revenue) AS revenue FROM sale_now GROUP BY minute) n
LEFT JOIN (SELECT minute, count(*) AS stores, sum(orders) AS orders, sum(revenue) AS revenue FROM sale_final GROUP BY minute) f USING (minute)
ORDER BY 1 DESC LIMIT 8;
