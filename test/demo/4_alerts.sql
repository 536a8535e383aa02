SELECT holder, home, country, store, amount, round(score::numeric, 3) AS score, to_char(ts, 'HH24:MI:SS') AS at
FROM alert ORDER BY batch_id DESC, ts DESC LIMIT 8;
