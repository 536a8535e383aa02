/* Windows over event time, and what a query may ask about its batch. */

CREATE FUNCTION stream.tumble(ts timestamptz, size interval) RETURNS tstzrange
    LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'stream_tumble';
COMMENT ON FUNCTION stream.tumble(timestamptz, interval) IS 'the tumbling window that holds ts; windows are half-open and aligned to 1970-01-01';

CREATE FUNCTION stream.tumble(ts timestamptz, size interval, origin timestamptz) RETURNS tstzrange
    LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'stream_tumble_origin';
COMMENT ON FUNCTION stream.tumble(timestamptz, interval, timestamptz) IS 'the tumbling window that holds ts; windows are half-open and aligned to origin';

CREATE FUNCTION stream.hop(ts timestamptz, size interval, slide interval) RETURNS SETOF tstzrange
    LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE ROWS 5 AS 'MODULE_PATHNAME', 'stream_hop';
COMMENT ON FUNCTION stream.hop(timestamptz, interval, interval) IS 'every sliding window that holds ts, oldest first';

CREATE FUNCTION stream.hop(ts timestamptz, size interval, slide interval, origin timestamptz) RETURNS SETOF tstzrange
    LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE ROWS 5 AS 'MODULE_PATHNAME', 'stream_hop';
COMMENT ON FUNCTION stream.hop(timestamptz, interval, interval, timestamptz) IS 'every sliding window that holds ts, oldest first, aligned to origin';

CREATE FUNCTION stream.session(ts timestamptz, gap interval) RETURNS tstzrange
    LANGUAGE C STABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'stream_session';
COMMENT ON FUNCTION stream.session(timestamptz, interval) IS 'session window: rows of a key no further apart than gap; a GROUP BY key of streaming queries';

CREATE FUNCTION stream.window_time(w tstzrange) RETURNS timestamptz
    LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'stream_window_time';
COMMENT ON FUNCTION stream.window_time(tstzrange) IS 'event time of a window for the next operator: its last microsecond';

CREATE FUNCTION stream.window_end(ts timestamptz, size interval) RETURNS timestamptz
    LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'stream_window_end';
COMMENT ON FUNCTION stream.window_end(timestamptz, interval) IS 'end of the tumbling window that holds ts';

CREATE FUNCTION stream.window_end(ts timestamptz, size interval, origin timestamptz) RETURNS timestamptz
    LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'stream_window_end';
COMMENT ON FUNCTION stream.window_end(timestamptz, interval, timestamptz) IS 'end of the tumbling window, aligned to origin, that holds ts';

CREATE FUNCTION stream.tumble(ts timestamp, size interval) RETURNS tsrange
    LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'stream_tumble_ts';
COMMENT ON FUNCTION stream.tumble(timestamp, interval) IS 'the tumbling window that holds ts; windows are half-open and aligned to 1970-01-01';

CREATE FUNCTION stream.tumble(ts timestamp, size interval, origin timestamp) RETURNS tsrange
    LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'stream_tumble_origin_ts';
COMMENT ON FUNCTION stream.tumble(timestamp, interval, timestamp) IS 'the tumbling window that holds ts; windows are half-open and aligned to origin';

CREATE FUNCTION stream.hop(ts timestamp, size interval, slide interval) RETURNS SETOF tsrange
    LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE ROWS 5 AS 'MODULE_PATHNAME', 'stream_hop_ts';
COMMENT ON FUNCTION stream.hop(timestamp, interval, interval) IS 'every sliding window that holds ts, oldest first';

CREATE FUNCTION stream.hop(ts timestamp, size interval, slide interval, origin timestamp) RETURNS SETOF tsrange
    LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE ROWS 5 AS 'MODULE_PATHNAME', 'stream_hop_ts';
COMMENT ON FUNCTION stream.hop(timestamp, interval, interval, timestamp) IS 'every sliding window that holds ts, oldest first, aligned to origin';

CREATE FUNCTION stream.session(ts timestamp, gap interval) RETURNS tsrange
    LANGUAGE C STABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'stream_session';
COMMENT ON FUNCTION stream.session(timestamp, interval) IS 'session window: rows of a key no further apart than gap; a GROUP BY key of streaming queries';

CREATE FUNCTION stream.window_time(w tsrange) RETURNS timestamp
    LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'stream_window_time';
COMMENT ON FUNCTION stream.window_time(tsrange) IS 'event time of a window for the next operator: its last microsecond';

CREATE FUNCTION stream.window_end(ts timestamp, size interval) RETURNS timestamp
    LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'stream_window_end';
COMMENT ON FUNCTION stream.window_end(timestamp, interval) IS 'end of the tumbling window that holds ts';

CREATE FUNCTION stream.window_end(ts timestamp, size interval, origin timestamp) RETURNS timestamp
    LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'stream_window_end';
COMMENT ON FUNCTION stream.window_end(timestamp, interval, timestamp) IS 'end of the tumbling window, aligned to origin, that holds ts';

CREATE FUNCTION stream.tumble_local(ts timestamptz, size interval, zone text) RETURNS tstzrange
    LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'stream_tumble_local';
COMMENT ON FUNCTION stream.tumble_local(timestamptz, interval, text) IS 'the window of whole local days of a time zone that holds ts';

CREATE FUNCTION stream.current_watermark() RETURNS timestamptz
    LANGUAGE C STABLE STRICT PARALLEL RESTRICTED AS 'MODULE_PATHNAME', 'stream_current_watermark';
COMMENT ON FUNCTION stream.current_watermark() IS 'the watermark the running batch closes by; NULL before there is one';

CREATE FUNCTION stream.batch_id() RETURNS bigint
    LANGUAGE C STABLE STRICT PARALLEL RESTRICTED AS 'MODULE_PATHNAME', 'stream_batch_id';
COMMENT ON FUNCTION stream.batch_id() IS 'number of the running batch';

CREATE FUNCTION stream.batch_time() RETURNS timestamptz
    LANGUAGE C STABLE STRICT PARALLEL RESTRICTED AS 'MODULE_PATHNAME', 'stream_batch_time';
COMMENT ON FUNCTION stream.batch_time() IS 'logged time of the running batch; now() means the same inside a streaming query';
