-- Names and values that are not among the valid ones: the error says which is near; what is near to none gets no hint.
CREATE TABLE t (id int);
SELECT stream.create_source('s', 'table', options => '{"table": "t"}');
SELECT stream.create_query('q', 'SELECT id FROM s', stream.to_table('q_out'), start => false);
CREATE FUNCTION hint(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    message text;
    hint text;
BEGIN
    EXECUTE statement;
    RETURN 'accepted';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS message = MESSAGE_TEXT, hint = PG_EXCEPTION_HINT;
    RETURN message || ' / ' || coalesce(nullif(regexp_replace(hint, ' ?Properties valid here.*', ''), ''), '-');
END $$;
CREATE FUNCTION source_hint(kind text, options jsonb) RETURNS text LANGUAGE sql AS
    $$ SELECT hint(format('SELECT stream.create_source(%L, %L, %L, %L)', 'x', kind, 'id int', options)) $$;
CREATE FUNCTION query_hint(options jsonb DEFAULT '{}', sink text DEFAULT $$to_table('x')$$, mode text DEFAULT 'append') RETURNS text LANGUAGE sql AS
    $$ SELECT hint(format('SELECT stream.create_query(%L, %L, stream.%s, %L, options => %L)', 'x', 'SELECT id FROM s', sink, mode, options)) $$;

-- Kinds, options and values of sources: a slip, another way of writing, one that other engines have.
SELECT kind, source_hint(kind, '{}') FROM unnest('{kafak,Kafka,files,kinesis}'::text[]) kind;
SELECT o, source_hint('kafka', o) FROM unnest(ARRAY['{"topik": "t"}', '{"Topic": "t"}', '{"startingOffsets": "t"}', '{"kafka.bootstrap.servers": "t"}', '{"bootstrap.server": "t"}',
    '{"path": {}}', '{"on_bad_rows": "skip"}', '{"fetch-max-bytes": 1}', '{"no.such.thing": 1}', '{"subscribe": "t"}', '{"": 1}', '{"x": 1}']::jsonb[]) o;
SELECT source_hint('kafka', jsonb_build_object(repeat('topic', 100), 1)) LIKE '% / -' AS long_names_have_no_hint;
SELECT o, source_hint('kafka', o || '{"topic": "t", "bootstrap.servers": "h:1"}') FROM unnest(ARRAY['{"on_bad_row": "deadletter"}', '{"on_bad_row": "ignore"}', '{"format": "jsn"}',
    '{"format": "protobuf"}', '{"isolation_level": "READ COMMITTED"}']::jsonb[]) o;
SELECT hint($$ SELECT stream.create_source('x', 'table', options => '{"table": "t", "strictAppend": "true"}') $$);
SELECT hint('ALTER FOREIGN TABLE s OPTIONS (ADD on_badrow ''skip'')');
SELECT hint('ALTER FOREIGN TABLE s ALTER COLUMN id OPTIONS (ADD paht ''x'')');
SELECT hint('SELECT stream.alter_source(''s'', ''{"onBadRow": "skip"}'')');

-- Properties of librdkafka: their values, as it says itself.
\set SHOW_CONTEXT never
CREATE SERVER k FOREIGN DATA WRAPPER stream_kafka OPTIONS ("security.protocol" 'TLS');
CREATE SERVER k FOREIGN DATA WRAPPER stream_kafka OPTIONS ("security.protocol" 'SASL-SSL');
CREATE SERVER k FOREIGN DATA WRAPPER stream_kafka OPTIONS ("security.protocol" 'kerberos');
CREATE SERVER k FOREIGN DATA WRAPPER stream_kafka OPTIONS ("fetch.wait.max.ms" 'short');

-- Queries and their sinks.
SELECT o, query_hint(o) FROM unnest(ARRAY['{"maxRowsPerBatch": 1}', '{"watermark": {}}', '{"late_rows": "deadletter"}', '{"state_provider": "tables"}', '{"late_rows": "keep"}']::jsonb[]) o;
SELECT mode, query_hint(mode => mode) FROM unnest('{appended,upate,upsert}'::text[]) mode;
SELECT s, query_hint(sink => s) FROM unnest(ARRAY[$$to_table('x', '{"keys": "id"}')$$, $$to_kafka('x', '{"linger_ms": 1}')$$, $$to_file('/x', '{"fromat": "csv"}')$$]) s;
SELECT hint('SELECT stream.alter_query(''q'', options => ''{"max-retries": 1}'')');

-- Processors.
CREATE FUNCTION p(k int, r int[]) RETURNS SETOF int LANGUAGE sql AS 'SELECT 1';
SELECT s, hint(format('SELECT stream.create_processor(%L, %L, state => %L)', 'p', 'p(int,int[])', s)) FROM unnest(ARRAY['{"a": {"kind": "values", "type": "int"}}',
    '{"a": {"kind": "value", "typ": "int"}}', '{"a": {"kind": "queue", "type": "int"}}']::jsonb[]) s;
SELECT hint('SELECT stream.create_processor(''p'', ''p(int,int[])'', time_mode => ''eventtime'')');
