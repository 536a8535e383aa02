/* stream_ext: installed by CREATE EXTENSION stream_ext */
\echo Use "CREATE EXTENSION stream_ext" to load this file. \quit

/*
 * The catalog: what users said, what each batch was told, that it is done, how it went, and the state.
 * All tables are insert-mostly and written by C table access; users read the views of 90_view.sql.
 */

CREATE TYPE stream.sink AS (kind text, target text, options jsonb);
COMMENT ON TYPE stream.sink IS 'where a query''s rows go; made by stream.to_table() and its kin';

CREATE TYPE stream.trigger AS (kind text, period interval);
COMMENT ON TYPE stream.trigger IS 'when a query''s next batch is due; made by stream.processing_time() and its kin';

CREATE SEQUENCE stream.query_id_seq MAXVALUE 2147483647;
COMMENT ON SEQUENCE stream.query_id_seq IS 'ids of queries; never given twice';

CREATE TABLE stream.query (
    id          bigint NOT NULL DEFAULT pg_catalog.nextval('stream.query_id_seq'),
    name        text NOT NULL,
    owner       name NOT NULL,
    query       text NOT NULL,
    sink        stream.sink NOT NULL,
    output_mode text NOT NULL,
    trigger     stream.trigger NOT NULL,
    options     jsonb NOT NULL,
    settings    jsonb NOT NULL,
    signature   jsonb,
    starts      jsonb NOT NULL DEFAULT '{}',
    incarnation integer NOT NULL DEFAULT 0,
    created_at  timestamptz NOT NULL,
    CONSTRAINT query_pkey PRIMARY KEY (id),
    CONSTRAINT query_name_key UNIQUE (name)
);
COMMENT ON TABLE stream.query IS 'the queries as their owners defined them; the SELECT itself is the view stream.query_<id>';
COMMENT ON COLUMN stream.query.owner IS 'role name, not oid: a dump restores row by row even where a role is missing';
COMMENT ON COLUMN stream.query.settings IS 'settings that change results (search_path, TimeZone, …), pinned at creation';
COMMENT ON COLUMN stream.query.signature IS 'what saved state depends on: one object per stateful operator';
COMMENT ON COLUMN stream.query.starts IS 'where each source was when the query first looked: {source: position}; holds until the first batch is logged';
COMMENT ON COLUMN stream.query.incarnation IS 'grows with reset_query; outside sinks key on (id, incarnation, batch_id)';

CREATE TABLE stream.query_run (
    query_id    bigint NOT NULL,
    wanted      boolean NOT NULL,
    status      text NOT NULL,
    run_id      uuid,
    failures    integer NOT NULL DEFAULT 0,
    sqlstate    text,
    error       text,
    retry_at    timestamptz,
    changed_at  timestamptz NOT NULL,
    CONSTRAINT query_run_pkey PRIMARY KEY (query_id)
);
COMMENT ON TABLE stream.query_run IS 'which queries should run and how their last run went; not dumped: after a restore every query is stopped';

CREATE TABLE stream.offset_entry (
    query_id       bigint NOT NULL,
    batch_id       bigint NOT NULL,
    starts         jsonb NOT NULL,
    offsets        jsonb NOT NULL,
    watermark      timestamptz,
    late_watermark timestamptz,
    batch_time     timestamptz NOT NULL,
    conf           jsonb NOT NULL,
    logged_at      timestamptz NOT NULL,
    CONSTRAINT offset_entry_pkey PRIMARY KEY (query_id, batch_id)
);
COMMENT ON TABLE stream.offset_entry IS 'what each batch was told to read, written before it runs; a retry obeys it';

CREATE TABLE stream.commit_entry (
    query_id       bigint NOT NULL,
    batch_id       bigint NOT NULL,
    next_watermark timestamptz,
    watermarks     jsonb NOT NULL,
    rows_late      bigint NOT NULL,
    rows_bad       bigint NOT NULL,
    committed_at   timestamptz NOT NULL,
    CONSTRAINT commit_entry_pkey PRIMARY KEY (query_id, batch_id)
);
COMMENT ON TABLE stream.commit_entry IS 'batches that are done, with the watermarks for the next; written in the batch''s own transaction';

CREATE TABLE stream.progress_entry (
    query_id bigint NOT NULL,
    batch_id bigint NOT NULL,
    at       timestamptz NOT NULL,
    progress jsonb NOT NULL,
    CONSTRAINT progress_entry_pkey PRIMARY KEY (query_id, batch_id)
);
COMMENT ON TABLE stream.progress_entry IS 'how each batch went, in the shape of Spark''s StreamingQueryProgress';

CREATE TABLE stream.epoch_entry (
    query_id       bigint NOT NULL,
    batch_id       bigint NOT NULL,
    flush          bigint NOT NULL,
    starts         jsonb,
    offsets        jsonb NOT NULL,
    opened_at      timestamptz NOT NULL,
    flushed_at     timestamptz NOT NULL,
    conf           jsonb NOT NULL,
    next_watermark timestamptz,
    watermarks     jsonb NOT NULL,
    rows_late      bigint NOT NULL,
    rows_bad       bigint NOT NULL,
    totals         float8[] NOT NULL,
    CONSTRAINT epoch_entry_pkey PRIMARY KEY (query_id, batch_id, flush)
);
COMMENT ON TABLE stream.epoch_entry IS
    'real_time and continuous: how far the open epoch has come, a row per flush, in the flush''s own transaction; gone when the epoch commits';
COMMENT ON COLUMN stream.epoch_entry.starts IS 'where the epoch began; in the row of its first flush only';
COMMENT ON COLUMN stream.epoch_entry.totals IS 'counters for the epoch''s progress';

CREATE SEQUENCE stream.dead_letter_id_seq;
COMMENT ON SEQUENCE stream.dead_letter_id_seq IS 'ids of dead letters';

CREATE TABLE stream.dead_letter (
    id       bigint NOT NULL DEFAULT pg_catalog.nextval('stream.dead_letter_id_seq'),
    query_id bigint NOT NULL,
    batch_id bigint NOT NULL,
    source   text,
    reason   text NOT NULL,
    "position" jsonb,
    raw      bytea,
    error    text,
    at       timestamptz NOT NULL,
    CONSTRAINT dead_letter_pkey PRIMARY KEY (id)
);
COMMENT ON TABLE stream.dead_letter IS 'rows that could not be used, with where they came from and why; same transaction as their batch';

CREATE TABLE stream.seen_file (
    query_id bigint NOT NULL,
    source   text NOT NULL,
    n        bigint NOT NULL,
    path     text NOT NULL,
    modified timestamptz NOT NULL,
    size     bigint NOT NULL,
    CONSTRAINT seen_file_pkey PRIMARY KEY (query_id, source, n)
);
COMMENT ON TABLE stream.seen_file IS 'files a query has taken from a file source, in order; a position is the number of the last one read';

CREATE TABLE stream.replay_entry (
    query_id  bigint NOT NULL,
    letter_id bigint NOT NULL,
    batch_id  bigint,
    CONSTRAINT replay_entry_pkey PRIMARY KEY (query_id, letter_id)
);
COMMENT ON TABLE stream.replay_entry IS 'dead letters asked to come again';
COMMENT ON COLUMN stream.replay_entry.batch_id IS 'the batch that took it, NULL: waiting; kept as long as that batch could come again after a rewind';

/*
 * State: chunks of packed entries (state/memory.c has the layout). Chunks stay in the heap page up to 8 kB; longer ones go out of line, uncompressed.
 */
CREATE TABLE stream.state_change (
    query_id    bigint NOT NULL,
    operator_id integer NOT NULL,
    state_name  text NOT NULL,
    batch_id    bigint NOT NULL,
    chunk       integer NOT NULL,
    data        bytea NOT NULL,
    CONSTRAINT state_change_pkey PRIMARY KEY (query_id, operator_id, state_name, batch_id, chunk)
) WITH (toast_tuple_target = 8160);
ALTER TABLE stream.state_change ALTER COLUMN data SET STORAGE EXTERNAL;
COMMENT ON TABLE stream.state_change IS 'changelog of operator state: what each batch changed';

CREATE TABLE stream.state_snapshot (
    query_id    bigint NOT NULL,
    operator_id integer NOT NULL,
    state_name  text NOT NULL,
    batch_id    bigint NOT NULL,
    chunk       integer NOT NULL,
    data        bytea NOT NULL,
    CONSTRAINT state_snapshot_pkey PRIMARY KEY (query_id, operator_id, state_name, batch_id, chunk)
) WITH (toast_tuple_target = 8160);
ALTER TABLE stream.state_snapshot ALTER COLUMN data SET STORAGE EXTERNAL;
COMMENT ON TABLE stream.state_snapshot IS 'operator state as of a batch, folded from the changelog';

/* One statement each: every call updates the extension's row, which works once a statement. */
SELECT pg_catalog.pg_extension_config_dump('stream.query_id_seq', '');
SELECT pg_catalog.pg_extension_config_dump('stream.query', '');
SELECT pg_catalog.pg_extension_config_dump('stream.offset_entry', '');
SELECT pg_catalog.pg_extension_config_dump('stream.commit_entry', '');
SELECT pg_catalog.pg_extension_config_dump('stream.progress_entry', '');
SELECT pg_catalog.pg_extension_config_dump('stream.epoch_entry', '');
SELECT pg_catalog.pg_extension_config_dump('stream.dead_letter_id_seq', '');
SELECT pg_catalog.pg_extension_config_dump('stream.dead_letter', '');
SELECT pg_catalog.pg_extension_config_dump('stream.replay_entry', '');
SELECT pg_catalog.pg_extension_config_dump('stream.seen_file', '');
SELECT pg_catalog.pg_extension_config_dump('stream.state_change', '');
SELECT pg_catalog.pg_extension_config_dump('stream.state_snapshot', '');

GRANT USAGE ON SCHEMA stream TO PUBLIC;
/*
 * State of the table provider. The entries themselves lie in stream.state_row_<query id>, made with the query (state/rows.c has the layout).
 */
CREATE TABLE stream.state_store (
    query_id    bigint NOT NULL,
    operator_id integer NOT NULL,
    state_name  text NOT NULL,
    number      integer NOT NULL,
    format      integer NOT NULL,
    major       integer NOT NULL,
    CONSTRAINT state_store_pkey PRIMARY KEY (query_id, operator_id, state_name)
);
COMMENT ON TABLE stream.state_store IS 'states kept in place in stream.state_row_<query id>: the number each has there, and what wrote it';

CREATE TABLE stream.state_size (
    query_id    bigint NOT NULL,
    operator_id integer NOT NULL,
    state_name  text NOT NULL,
    batch_id    bigint NOT NULL,
    rows        bigint NOT NULL,
    bytes       bigint NOT NULL,
    CONSTRAINT state_size_pkey PRIMARY KEY (query_id, operator_id, state_name, batch_id)
);
COMMENT ON TABLE stream.state_size IS 'how many entries a state kept in place had after each batch that changed it';

CREATE TABLE stream.state_undo (
    query_id    bigint NOT NULL,
    operator_id integer NOT NULL,
    state_name  text NOT NULL,
    batch_id    bigint NOT NULL,
    chunk       integer NOT NULL,
    data        bytea NOT NULL,
    CONSTRAINT state_undo_pkey PRIMARY KEY (query_id, operator_id, state_name, batch_id, chunk)
) WITH (toast_tuple_target = 8160);
ALTER TABLE stream.state_undo ALTER COLUMN data SET STORAGE EXTERNAL;
COMMENT ON TABLE stream.state_undo IS 'what entries kept in place were before a batch changed them: for rewinding, and for reading state as of a batch';

SELECT pg_catalog.pg_extension_config_dump('stream.state_store', '');
SELECT pg_catalog.pg_extension_config_dump('stream.state_size', '');
SELECT pg_catalog.pg_extension_config_dump('stream.state_undo', '');
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
    LANGUAGE C STABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'stream_current_watermark';
COMMENT ON FUNCTION stream.current_watermark() IS 'the watermark the running batch closes by; NULL before there is one';

CREATE FUNCTION stream.batch_id() RETURNS bigint
    LANGUAGE C STABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'stream_batch_id';
COMMENT ON FUNCTION stream.batch_id() IS 'number of the running batch';

CREATE FUNCTION stream.batch_time() RETURNS timestamptz
    LANGUAGE C STABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'stream_batch_time';
COMMENT ON FUNCTION stream.batch_time() IS 'logged time of the running batch; now() means the same inside a streaming query';
/*
 * Sources: one foreign-data wrapper per kind, each with a built-in server of the same name.
 */

CREATE FUNCTION stream.fdw_handler() RETURNS fdw_handler
    LANGUAGE c STRICT AS 'MODULE_PATHNAME', 'stream_fdw_handler';
COMMENT ON FUNCTION stream.fdw_handler() IS 'scans of sources, all kinds';

CREATE FUNCTION stream.validate_table(text[], oid) RETURNS void
    LANGUAGE c STRICT AS 'MODULE_PATHNAME', 'stream_validate_table';
COMMENT ON FUNCTION stream.validate_table(text[], oid) IS 'checks the options of table sources';

CREATE FUNCTION stream.validate_kafka(text[], oid) RETURNS void
    LANGUAGE c STRICT AS 'MODULE_PATHNAME', 'stream_validate_kafka';
COMMENT ON FUNCTION stream.validate_kafka(text[], oid) IS 'checks the options of Kafka sources';

CREATE FOREIGN DATA WRAPPER stream_table HANDLER stream.fdw_handler VALIDATOR stream.validate_table;
COMMENT ON FOREIGN DATA WRAPPER stream_table IS 'sources over append-only tables of this database';
CREATE SERVER stream_table FOREIGN DATA WRAPPER stream_table;
COMMENT ON SERVER stream_table IS 'built-in server of table sources';
GRANT USAGE ON FOREIGN SERVER stream_table TO PUBLIC;

CREATE FOREIGN DATA WRAPPER stream_kafka HANDLER stream.fdw_handler VALIDATOR stream.validate_kafka;
COMMENT ON FOREIGN DATA WRAPPER stream_kafka IS 'sources over Kafka topics; USAGE is the permission to connect to the network';
CREATE SERVER stream_kafka FOREIGN DATA WRAPPER stream_kafka;
COMMENT ON SERVER stream_kafka IS 'built-in server of Kafka sources; connection options then stand on the source itself';

CREATE FUNCTION stream.validate_file(text[], oid) RETURNS void
    LANGUAGE c STRICT AS 'MODULE_PATHNAME', 'stream_validate_file';
COMMENT ON FUNCTION stream.validate_file(text[], oid) IS 'checks the options of file sources';

CREATE FUNCTION stream.validate_rate(text[], oid) RETURNS void
    LANGUAGE c STRICT AS 'MODULE_PATHNAME', 'stream_validate_rate';
COMMENT ON FUNCTION stream.validate_rate(text[], oid) IS 'checks the options of rate sources';

CREATE FUNCTION stream.validate_socket(text[], oid) RETURNS void
    LANGUAGE c STRICT AS 'MODULE_PATHNAME', 'stream_validate_socket';
COMMENT ON FUNCTION stream.validate_socket(text[], oid) IS 'checks the options of socket sources';

CREATE FOREIGN DATA WRAPPER stream_file HANDLER stream.fdw_handler VALIDATOR stream.validate_file;
COMMENT ON FOREIGN DATA WRAPPER stream_file IS 'sources over files of a directory on the server; needs pg_read_server_files';
CREATE SERVER stream_file FOREIGN DATA WRAPPER stream_file;
COMMENT ON SERVER stream_file IS 'built-in server of file sources';

CREATE FOREIGN DATA WRAPPER stream_rate HANDLER stream.fdw_handler VALIDATOR stream.validate_rate;
COMMENT ON FOREIGN DATA WRAPPER stream_rate IS 'sources that make rows at a steady rate, for trying things out';
CREATE SERVER stream_rate FOREIGN DATA WRAPPER stream_rate;
COMMENT ON SERVER stream_rate IS 'built-in server of rate sources';
GRANT USAGE ON FOREIGN SERVER stream_rate TO PUBLIC;

CREATE FOREIGN DATA WRAPPER stream_socket HANDLER stream.fdw_handler VALIDATOR stream.validate_socket;
COMMENT ON FOREIGN DATA WRAPPER stream_socket IS 'sources over lines from a TCP socket, for trying things out; not replayable';
CREATE SERVER stream_socket FOREIGN DATA WRAPPER stream_socket;
COMMENT ON SERVER stream_socket IS 'built-in server of socket sources';

CREATE FUNCTION stream.create_source(
    name            text,
    kind            text,
    columns         text     DEFAULT NULL,
    options         jsonb    DEFAULT '{}',
    event_time      text     DEFAULT NULL,
    watermark_delay interval DEFAULT NULL,
    if_not_exists   boolean  DEFAULT false
) RETURNS regclass LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'stream_create_source';
COMMENT ON FUNCTION stream.create_source(text, text, text, jsonb, text, interval, boolean) IS
    'makes a source: a foreign table whose rows are a stream';

CREATE FUNCTION stream.alter_source(name text, options jsonb) RETURNS void
    LANGUAGE c VOLATILE STRICT AS 'MODULE_PATHNAME', 'stream_alter_source';
COMMENT ON FUNCTION stream.alter_source(text, jsonb) IS 'changes options of a source; a JSON null removes one';

CREATE FUNCTION stream.drop_source(name text, if_exists boolean DEFAULT false) RETURNS void
    LANGUAGE c VOLATILE STRICT AS 'MODULE_PATHNAME', 'stream_drop_source';
COMMENT ON FUNCTION stream.drop_source(text, boolean) IS 'drops a source; refused while a query reads it';
/*
 * The table source: what keeps the stamps of its tables true. (Wrapper and server: 30_source.sql.)
 */

CREATE TABLE stream.incarnation (id uuid NOT NULL);
COMMENT ON TABLE stream.incarnation IS 'of this database: positions of table sources name it; not dumped, so that a restored database refuses them';
INSERT INTO stream.incarnation VALUES (pg_catalog.gen_random_uuid());

CREATE FUNCTION stream.next_arrival() RETURNS bigint
    LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'stream_next_arrival';
COMMENT ON FUNCTION stream.next_arrival() IS 'default of stream_seq: numbers that grow within a transaction';

CREATE FUNCTION stream.stamp_row() RETURNS trigger
    LANGUAGE c AS 'MODULE_PATHNAME', 'stream_stamp_row';
COMMENT ON FUNCTION stream.stamp_row() IS 'trigger of tables read as streams: forces stream_xid and stream_seq, wakes the readers at commit';

CREATE FUNCTION stream.keep_stamp() RETURNS trigger
    LANGUAGE c AS 'MODULE_PATHNAME', 'stream_keep_stamp';
COMMENT ON FUNCTION stream.keep_stamp() IS 'trigger of tables read as streams: updates leave stream_xid and stream_seq alone';

CREATE FUNCTION stream.refuse_change() RETURNS trigger
    LANGUAGE c AS 'MODULE_PATHNAME', 'stream_refuse_change';
COMMENT ON FUNCTION stream.refuse_change() IS 'trigger of tables read as streams: refuses changes where a source has the option strict_append';

CREATE FUNCTION stream.prepare_table("table" regclass) RETURNS void
    LANGUAGE c VOLATILE STRICT AS 'MODULE_PATHNAME', 'stream_prepare_table';
COMMENT ON FUNCTION stream.prepare_table(regclass) IS
    'makes a table readable as a stream, or gives all its rows new stamps after a restore; create_source does it by itself';
/*
 * Sinks and triggers: values that say where rows go and when the next batch is due. Nothing is looked up here; create_query checks.
 */

CREATE FUNCTION stream.to_table(target text, options jsonb DEFAULT '{}') RETURNS stream.sink
    LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN ROW('table', target, options)::stream.sink;
COMMENT ON FUNCTION stream.to_table(text, jsonb) IS 'rows into a table, exactly once; options key, batch_id_column';

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
/*
 * Queries: create, change, run in the foreground.
 */

CREATE FUNCTION stream.create_query(
    name          text,
    query         text,
    sink          stream.sink,
    output_mode   text           DEFAULT 'append',
    trigger       stream.trigger DEFAULT stream.processing_time('0 seconds'),
    options       jsonb          DEFAULT '{}',
    start         boolean        DEFAULT true,
    if_not_exists boolean        DEFAULT false
) RETURNS bigint LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'stream_create_query';
COMMENT ON FUNCTION stream.create_query(text, text, stream.sink, text, stream.trigger, jsonb, boolean, boolean) IS
    'makes a continuous query, checks all of it, makes its target, and starts it; returns its id';

CREATE FUNCTION stream.alter_query(
    name    text,
    query   text           DEFAULT NULL,
    sink    stream.sink    DEFAULT NULL,
    trigger stream.trigger DEFAULT NULL,
    options jsonb          DEFAULT NULL
) RETURNS void LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'stream_alter_query';
COMMENT ON FUNCTION stream.alter_query(text, text, stream.sink, stream.trigger, jsonb) IS
    'changes a stopped query; refused when its saved state does not fit; options are merged, a JSON null removes one';

CREATE FUNCTION stream.drop_query(name text, if_exists boolean DEFAULT false) RETURNS void
    LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'stream_drop_query';
COMMENT ON FUNCTION stream.drop_query(text, boolean) IS 'stops and drops a query with its logs, state and dead letters; the target stays';

CREATE FUNCTION stream.reset_query(name text) RETURNS void
    LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'stream_reset_query';
COMMENT ON FUNCTION stream.reset_query(text) IS 'stopped query: forgets logs and state; batch ids start at 0 again; the target stays as it is';

CREATE FUNCTION stream.rewind_query(name text, batch_id bigint) RETURNS void
    LANGUAGE c VOLATILE STRICT AS 'MODULE_PATHNAME', 'stream_rewind_query';
COMMENT ON FUNCTION stream.rewind_query(text, bigint) IS 'stopped query: back to just after that batch; later batches come again over the same ranges';

CREATE FUNCTION stream.skip_batch(name text, batch_id bigint) RETURNS void
    LANGUAGE c VOLATILE STRICT AS 'MODULE_PATHNAME', 'stream_skip_batch';
COMMENT ON FUNCTION stream.skip_batch(text, bigint) IS 'stopped or failed query: gives up the batch that cannot succeed; recorded in stream.progress';

CREATE FUNCTION stream.explain_query(name text) RETURNS SETOF text
    LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'stream_explain_query';
COMMENT ON FUNCTION stream.explain_query(text) IS 'operators, what bounds their state, watermarks, and Postgres''s plan of each stage';

CREATE PROCEDURE stream.run_batch(name text, OUT ran boolean)
    LANGUAGE c AS 'MODULE_PATHNAME', 'stream_run_batch';
COMMENT ON PROCEDURE stream.run_batch(text) IS 'stopped query: fires one trigger in this session; ran tells whether there was a batch';

CREATE PROCEDURE stream.process_all_available(name text)
    LANGUAGE c AS 'MODULE_PATHNAME', 'stream_process_all_available';
COMMENT ON PROCEDURE stream.process_all_available(text) IS
    'returns when a trigger finds nothing to do: waits for a running query, runs a stopped one in this session';
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
    'waits until one of the caller''s running queries has ended and returns its name; NULL after the timeout, or when none runs';

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
/*
 * The state reader.
 */

CREATE FUNCTION stream.state(query text, operator_id integer DEFAULT 0, batch_id bigint DEFAULT NULL, state_name text DEFAULT NULL,
                             OUT key jsonb, OUT value jsonb, OUT expires_at timestamptz, OUT state text, OUT element jsonb)
    RETURNS SETOF record LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'stream_state';
COMMENT ON FUNCTION stream.state(text, integer, bigint, text) IS
    'entries of an operator''s state as of a batch, the last committed by default, with the state''s name and, of lists and maps, what tells elements apart; for owners of the query';

CREATE FUNCTION stream.state_changes(query text, operator_id integer, from_batch bigint, to_batch bigint,
                                     OUT batch_id bigint, OUT change_type text, OUT key jsonb, OUT value jsonb, OUT state text, OUT element jsonb)
    RETURNS SETOF record LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'stream_state_changes';
COMMENT ON FUNCTION stream.state_changes(text, integer, bigint, bigint) IS
    'what batches changed in an operator''s state, in order: update with the new value, or delete';

CREATE FUNCTION stream.state_metadata(query text,
                                      OUT operator_id integer, OUT operator_name text, OUT state_name text, OUT rows bigint, OUT bytes bigint,
                                      OUT min_batch_id bigint, OUT max_batch_id bigint)
    RETURNS SETOF record LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'stream_state_metadata';
COMMENT ON FUNCTION stream.state_metadata(text) IS 'the states of a query''s operators, their sizes, and the batches they can be read as of';
/*
 * Custom state: processors, and what their handlers call.
 */

CREATE TABLE stream.processor (
    name         text NOT NULL,
    owner        name NOT NULL,
    handle_input text NOT NULL,
    handle_timer text,
    state        jsonb NOT NULL,
    time_mode    text NOT NULL,
    event_time   text,
    created_at   timestamptz NOT NULL,
    CONSTRAINT processor_pkey PRIMARY KEY (name)
);
COMMENT ON TABLE stream.processor IS 'processors of transform_with_state; functions and types by qualified name, resolved when a batch begins';
SELECT pg_catalog.pg_extension_config_dump('stream.processor', '');

CREATE VIEW stream.processors AS
    SELECT p.name, p.owner, p.handle_input, p.handle_timer, p.state, p.time_mode, p.event_time, p.created_at FROM stream.processor p;
COMMENT ON VIEW stream.processors IS 'processors of transform_with_state: handlers, declared state, time mode';
GRANT SELECT ON stream.processors TO PUBLIC;

CREATE FUNCTION stream.create_processor(
    name          text,
    handle_input  regprocedure,
    handle_timer  regprocedure DEFAULT NULL,
    state         jsonb        DEFAULT '{}',
    time_mode     text         DEFAULT 'none',
    event_time    text         DEFAULT NULL,
    if_not_exists boolean      DEFAULT false
) RETURNS void LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'stream_create_processor';
COMMENT ON FUNCTION stream.create_processor(text, regprocedure, regprocedure, jsonb, text, text, boolean) IS
    'makes a processor: handlers and declared state for transform_with_state; state like {"seen": {"kind": "value", "type": "timestamptz", "ttl": "1 hour"}}; event_time names the column of the result that is event time for what stands above';

CREATE FUNCTION stream.drop_processor(name text, if_exists boolean DEFAULT false) RETURNS void
    LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'stream_drop_processor';
COMMENT ON FUNCTION stream.drop_processor(text, boolean) IS 'drops a processor; refused while a query uses it';

CREATE FUNCTION stream.transform_with_state(processor text, key "any", "row" "any") RETURNS SETOF record
    LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'stream_transform_with_state';
COMMENT ON FUNCTION stream.transform_with_state(text, "any", "any") IS
    'in FROM of a streaming query: LATERAL stream.transform_with_state(processor, key, row) AS t(col type, …); calls the processor''s handlers, once per key and batch';

CREATE FUNCTION stream.state_exists(var text) RETURNS boolean
    LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'stream_state_exists';
COMMENT ON FUNCTION stream.state_exists(text) IS 'inside a handler: has the variable a value, elements or entries for the current key?';

CREATE FUNCTION stream.state_get(var text, type anyelement) RETURNS anyelement
    LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'stream_state_get';
COMMENT ON FUNCTION stream.state_get(text, anyelement) IS 'inside a handler: the variable''s value for the current key, NULL when there is none; NULL::type tells the type';

CREATE FUNCTION stream.state_update(var text, value "any") RETURNS void
    LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'stream_state_update';
COMMENT ON FUNCTION stream.state_update(text, "any") IS 'inside a handler: sets the variable for the current key; a TTL starts anew';

CREATE FUNCTION stream.state_clear(var text) RETURNS void
    LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'stream_state_clear';
COMMENT ON FUNCTION stream.state_clear(text) IS 'inside a handler: forgets the variable for the current key, whatever its kind';

CREATE FUNCTION stream.list_get(var text, type anyelement) RETURNS SETOF anyelement
    LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'stream_list_get';
COMMENT ON FUNCTION stream.list_get(text, anyelement) IS 'inside a handler: the list''s elements in the order they were appended';

CREATE FUNCTION stream.list_append(var text, value "any") RETURNS void
    LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'stream_list_append';
COMMENT ON FUNCTION stream.list_append(text, "any") IS 'inside a handler: appends to the list; a TTL is the element''s own';

CREATE FUNCTION stream.list_put(var text, "values" "any") RETURNS void
    LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'stream_list_put';
COMMENT ON FUNCTION stream.list_put(text, "any") IS 'inside a handler: replaces the list by the elements of an array';

CREATE FUNCTION stream.list_clear(var text) RETURNS void
    LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'stream_list_clear';
COMMENT ON FUNCTION stream.list_clear(text) IS 'inside a handler: empties the list';

CREATE FUNCTION stream.map_get(var text, k "any", type anyelement) RETURNS anyelement
    LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'stream_map_get';
COMMENT ON FUNCTION stream.map_get(text, "any", anyelement) IS 'inside a handler: the map''s value under a key, NULL when there is none';

CREATE FUNCTION stream.map_put(var text, k "any", v "any") RETURNS void
    LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'stream_map_put';
COMMENT ON FUNCTION stream.map_put(text, "any", "any") IS 'inside a handler: sets the map''s value under a key; a TTL is the entry''s own';

CREATE FUNCTION stream.map_contains(var text, k "any") RETURNS boolean
    LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'stream_map_contains';
COMMENT ON FUNCTION stream.map_contains(text, "any") IS 'inside a handler: has the map a value under that key?';

CREATE FUNCTION stream.map_remove(var text, k "any") RETURNS void
    LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'stream_map_remove';
COMMENT ON FUNCTION stream.map_remove(text, "any") IS 'inside a handler: forgets one entry of the map';

CREATE FUNCTION stream.map_clear(var text) RETURNS void
    LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'stream_map_clear';
COMMENT ON FUNCTION stream.map_clear(text) IS 'inside a handler: empties the map';

CREATE FUNCTION stream.map_entries(var text, key_type anyelement, value_type anycompatible) RETURNS TABLE (key anyelement, value anycompatible)
    LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'stream_map_entries';
COMMENT ON FUNCTION stream.map_entries(text, anyelement, anycompatible) IS 'inside a handler: all entries of the map, in the order their keys were first put';

CREATE FUNCTION stream.register_timer(at timestamptz) RETURNS void
    LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'stream_register_timer';
COMMENT ON FUNCTION stream.register_timer(timestamptz) IS
    'inside a handler: handle_timer is called for the current key at that time (of the clock or the watermark, as time_mode says); registering it twice is once';

CREATE FUNCTION stream.delete_timer(at timestamptz) RETURNS void
    LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'stream_delete_timer';
COMMENT ON FUNCTION stream.delete_timer(timestamptz) IS 'inside a handler: the timer of the current key at that time will not fire';

CREATE FUNCTION stream.list_timers() RETURNS SETOF timestamptz
    LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'stream_list_timers';
COMMENT ON FUNCTION stream.list_timers() IS 'inside a handler: timers of the current key still to fire, earliest first';

CREATE FUNCTION stream.processing_time_now() RETURNS timestamptz
    LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'stream_processing_time_now';
COMMENT ON FUNCTION stream.processing_time_now() IS 'inside a handler: the batch''s logged time; the same when the batch is run again';
/*
 * Dead letters: rows that could not be used.
 */

CREATE FUNCTION stream.replay_dead_letters(query text, ids bigint[] DEFAULT NULL) RETURNS bigint
    LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'stream_replay_dead_letters';
COMMENT ON FUNCTION stream.replay_dead_letters(text, bigint[]) IS
    'rows that could not be read come again with the query''s next batch, decoded as its sources are defined now; all of them, or those named; returns how many';
/*
 * What users read. A role sees the queries of roles it is a member of; superusers and pg_monitor see all.
 */

CREATE VIEW stream.visible_query WITH (security_barrier) AS
    SELECT q.id, q.name, coalesce(r.rolname, q.owner) AS owner, q.sink, q.output_mode, q.trigger
    FROM stream.query q
    LEFT JOIN pg_catalog.pg_class v ON v.relname = ('query_' || q.id) AND v.relnamespace = 'stream'::pg_catalog.regnamespace
    LEFT JOIN pg_catalog.pg_roles r ON r.oid = v.relowner
    WHERE pg_catalog.pg_has_role('pg_monitor', 'MEMBER')
       OR (r.oid IS NOT NULL AND pg_catalog.pg_has_role(r.oid, 'MEMBER'));
COMMENT ON VIEW stream.visible_query IS 'the queries the current role may see; a query belongs to the owner of its view';

CREATE VIEW stream.offset_log WITH (security_barrier) AS
    SELECT o.query_id, o.batch_id, o.offsets, o.watermark, o.batch_time, o.conf, o.logged_at
    FROM stream.offset_entry o JOIN stream.visible_query q ON q.id = o.query_id;
COMMENT ON VIEW stream.offset_log IS 'what each batch was told to read, written before it ran';

CREATE VIEW stream.commit_log WITH (security_barrier) AS
    SELECT c.query_id, c.batch_id, c.next_watermark, c.committed_at
    FROM stream.commit_entry c JOIN stream.visible_query q ON q.id = c.query_id;
COMMENT ON VIEW stream.commit_log IS 'batches that are done, with the watermark for the next';

CREATE VIEW stream.progress WITH (security_barrier) AS
    SELECT q.name AS query,
           p.batch_id,
           p.at,
           (p.progress->>'numInputRows')::bigint AS num_input_rows,
           (p.progress->'sink'->>'numOutputRows')::bigint AS num_output_rows,
           (p.progress->>'inputRowsPerSecond')::float8 AS input_rows_per_second,
           (p.progress->>'processedRowsPerSecond')::float8 AS processed_rows_per_second,
           (p.progress->'durationMs'->>'triggerExecution')::bigint AS duration_ms,
           o.watermark,
           p.progress
    FROM stream.progress_entry p
    JOIN stream.visible_query q ON q.id = p.query_id
    LEFT JOIN stream.offset_entry o ON o.query_id = p.query_id AND o.batch_id = p.batch_id;
COMMENT ON VIEW stream.progress IS 'how each of the retained batches went; column progress is Spark''s StreamingQueryProgress';

CREATE VIEW stream.dead_letters WITH (security_barrier) AS
    SELECT d.id, q.name AS query, d.batch_id, d.source, d.reason, d."position", d.raw, d.error, d.at
    FROM stream.dead_letter d JOIN stream.visible_query q ON q.id = d.query_id
    WHERE NOT EXISTS (SELECT FROM stream.replay_entry r WHERE r.query_id = d.query_id AND r.letter_id = d.id AND r.batch_id IS NOT NULL);
COMMENT ON VIEW stream.dead_letters IS 'rows that could not be used: bytes, where they came from, why';

CREATE VIEW stream.queries WITH (security_barrier) AS
    SELECT q.id,
           q.name,
           r.run_id,
           q.owner,
           CASE WHEN w.stopping THEN 'stopping' ELSE coalesce(r.status, 'stopped') END AS status,
           w.message,
           coalesce(w.is_data_available, false) AS is_data_available,
           coalesce(w.is_trigger_active, false) AS is_trigger_active,
           q.output_mode,
           (q.trigger).kind || coalesce('(' || ((q.trigger).period)::text || ')', '') AS trigger,
           (q.sink).kind || coalesce(' ' || (q.sink).target, '') AS sink,
           p.batch_id AS last_batch_id,
           p.at AS last_batch_at,
           (p.progress->'durationMs'->>'triggerExecution')::bigint AS batch_duration_ms,
           (extract(epoch FROM (q.trigger).period) * 1000)::bigint AS trigger_interval_ms,
           (p.progress->>'inputRowsPerSecond')::float8 AS input_rows_per_second,
           (p.progress->>'processedRowsPerSecond')::float8 AS processed_rows_per_second,
           c.next_watermark AS watermark,
           coalesce(s.state_rows, 0) AS state_rows,
           coalesce(s.state_bytes, 0) AS state_bytes,
           coalesce(c.rows_late, 0) AS rows_late,
           coalesce(c.rows_bad, 0) AS rows_bad,
           coalesce((q.trigger).period > interval '0'
                    AND (p.progress->'durationMs'->>'triggerExecution')::float8 > extract(epoch FROM (q.trigger).period) * 1000, false) AS falling_behind,
           coalesce(r.failures, 0) AS failures,
           r.error,
           w.pid
    FROM stream.visible_query q
    LEFT JOIN stream.query_run r ON r.query_id = q.id
    LEFT JOIN stream.worker_status() w ON w.query_id = q.id
    LEFT JOIN LATERAL (SELECT * FROM stream.progress_entry e WHERE e.query_id = q.id ORDER BY e.batch_id DESC LIMIT 1) p ON true
    LEFT JOIN LATERAL (SELECT * FROM stream.commit_entry e WHERE e.query_id = q.id ORDER BY e.batch_id DESC LIMIT 1) c ON true
    LEFT JOIN LATERAL (SELECT sum((op->>'numRowsTotal')::bigint)::bigint AS state_rows, sum((op->>'memoryUsedBytes')::bigint)::bigint AS state_bytes
                       FROM jsonb_array_elements(p.progress->'stateOperators') op) s ON true;
COMMENT ON VIEW stream.queries IS 'every query with its status, rates, watermark, state size and last error';

GRANT SELECT ON stream.offset_log, stream.commit_log, stream.progress, stream.dead_letters, stream.queries TO PUBLIC;
