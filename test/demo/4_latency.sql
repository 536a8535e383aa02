-- From the producer's time stamp to the commit that makes the alert visible (track_commit_timestamp).
SELECT count(*) AS alerts,
       percentile_disc(0.50) WITHIN GROUP (ORDER BY ms) AS "p50 ms",
       percentile_disc(0.90) WITHIN GROUP (ORDER BY ms) AS "p90 ms",
       percentile_disc(0.99) WITHIN GROUP (ORDER BY ms) AS "p99 ms",
       max(ms) AS "max ms"
FROM (SELECT round(1000 * extract(epoch FROM pg_xact_commit_timestamp(xmin) - produced_at), 1) AS ms
      FROM alert WHERE produced_at > :'since') a;
