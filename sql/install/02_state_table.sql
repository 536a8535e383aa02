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
