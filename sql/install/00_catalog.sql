/* stream_ext: installed by CREATE EXTENSION stream_ext */
\echo Use "CREATE EXTENSION stream_ext" to load this file. \quit

/* Whoever owns the schema, or has put something there before, could take the place of what the extension calls. */
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_catalog.pg_namespace n JOIN pg_catalog.pg_roles r ON r.oid OPERATOR(pg_catalog.=) n.nspowner
               WHERE n.nspname OPERATOR(pg_catalog.=) 'stream'::pg_catalog.name AND NOT r.rolsuper)
       OR EXISTS (SELECT FROM pg_catalog.pg_proc WHERE pronamespace OPERATOR(pg_catalog.=) 'stream'::pg_catalog.regnamespace::pg_catalog.oid)
       OR EXISTS (SELECT FROM pg_catalog.pg_operator WHERE oprnamespace OPERATOR(pg_catalog.=) 'stream'::pg_catalog.regnamespace::pg_catalog.oid)
       OR EXISTS (SELECT FROM pg_catalog.pg_class WHERE relnamespace OPERATOR(pg_catalog.=) 'stream'::pg_catalog.regnamespace::pg_catalog.oid)
       OR EXISTS (SELECT FROM pg_catalog.pg_type WHERE typnamespace OPERATOR(pg_catalog.=) 'stream'::pg_catalog.regnamespace::pg_catalog.oid)
    THEN
        RAISE EXCEPTION USING ERRCODE = 'object_not_in_prerequisite_state', MESSAGE = 'schema "stream" is there already, and is not the extension''s own',
            DETAIL = 'Its owner is no superuser, or it holds objects.', HINT = 'Drop or rename the schema first.';
    END IF;
END $$;

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
    ended_at    timestamptz,
    CONSTRAINT query_run_pkey PRIMARY KEY (query_id)
);
COMMENT ON TABLE stream.query_run IS 'which queries should run and how their last run went; not dumped: after a restore every query is stopped';
COMMENT ON COLUMN stream.query_run.ended_at IS 'when it last stopped, failed or finished: ceased to be wanted';

CREATE TABLE stream.attempt_entry (
    query_id   bigint NOT NULL,
    attempt    bigint NOT NULL,
    run_id     uuid,
    started_at timestamptz NOT NULL,
    ended_at   timestamptz,
    outcome    text,
    batch_id   bigint,
    range      jsonb,
    sqlstate   text,
    error      text,
    failures   bigint NOT NULL,
    CONSTRAINT attempt_entry_pkey PRIMARY KEY (query_id, attempt)
);
COMMENT ON TABLE stream.attempt_entry IS 'the last attempts to run each query in the background, begun and ended; not dumped: they are this server''s history';
COMMENT ON COLUMN stream.attempt_entry.range IS 'what the batch it failed at was told to read: {"from": {source: position}, "to": {source: position}}';
COMMENT ON COLUMN stream.attempt_entry.failures IS 'failed and lost attempts so far, this one included';

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
    rows_in        bigint NOT NULL DEFAULT 0,
    rows_out       bigint NOT NULL DEFAULT 0,
    busy_us        bigint NOT NULL DEFAULT 0,
    CONSTRAINT commit_entry_pkey PRIMARY KEY (query_id, batch_id)
);
COMMENT ON COLUMN stream.commit_entry.busy_us IS 'like the rows: a total over all batches since the first; time spent in them, in microseconds';
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
CREATE INDEX dead_letter_query_idx ON stream.dead_letter (query_id, batch_id);
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

CREATE TABLE stream.change_slot (
    query_id   bigint NOT NULL,
    source     text NOT NULL,
    slot       text NOT NULL,
    start_lsn  pg_lsn NOT NULL,
    rows       bigint NOT NULL,
    seen       text,
    seen_until pg_lsn NOT NULL,
    CONSTRAINT change_slot_pkey PRIMARY KEY (query_id, source)
);
COMMENT ON TABLE stream.change_slot IS 'replication slots that queries read changes of tables by; not dumped, as slots are not';
COMMENT ON COLUMN stream.change_slot.rows IS 'rows that were in the table at first; they come before the changes';
COMMENT ON COLUMN stream.change_slot.seen IS 'pg_snapshot they were read under: what it sees does not come as a change, if committed up to seen_until';

CREATE TABLE stream.change_row (
    query_id bigint NOT NULL,
    source   text NOT NULL,
    n        bigint NOT NULL,
    data     jsonb NOT NULL,
    CONSTRAINT change_row_pkey PRIMARY KEY (query_id, source, n)
);
COMMENT ON TABLE stream.change_row IS 'rows that were in a table when a query began to read its changes, until they are read';

CREATE TABLE stream.replay_entry (
    query_id  bigint NOT NULL,
    letter_id bigint NOT NULL,
    batch_id  bigint,
    CONSTRAINT replay_entry_pkey PRIMARY KEY (query_id, letter_id)
);
COMMENT ON TABLE stream.replay_entry IS 'dead letters asked to come again';
COMMENT ON COLUMN stream.replay_entry.batch_id IS 'the batch that took it, NULL: waiting; kept as long as that batch could come again after a rewind';

/*
 * State: chunks of packed entries (src/state/changelog.h has the layout). Chunks stay in the heap page up to 8 kB; longer ones go out of line, uncompressed.
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
