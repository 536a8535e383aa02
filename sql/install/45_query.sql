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
    options jsonb          DEFAULT NULL,
    new_aggregates boolean DEFAULT false
) RETURNS void LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'stream_alter_query';
COMMENT ON FUNCTION stream.alter_query(text, text, stream.sink, stream.trigger, jsonb, boolean) IS
    'changes a stopped query; refused when its saved state does not fit; options are merged, a JSON null removes one; new_aggregates: aggregates that are new start empty in the windows that are open';

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
