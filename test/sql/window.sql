-- Windows over event time: bounds, alignment, edges of the calendar, refusals.
\set VERBOSITY terse

-- Half-open, aligned to 1970-01-01 or to an origin, before it as well as after.
SELECT stream.tumble('2026-03-01 00:00:07+00', '5 seconds') AS inside,
       stream.tumble('2026-03-01 00:00:05+00', '5 seconds') AS at_start,
       stream.tumble('1969-12-31 23:59:59.999999+00', '5 seconds') AS before_epoch,
       stream.tumble('0044-03-15 12:00:00+00 BC', '1 day') AS long_ago;
SELECT stream.tumble('2026-03-01 00:00:07+00', '5 seconds', '2000-01-01 00:00:03+00') AS origin,
       stream.tumble('1999-12-31 23:59:59+00', '5 seconds', '2000-01-01 00:00:03+00') AS before_origin,
       stream.tumble(timestamp '2026-03-01 00:00:07', '5 seconds', '2000-01-01 00:00:03') AS "timestamp";
SELECT stream.tumble('2026-03-01 00:00:07+00', '1.5 seconds'), stream.tumble('2026-03-01 13:00+00', '1 day'), stream.tumble('2026-03-01 13:00+00', '2 weeks');
SELECT stream.window_end('2026-03-01 00:00:07+00'::timestamptz, '5 seconds'), stream.window_end(timestamp '2026-03-01 00:00:07', '5 seconds', '2000-01-01 00:00:03');

-- Every covering window, oldest first.
SELECT * FROM stream.hop(timestamptz '2026-03-01 00:00:07+00', '10 seconds', '5 seconds');
SELECT * FROM stream.hop(timestamptz '2026-03-01 00:00:07+00', '10 seconds', '4 seconds');
SELECT * FROM stream.hop(timestamp '1969-12-31 23:59:58', '5 seconds', '5 seconds', '2000-01-01 00:00:01');

-- Local days last 23 and 25 hours; where midnight comes twice, the first one counts.
SELECT w, upper(w) - lower(w) AS long FROM (VALUES ('2026-03-29 12:00+02'::timestamptz), ('2026-10-25 12:00+01'), ('2026-06-01 00:00+02')) v(ts),
       stream.tumble_local(ts, '1 day', 'Europe/Berlin') w;
SELECT w, upper(w) - lower(w) AS long FROM (VALUES ('2026-10-24 23:30+00'::timestamptz), ('2026-10-25 00:30+00'), ('2026-10-25 01:30+00')) v(ts),
       stream.tumble_local(ts, '1 day', 'Atlantic/Azores') w;
SELECT stream.tumble_local('2026-03-03 12:00+00', '1 week', 'UTC');

-- NULLs, unbounded ranges.
SELECT stream.tumble(NULL::timestamptz, '5 seconds'), (SELECT count(*) FROM stream.hop(NULL::timestamp, '5 seconds', '5 seconds')),
       stream.window_time(NULL::tsrange), stream.window_time(tstzrange('2026-03-01', NULL)), stream.window_time('empty'::tsrange);
SELECT stream.window_time(stream.tumble('2026-03-01 00:00:07+00', '5 seconds')), stream.window_time(tsrange('2026-03-01', '2026-03-02'));

-- They are Postgres's own ranges: equal, hashed and printed alike.
SELECT w = r, hash_range(w) = hash_range(r), range_send(w) = range_send(r), w::text = r::text
FROM (SELECT stream.tumble('2026-03-01 00:00:07+00', '5 seconds') AS w, tstzrange('2026-03-01 00:00:05+00', '2026-03-01 00:00:10+00') AS r) x;

-- For many instants: start <= t < end, the size, the alignment. Nothing may come out.
SELECT setseed(0.42);
CREATE TEMP TABLE instant AS
    SELECT to_timestamp((random() - 0.5) * 2e10) AS ts, make_interval(secs => (random() * 1e6)::int + 1) AS size,
           make_interval(secs => (random() * 99)::int + 1) AS slide, to_timestamp((random() - 0.5) * 1e10) AS origin
    FROM generate_series(1, 2000);
SELECT i.* FROM instant i, stream.tumble(ts, size) w
WHERE NOT ts <@ w OR upper(w) - lower(w) <> size OR mod(extract(epoch FROM lower(w)), extract(epoch FROM size)) <> 0 OR stream.window_end(ts, size) <> upper(w);
SELECT i.* FROM instant i, stream.tumble(ts, size, origin) w
WHERE NOT ts <@ w OR upper(w) - lower(w) <> size OR mod(extract(epoch FROM lower(w)) - extract(epoch FROM origin), extract(epoch FROM size)) <> 0
   OR stream.window_end(ts, size, origin) <> upper(w);
SELECT i.* FROM instant i, LATERAL (SELECT array_agg(w) AS a, count(*) AS n FROM stream.hop(ts, '100 seconds', slide) w) h
WHERE lower(a[1]) - slide + '100 seconds' > ts OR lower(a[n]) + slide <= ts OR n NOT IN (100 / extract(epoch FROM slide)::int, 100 / extract(epoch FROM slide)::int + 1)
   OR EXISTS (SELECT FROM unnest(a) w WHERE NOT ts <@ w OR mod(extract(epoch FROM lower(w)), extract(epoch FROM slide)) <> 0);
SELECT z, i.ts FROM instant i, unnest(ARRAY['Europe/Berlin', 'America/Havana', 'America/Sao_Paulo', 'Atlantic/Azores', 'Asia/Kathmandu', 'Africa/Cairo']) z,
       stream.tumble_local(ts, '1 day', z) w
WHERE ts > '1900-01-01' AND (NOT ts <@ w OR lower(stream.tumble_local(upper(w), '1 day', z)) <> upper(w));

-- Where time ends: no window, so that a row of that time is one without time.
SELECT stream.tumble('294276-12-31 23:59:58.999999+00'::timestamptz, '1 second');
SELECT stream.tumble('294276-12-31 23:59:59.999999+00'::timestamptz, '1 second');
SELECT stream.tumble('infinity'::timestamptz, '1 second');
SELECT stream.tumble('-infinity'::timestamp, '1 second');
SELECT stream.hop('infinity'::timestamptz, '1 second', '1 second');
SELECT stream.hop('294276-12-31 23:59:59.5+00'::timestamptz, '2 seconds', '1 second');
SELECT stream.window_end('infinity'::timestamptz, '1 second');
SELECT stream.tumble_local('infinity', '1 day', 'UTC');
SELECT stream.tumble(timestamptz '2026-03-01', '1 second', 'infinity');

-- Sizes that are none.
SELECT stream.tumble(timestamptz '2026-03-01', '1 month');
SELECT stream.tumble(timestamptz '2026-03-01', '0 seconds');
SELECT stream.tumble(timestamptz '2026-03-01', '-1 day');
SELECT stream.tumble(timestamptz '2026-03-01', '9223372036854775807 us 1 day');
SELECT stream.hop(timestamptz '2026-03-01', '1 second', '0 seconds');
SELECT stream.hop(timestamptz '2026-03-01', '1 second', '2 seconds');
SELECT stream.tumble_local('2026-03-01', '1 hour', 'UTC');
SELECT stream.tumble_local('2026-03-01', '1 day', 'Nowhere/Land');

-- What has a value only inside a streaming query.
\set VERBOSITY sqlstate
SELECT stream.session(timestamptz '2026-03-01', '1 second');
SELECT stream.session(timestamp '2026-03-01', '1 second');
SELECT stream.batch_id();
SELECT stream.batch_time();
SELECT stream.current_watermark();
