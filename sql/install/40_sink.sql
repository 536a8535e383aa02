/*
 * Sinks and triggers: values that say where rows go and when the next batch is due. Nothing is looked up here; create_query checks.
 */

CREATE FUNCTION stream.to_table(target text, options jsonb DEFAULT '{}') RETURNS stream.sink
    LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN ROW('table', target, options)::stream.sink;
COMMENT ON FUNCTION stream.to_table(text, jsonb) IS 'rows into a table, exactly once; options key, batch_id_column, op_column, unchanged_column, on_bad_row';

CREATE FUNCTION stream.to_function(fn regproc) RETURNS stream.sink
    LANGUAGE c STABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'stream_to_function';
COMMENT ON FUNCTION stream.to_function(regproc) IS 'calls fn(batch_id bigint) once a batch, its rows being the relation batch';

CREATE FUNCTION stream.batch_handler() RETURNS fdw_handler
    LANGUAGE c STRICT AS 'MODULE_PATHNAME', 'stream_batch_handler';
COMMENT ON FUNCTION stream.batch_handler() IS 'scans of relation batch, which the functions of function sinks read';
CREATE FOREIGN DATA WRAPPER stream_batch HANDLER stream.batch_handler;
COMMENT ON FOREIGN DATA WRAPPER stream_batch IS 'the rows of the running batch, for the functions of function sinks';
CREATE SERVER stream_batch FOREIGN DATA WRAPPER stream_batch;
COMMENT ON SERVER stream_batch IS 'built-in server of relation batch';
GRANT USAGE ON FOREIGN SERVER stream_batch TO PUBLIC;

CREATE FUNCTION stream.to_each(fn regproc) RETURNS stream.sink
    LANGUAGE c STABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'stream_to_each';
COMMENT ON FUNCTION stream.to_each(regproc) IS 'calls fn(row, batch_id bigint) for every row';

CREATE FUNCTION stream.to_kafka(topic text, options jsonb DEFAULT '{}') RETURNS stream.sink
    LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN ROW('kafka', topic, options)::stream.sink;
COMMENT ON FUNCTION stream.to_kafka(text, jsonb) IS 'rows to a Kafka topic';

CREATE FUNCTION stream.to_file(path text, options jsonb DEFAULT '{}') RETURNS stream.sink
    LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN ROW('file', path, options)::stream.sink;
COMMENT ON FUNCTION stream.to_file(text, jsonb) IS 'rows to files, one set a batch';

CREATE FUNCTION stream.to_channel(channel text) RETURNS stream.sink
    LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN ROW('channel', channel, NULL)::stream.sink;
COMMENT ON FUNCTION stream.to_channel(text) IS 'one NOTIFY a row, sent at commit';

CREATE FUNCTION stream.to_log() RETURNS stream.sink
    LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN ROW('log', NULL, NULL)::stream.sink;
COMMENT ON FUNCTION stream.to_log() IS 'one line of the server log a row';

CREATE FUNCTION stream.to_memory() RETURNS stream.sink
    LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN ROW('memory', NULL, NULL)::stream.sink;
COMMENT ON FUNCTION stream.to_memory() IS 'rows to be read with stream.memory(); for tests';

CREATE TABLE stream.memory_row (
    query_id bigint NOT NULL,
    batch_id bigint NOT NULL,
    number   bigint NOT NULL,
    "row"    jsonb NOT NULL,
    CONSTRAINT memory_row_pkey PRIMARY KEY (query_id, batch_id, number)
);
COMMENT ON TABLE stream.memory_row IS 'rows of memory sinks; read them with stream.memory()';
SELECT pg_catalog.pg_extension_config_dump('stream.memory_row', '');

CREATE FUNCTION stream.memory(name text) RETURNS SETOF jsonb
    LANGUAGE c STABLE STRICT AS 'MODULE_PATHNAME', 'stream_memory';
COMMENT ON FUNCTION stream.memory(text) IS 'rows of a query with a memory sink, in the order they came';

CREATE FUNCTION stream.processing_time("interval" interval) RETURNS stream.trigger
    LANGUAGE c IMMUTABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'stream_processing_time';
COMMENT ON FUNCTION stream.processing_time(interval) IS 'a batch at every multiple of the interval; 0: as soon as data arrives';

CREATE FUNCTION stream.available_now() RETURNS stream.trigger
    LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN ROW('available_now', NULL)::stream.trigger;
COMMENT ON FUNCTION stream.available_now() IS 'everything that is there at the start, in batches, then stop';

CREATE FUNCTION stream.once() RETURNS stream.trigger
    LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN ROW('once', NULL)::stream.trigger;
COMMENT ON FUNCTION stream.once() IS 'one batch of everything that is there, then stop';

CREATE FUNCTION stream.continuous("interval" interval) RETURNS stream.trigger
    LANGUAGE c IMMUTABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'stream_continuous';
COMMENT ON FUNCTION stream.continuous(interval) IS 'rows flow at once, a checkpoint at every interval; stateless queries';

CREATE FUNCTION stream.real_time("interval" interval) RETURNS stream.trigger
    LANGUAGE c IMMUTABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'stream_real_time';
COMMENT ON FUNCTION stream.real_time(interval) IS 'rows flow at once, a checkpoint at every interval; update mode';

CREATE FUNCTION stream.last_known_step(anyelement, anyelement, boolean) RETURNS anyelement
    LANGUAGE c IMMUTABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'stream_last_known';
COMMENT ON FUNCTION stream.last_known_step(anyelement, anyelement, boolean) IS 'step of aggregate last_known';
CREATE AGGREGATE stream.last_known(anyelement, boolean) (sfunc = stream.last_known_step, stype = anyelement);
COMMENT ON AGGREGATE stream.last_known(anyelement, boolean) IS
    'the last value whose flag is true, in the order rows come; table sinks fold changes that leave columns out with it';
