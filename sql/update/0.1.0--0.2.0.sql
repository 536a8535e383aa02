/*
 * stream_ext 0.1.0 to 0.2.0. A line @FILE@ stands for that file of sql/install; views are replaced, for users' own may stand on them, so their columns and those of
 * tables (read by their place) are added at the end. test/t/029_upgrade.pl compares with a fresh install. Once 0.2.0 is out, what make builds of this moves to
 * sql/ and never changes again.
 */
\echo Use "ALTER EXTENSION stream_ext UPDATE" to load this file. \quit

/* ---- tables ---- */

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

/* Totals begin with this version. */
ALTER TABLE stream.commit_entry ADD COLUMN rows_in bigint NOT NULL DEFAULT 0, ADD COLUMN rows_out bigint NOT NULL DEFAULT 0, ADD COLUMN busy_us bigint NOT NULL DEFAULT 0;
COMMENT ON COLUMN stream.commit_entry.busy_us IS 'like the rows: a total over all batches since the first; time spent in them, in microseconds';

ALTER TABLE stream.query_run ADD COLUMN ended_at timestamptz;
COMMENT ON COLUMN stream.query_run.ended_at IS 'when it last stopped, failed or finished: ceased to be wanted';

ALTER TABLE stream.incarnation ADD COLUMN database oid, ADD COLUMN outside uuid;
UPDATE stream.incarnation SET outside = id, database = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database());
ALTER TABLE stream.incarnation ALTER COLUMN database SET NOT NULL, ALTER COLUMN outside SET NOT NULL;
COMMENT ON COLUMN stream.incarnation.database IS 'which it is: another one was copied (CREATE DATABASE ... TEMPLATE), its queries go on there';
COMMENT ON COLUMN stream.incarnation.outside IS 'by which other systems know its batches: files, transactions of Kafka; a copy has its own';

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

CREATE INDEX dead_letter_query_idx ON stream.dead_letter (query_id, batch_id);

@09_vacuum.sql@

/* ---- sources ---- */

CREATE FUNCTION stream.validate_changes(text[], oid) RETURNS void
    LANGUAGE c STRICT AS 'MODULE_PATHNAME', 'stream_validate_changes';
COMMENT ON FUNCTION stream.validate_changes(text[], oid) IS 'checks the options of changes sources';

CREATE FOREIGN DATA WRAPPER stream_changes HANDLER stream.fdw_handler VALIDATOR stream.validate_changes;
COMMENT ON FOREIGN DATA WRAPPER stream_changes IS 'sources over inserts, updates and deletes in a table of this database, by logical decoding';
CREATE SERVER stream_changes FOREIGN DATA WRAPPER stream_changes;
COMMENT ON SERVER stream_changes IS 'built-in server of changes sources; a query that reads one holds back WAL';

DROP FUNCTION stream.alter_source(text, jsonb);
CREATE FUNCTION stream.alter_source(name text, options jsonb DEFAULT '{}', columns text DEFAULT NULL) RETURNS void
    LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'stream_alter_source';
COMMENT ON FUNCTION stream.alter_source(text, jsonb, text) IS
    'changes options of a source, a JSON null removes one; adds columns, or gives those that are there another type';

/* ---- windows ---- */

ALTER FUNCTION stream.current_watermark() PARALLEL RESTRICTED;
ALTER FUNCTION stream.batch_id() PARALLEL RESTRICTED;
ALTER FUNCTION stream.batch_time() PARALLEL RESTRICTED;

/* ---- sinks and queries ---- */

COMMENT ON FUNCTION stream.to_table(text, jsonb) IS 'rows into a table, exactly once; options key, batch_id_column, op_column, unchanged_column, on_bad_row';

CREATE FUNCTION stream.last_known_step(anyelement, anyelement, boolean) RETURNS anyelement
    LANGUAGE c IMMUTABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'stream_last_known';
COMMENT ON FUNCTION stream.last_known_step(anyelement, anyelement, boolean) IS 'step of aggregate last_known';
CREATE AGGREGATE stream.last_known(anyelement, boolean) (sfunc = stream.last_known_step, stype = anyelement);
COMMENT ON AGGREGATE stream.last_known(anyelement, boolean) IS
    'the last value whose flag is true, in the order rows come; table sinks fold changes that leave columns out with it';

DROP FUNCTION stream.alter_query(text, text, stream.sink, stream.trigger, jsonb);
CREATE FUNCTION stream.alter_query(
    name    text,
    query   text           DEFAULT NULL,
    sink    stream.sink    DEFAULT NULL,
    trigger stream.trigger DEFAULT NULL,
    options jsonb          DEFAULT NULL,
    new_aggregates boolean DEFAULT false
) RETURNS void LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'stream_alter_query';
COMMENT ON FUNCTION stream.alter_query(text, text, stream.sink, stream.trigger, jsonb, boolean) IS
    'changes a stopped query; refused when its saved state does not fit; options are merged, a JSON null removes one; new_aggregates: aggregates that are new start empty in the windows that are open';

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
COMMENT ON FUNCTION stream.await_any_termination(interval) IS
    'waits until one of the caller''s running queries has ended and returns its name; ends since the session began are told too, once each; NULL after the timeout, or when none runs';

ALTER VIEW stream.processors SET (security_barrier = true);

/* ---- what users read ---- */

@90_view.sql@
@95_report.sql@
