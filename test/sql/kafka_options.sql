-- Options of Kafka sources: what may be set, and where. No broker is needed.
\set VERBOSITY terse
CREATE FUNCTION refused(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    message text;
    hint text;
BEGIN
    EXECUTE statement;
    RETURN 'accepted';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS message = MESSAGE_TEXT, hint = PG_EXCEPTION_HINT;
    RETURN SQLSTATE || ': ' || message || CASE WHEN hint <> '' THEN ' / ' || left(hint, 80) ELSE '' END;
END $$;
CREATE FUNCTION source(options jsonb, columns text DEFAULT 'id int') RETURNS text LANGUAGE sql AS
$$SELECT refused(format('SELECT stream.create_source(''k'', ''kafka'', %L, %L); SELECT stream.drop_source(''k'')', columns, options))$$;

-- What a source needs
SELECT source('{}');
SELECT source('{"topic": "t"}');
SELECT source('{"bootstrap.servers": "h:1"}');
SELECT source('{"bootstrap.servers": "h:1", "topic": "t"}');
SELECT source('{"bootstrap.servers": "h:1", "topics": ["a", "b"]}');
SELECT source('{"bootstrap.servers": "h:1", "topics": "a, b"}');
SELECT source('{"bootstrap.servers": "h:1", "topics": ["a", "a"]}');
SELECT source('{"bootstrap.servers": "h:1", "topics": []}');
SELECT source('{"bootstrap.servers": "h:1", "topics": ["a"], "topic": "t"}');
SELECT source('{"bootstrap.servers": "h:1", "topic_pattern": "a.*"}');
SELECT source('{"bootstrap.servers": "h:1", "topic_pattern": "a(*"}');
SELECT source('{"bootstrap.servers": "h:1", "topic_pattern": "a.*", "topic": "t"}');
SELECT source('{"bootstrap.servers": "h:1", "topic": "t", "schema.registry.url": "http://h"}');

-- Where to start
SELECT source('{"bootstrap.servers": "h:1", "topic": "t", "starting_offsets": "earliest"}');
SELECT source('{"bootstrap.servers": "h:1", "topic": "t", "starting_offsets": {"0": 23, "1": -2}}');
SELECT source('{"bootstrap.servers": "h:1", "topic": "t", "starting_offsets": "first"}');
SELECT source('{"bootstrap.servers": "h:1", "topic": "t", "starting_offsets": 5}');
SELECT source('{"bootstrap.servers": "h:1", "topics": ["t", "5"], "starting_offsets": {"t": {"0": 1, "1": -1}, "5": {"0": 0}}}');
SELECT offsets, source(jsonb_build_object('bootstrap.servers', 'h:1', 'topic', 't', 'starting_offsets', offsets::jsonb)) FROM (VALUES
	('{"0": -3}'), ('{"0": 1.5}'), ('{"0": 1e30}'), ('{"0": "5"}'), ('{"0": null}'), ('{"-1": 1}'), ('{"x": 1}'), ('{"": 1}'), ('{"0": [1]}'), ('{"t": {"0": {"0": 1}}}'),
	('{"t": {"0": -3}}'), ('{"0": 1.0}')) v(offsets);
SELECT source('{"bootstrap.servers": "h:1", "topic": "t", "starting_timestamp": "2026-03-01 10:00:00+00"}');
SELECT source('{"bootstrap.servers": "h:1", "topic": "t", "starting_timestamp": "1772359200"}');
SELECT source('{"bootstrap.servers": "h:1", "topic": "t", "starting_timestamp": 1772359200}');
SELECT source('{"bootstrap.servers": "h:1", "topic": "t", "starting_timestamp": "soon"}');
SELECT source('{"bootstrap.servers": "h:1", "topic": "t", "starting_timestamp": "infinity"}');

-- Other values
SELECT source('{"bootstrap.servers": "h:1", "topic": "t", "fail_on_data_loss": false, "isolation_level": "read_uncommitted"}');
SELECT source('{"bootstrap.servers": "h:1", "topic": "t", "fail_on_data_loss": "maybe"}');
SELECT source('{"bootstrap.servers": "h:1", "topic": "t", "isolation_level": "serializable"}');
SELECT source('{"bootstrap.servers": "h:1", "topic": "t", "topicc": "t"}') ~ '^(22023|HV00D): .*topicc' AS unknown_option_named;
SELECT source('{"bootstrap.servers": "h:1", "topic": "t", "fetch.wait.max.ms": "100", "queued.min.messages": 1000}');
SELECT source('{"bootstrap.servers": "h:1", "topic": "t", "fetch.wait.max.ms": "soon"}');

-- Formats: what only some take, and columns that do not fit them
SELECT source('{"bootstrap.servers": "h:1", "topic": "t", "format": "csv", "delimiter": ";", "null": "-"}');
SELECT source('{"bootstrap.servers": "h:1", "topic": "t", "format": "csv", "delimiter": ";;"}');
SELECT source('{"bootstrap.servers": "h:1", "topic": "t", "format": "csv", "delimiter": "\""}');
SELECT source('{"bootstrap.servers": "h:1", "topic": "t", "delimiter": ";"}');
SELECT source('{"bootstrap.servers": "h:1", "topic": "t", "format": "text", "null": "-"}', 'line text');
SELECT source('{"bootstrap.servers": "h:1", "topic": "t", "format": "csv", "header": "true"}') ~ '^22023: .*header' AS messages_have_no_header;
SELECT source('{"bootstrap.servers": "h:1", "topic": "t", "format": "text"}');
SELECT source('{"bootstrap.servers": "h:1", "topic": "t", "format": "text"}', 'a text, b text');
SELECT source('{"bootstrap.servers": "h:1", "topic": "t", "format": "raw"}', 'a text');
SELECT source('{"bootstrap.servers": "h:1", "topic": "t", "format": "raw"}', 'kafka_key text, a bytea');
SELECT source('{"bootstrap.servers": "h:1", "topic": "t", "format": "debezium"}', 'id int, op "char"');
SELECT source('{"bootstrap.servers": "h:1", "topic": "t", "format": "debezium"}', 'id int, op text, unchanged text[]');
SELECT source('{"bootstrap.servers": "h:1", "topic": "t", "format": "protobuf"}');

-- Metadata columns have fixed types, unless the name is the path of a value
SELECT source('{"bootstrap.servers": "h:1", "topic": "t"}', 'kafka_topic text, kafka_partition int, kafka_offset bigint, kafka_timestamp timestamptz, kafka_key bytea, kafka_headers jsonb');
SELECT source('{"bootstrap.servers": "h:1", "topic": "t"}', 'id int, kafka_key text');
SELECT source('{"bootstrap.servers": "h:1", "topic": "t"}', 'id int, kafka_offset int');
SELECT source('{"bootstrap.servers": "h:1", "topic": "t"}', 'id int, kafka_timestamp timestamp');

-- Never settable, anywhere: programs, files, other places to send things, our own bookkeeping
SELECT name, source(jsonb_build_object('bootstrap.servers', 'h:1', 'topic', 't', name, 'x')) AS at_source
FROM unnest('{plugin.library.paths,ssl.engine.location,sasl.kerberos.kinit.cmd,sasl.kerberos.keytab,sasl.kerberos.principal,offset.store.path,
    test.mock.num.brokers,ssl.ca.location,ssl.certificate.location,ssl.key.location,ssl.keystore.location,ssl.crl.location,debug,log_level,log.queue,
    group.id,transactional.id,isolation.level,auto.offset.reset,enable.auto.commit,sasl.oauthbearer.token.endpoint.url,no.such.property}'::text[]) AS name;
SELECT name, refused(format('CREATE SERVER s FOREIGN DATA WRAPPER stream_kafka OPTIONS (%I %L)', name, 'x')) AS at_server
FROM unnest('{plugin.library.paths,ssl.ca.location,sasl.kerberos.kinit.cmd,debug,group.id,sasl.password,ssl.key.pem,ssl.key.password,topic}'::text[]) AS name;
SELECT refused($$CREATE SERVER s FOREIGN DATA WRAPPER stream_kafka OPTIONS ("sasl.mechanisms" 'GSSAPI')$$);
SELECT refused($$CREATE SERVER s FOREIGN DATA WRAPPER stream_kafka OPTIONS ("security.protocol" 'carrier_pigeon')$$);

-- Certificates and keys are whole, or refused; a key is never shown
CREATE FUNCTION pem(body text, label text DEFAULT 'CERTIFICATE', line_end text DEFAULT E'\n') RETURNS text LANGUAGE sql AS
$$SELECT concat('-----BEGIN ', label, '-----', line_end, body, line_end, '-----END ', label, '-----', line_end)$$;
CREATE FUNCTION certificate(value text, name text DEFAULT 'ssl.ca.pem') RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    detail text;
    hint text;
BEGIN
    EXECUTE format('CREATE SERVER pem FOREIGN DATA WRAPPER stream_kafka OPTIONS (%I %L)', CASE WHEN name ~ 'key' THEN 'ssl.ca.pem' ELSE name END, CASE WHEN name ~ 'key' THEN pem('MAMCAQE=') ELSE value END);
    IF name ~ 'key' THEN
        EXECUTE format('CREATE USER MAPPING FOR CURRENT_USER SERVER pem OPTIONS (%I %L)', name, value);
    END IF;
    DROP SERVER pem CASCADE;
    RETURN 'accepted';
EXCEPTION WHEN fdw_invalid_attribute_value THEN
    GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
    RETURN SQLERRM || ' / ' || detail || ' / ' || hint;
END $$;
SET client_min_messages = warning;
SELECT certificate(pem('MAMCAQE=')), certificate(pem('MAMCAQE=', line_end => E'\r\n')), certificate(E'comment\n' || pem('MAMCAQE=') || pem(E'MAMC\nAQE=', 'TRUSTED CERTIFICATE')) AS several;
SELECT certificate(pem('MIGEAoGB' || rpad('', 172, 'A'))) AS length_of_two_bytes, certificate(pem('MIIBBAKCAQA' || rpad('', 341, 'A'))) AS length_of_three;
SELECT certificate(v) FROM unnest(ARRAY['pem', '', '/etc/ssl/ca.pem', pem('MAMCAQE=', 'PRIVATE KEY'), pem('MAMCAQE=', line_end => '\n'), pem('MAMCAQE=', line_end => ' '), '-----BEGIN CERTIFICATE',
    replace(pem('MAMCAQE='), '-----END', '-----'), pem('MAMCAQE=') || E'-----BEGIN CERTIFICATE-----\n', replace(pem('MAMCAQE='), 'END CERTIFICATE', 'END KEY')]) v;
SELECT v AS body, certificate(pem(v)) FROM unnest(ARRAY['MAMCAQ==', 'MAMCAQEA', 'AAMCAQE=', 'MAMC AQE=', 'MAMC*QE=', 'MA==', '', 'MIQAAAAA', 'MIE=']) v;
SELECT label, certificate(pem('MAMCAQE=', label), 'ssl.key.pem') FROM unnest(ARRAY['PRIVATE KEY', 'ENCRYPTED PRIVATE KEY', 'EC PRIVATE KEY', 'CERTIFICATE']) label;
SELECT certificate(pem(E'Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,AB\n\nabcd', 'RSA PRIVATE KEY'), 'ssl.key.pem') AS old_kind, certificate(pem('secret'), 'ssl.key.pem'), certificate(pem('secret', 'PRIVATE KEY'), 'ssl.key.pem');
SELECT name, certificate('x', name) FROM unnest(ARRAY['ssl.certificate.pem', 'schema.registry.ca.pem']) name;
RESET client_min_messages;

-- Connections belong to the server, secrets to the user mapping
SELECT format($$CREATE SERVER prod FOREIGN DATA WRAPPER stream_kafka
    OPTIONS ("bootstrap.servers" 'h:1', "security.protocol" 'sasl_plaintext', "sasl.mechanisms" 'SCRAM-SHA-256', "ssl.ca.pem" %L)$$, pem('MAMCAQE=')) \gexec
CREATE USER MAPPING FOR CURRENT_USER SERVER prod OPTIONS ("sasl.username" 'u', "sasl.password" 'secret');
SELECT refused($$CREATE USER MAPPING FOR PUBLIC SERVER prod OPTIONS ("bootstrap.servers" 'evil:1')$$);
SELECT refused($$CREATE USER MAPPING FOR PUBLIC SERVER prod OPTIONS ("ssl.key.location" '/etc/passwd')$$);
SELECT source('{"server": "prod", "topic": "t"}');
SELECT source('{"server": "prod", "topic": "t", "bootstrap.servers": "evil:1"}');
SELECT source('{"server": "prod", "topic": "t", "security.protocol": "plaintext"}');
SELECT source('{"server": "prod", "topic": "t", "sasl.password": "secret"}');
SELECT source('{"server": "prod", "topic": "t", "fetch.min.bytes": "2"}');
CREATE USER MAPPING FOR CURRENT_USER SERVER stream_kafka OPTIONS ("sasl.username" 'u', "sasl.password" 'secret');
SELECT source('{"bootstrap.servers": "evil:1", "topic": "t"}');
DROP USER MAPPING FOR CURRENT_USER SERVER stream_kafka;

-- USAGE is the permission to reach the network; other roles see no secret
CREATE ROLE kafka_nobody;
CREATE SCHEMA kafka_nobody AUTHORIZATION kafka_nobody;
SET ROLE kafka_nobody;
SELECT refused($$CREATE FOREIGN TABLE kafka_nobody.x (id int) SERVER stream_kafka OPTIONS ("bootstrap.servers" 'h:1', topic 't')$$);
SELECT refused($$CREATE FOREIGN TABLE kafka_nobody.x (id int) SERVER prod OPTIONS (topic 't')$$);
SELECT umoptions FROM pg_user_mappings WHERE srvname = 'prod';
RESET ROLE;

DROP SERVER prod CASCADE;
DROP SCHEMA kafka_nobody;
DROP ROLE kafka_nobody;
DROP FUNCTION source, refused;
