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
