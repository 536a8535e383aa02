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

CREATE FUNCTION stream.validate_changes(text[], oid) RETURNS void
    LANGUAGE c STRICT AS 'MODULE_PATHNAME', 'stream_validate_changes';
COMMENT ON FUNCTION stream.validate_changes(text[], oid) IS 'checks the options of changes sources';

CREATE FOREIGN DATA WRAPPER stream_changes HANDLER stream.fdw_handler VALIDATOR stream.validate_changes;
COMMENT ON FOREIGN DATA WRAPPER stream_changes IS 'sources over inserts, updates and deletes in a table of this database, by logical decoding';
CREATE SERVER stream_changes FOREIGN DATA WRAPPER stream_changes;
COMMENT ON SERVER stream_changes IS 'built-in server of changes sources; a query that reads one holds back WAL';

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

CREATE FUNCTION stream.alter_source(name text, options jsonb DEFAULT '{}', columns text DEFAULT NULL) RETURNS void
    LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'stream_alter_source';
COMMENT ON FUNCTION stream.alter_source(text, jsonb, text) IS
    'changes options of a source, a JSON null removes one; adds columns, or gives those that are there another type';

CREATE FUNCTION stream.drop_source(name text, if_exists boolean DEFAULT false) RETURNS void
    LANGUAGE c VOLATILE STRICT AS 'MODULE_PATHNAME', 'stream_drop_source';
COMMENT ON FUNCTION stream.drop_source(text, boolean) IS 'drops a source; refused while a query reads it';
