/*
 * Dead letters: rows that could not be used.
 */

CREATE FUNCTION stream.replay_dead_letters(query text, ids bigint[] DEFAULT NULL) RETURNS bigint
    LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'stream_replay_dead_letters';
COMMENT ON FUNCTION stream.replay_dead_letters(text, bigint[]) IS
    'rows that could not be read come again with the query''s next batch, decoded as its sources are defined now; all of them, or those named; returns how many';
