/*
 * Queries in the background: start, stop, wait, watch.
 */

CREATE FUNCTION stream.start_query(name text) RETURNS void
    LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'stream_start_query';
COMMENT ON FUNCTION stream.start_query(text) IS 'starts a query in the background, as its owner, when this transaction commits; a finished or failed one runs again';

CREATE FUNCTION stream.stop_query(name text) RETURNS void
    LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'stream_stop_query';
COMMENT ON FUNCTION stream.stop_query(text) IS 'stops a query; returns when its worker is gone; the current batch rolls back or finishes';

CREATE FUNCTION stream.await_termination(name text, timeout interval DEFAULT NULL) RETURNS boolean
    LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'stream_await_termination';
COMMENT ON FUNCTION stream.await_termination(text, interval) IS 'waits until a query has ended: true, or false after the timeout; raises the error of a query that failed';

CREATE FUNCTION stream.await_any_termination(timeout interval DEFAULT NULL) RETURNS text
    LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'stream_await_any_termination';
COMMENT ON FUNCTION stream.await_any_termination(interval) IS
    'waits until one of the caller''s running queries has ended and returns its name; ends since the session began are told too, once each; NULL after the timeout, or when none runs';

CREATE FUNCTION stream.worker_status(
    OUT query_id          bigint,
    OUT pid               integer,
    OUT message           text,
    OUT is_data_available boolean,
    OUT is_trigger_active boolean,
    OUT stopping          boolean,
    OUT last_batch_id     bigint,
    OUT last_batch_at     timestamptz,
    OUT batch_duration_ms double precision,
    OUT last_rows         bigint
) RETURNS SETOF record LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'stream_worker_status';
COMMENT ON FUNCTION stream.worker_status() IS 'what the workers of this database do right now; only queries of roles the caller is a member of';

CREATE FUNCTION stream.running_operations(
    OUT query_id   bigint,
    OUT pid        integer,
    OUT operation  text,
    OUT batch_id   bigint,
    OUT rows_done  bigint,
    OUT bytes_done bigint,
    OUT started_at timestamptz
) RETURNS SETOF record LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'stream_running_operations';
COMMENT ON FUNCTION stream.running_operations() IS 'what view stream.operations is made of; only queries of roles the caller is a member of';
