/*
 * The table source: what keeps the stamps of its tables true. (Wrapper and server: 30_source.sql.)
 */

CREATE TABLE stream.incarnation (id uuid NOT NULL, database oid NOT NULL, outside uuid NOT NULL);
COMMENT ON TABLE stream.incarnation IS 'of this database: positions of table sources name it; not dumped, so that a restored database refuses them';
COMMENT ON COLUMN stream.incarnation.database IS 'which it is: another one was copied (CREATE DATABASE ... TEMPLATE), its queries go on there';
COMMENT ON COLUMN stream.incarnation.outside IS 'by which other systems know its batches: files, transactions of Kafka; a copy has its own';
INSERT INTO stream.incarnation SELECT u, d.oid, u FROM pg_catalog.gen_random_uuid() u, pg_catalog.pg_database d WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database();

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
