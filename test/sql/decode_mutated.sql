-- Messages with bytes changed, added, left out: whatever comes, nothing is raised; what is wrong is a value. (What is right is for the other tests.)
\getenv source PG_ABS_SRCDIR
\set functions :source '/lib/decode.psql'
\i :functions
SELECT setseed(0.5) IS NOT NULL AS same_every_time;
CREATE TABLE big (id int, v text, b bytea, a text[], n numeric, d date, ts timestamptz, j jsonb, op text, unchanged text[]);
CREATE TABLE av (id int, v text, b bytea, a int[], n numeric, d date, ts timestamptz, j jsonb, f float4, iv interval);
CREATE TABLE cs (id int, v text, n numeric, ts timestamptz);
CREATE FUNCTION mutated(doc bytea, n int) RETURNS bytea LANGUAGE plpgsql AS $$
DECLARE k int; w text[] := '{00,ff,22,5c,7b,7d,5b,5d,2c,3a,80,7f,01,30,39,2d,65}';
BEGIN
  FOR i IN 1..n LOOP
    k := floor(random() * length(doc));
    CASE floor(random() * 4)
      WHEN 0 THEN doc := set_byte(doc, k, floor(random() * 256)::int);
      WHEN 1 THEN doc := substr(doc, 1, k) || decode(w[1 + floor(random() * 17)::int], 'hex') || substr(doc, k + 1);
      WHEN 2 THEN doc := substr(doc, 1, k) || substr(doc, k + 1 + floor(random() * 4)::int);
      ELSE doc := substr(doc, 1, k) || substr(doc, 1 + floor(random() * length(doc))::int, floor(random() * 12)::int) || substr(doc, k + 1);
    END CASE;
    IF length(doc) = 0 THEN doc := '\x00'; END IF;
  END LOOP;
  RETURN doc;
END $$;
CREATE PROCEDURE try(rel regclass, format text, seed bytea, rounds int, as_key boolean DEFAULT false) LANGUAGE plpgsql AS $$
DECLARE doc bytea; r text; good int := 0; raised int := 0;
BEGIN
  FOR i IN 1..rounds LOOP
    doc := mutated(seed, 1 + floor(random() * 5)::int);
    BEGIN
      r := CASE WHEN as_key THEN decode_key(rel, format, doc) ELSE decode_bytes(rel, format, doc) END;
      IF r LIKE '(%' THEN good := good + 1; END IF;
    EXCEPTION WHEN OTHERS THEN raised := raised + 1; IF raised < 4 THEN RAISE WARNING '% %: %', format, SQLERRM, doc; END IF;
    END;
  END LOOP;
  RAISE NOTICE '%: % raised, some good: %, some bad: %', format, raised, good > 0, good < rounds;
END $$;
CALL try('big', 'debezium', convert_to('{"schema":{"type":"struct","fields":[{"type":"struct","fields":[{"type":"int32","field":"id"},{"type":"bytes","name":"org.apache.kafka.connect.data.Decimal","parameters":{"scale":"2"},"field":"n"},{"type":"int32","name":"io.debezium.time.Date","field":"d"},{"type":"int64","name":"io.debezium.time.MicroTimestamp","field":"ts"},{"type":"string","name":"io.debezium.data.Json","field":"j"}],"field":"after"}]},"payload":{"before":{"id":1},"after":{"id":1,"v":"__debezium_unavailable_value","b":"AP8=","a":["x","y"],"n":"MDk=","d":20513,"ts":1772359200123456,"j":"{\"a\":1}"},"op":"u"}}', 'UTF8'), 1500);
CALL try('big', 'debezium', convert_to('{"op":"d","before":{"id":1,"v":"x\u00e9","n":{"scale":2,"value":"MDk="},"d":20513,"ts":"2026-03-01T10:00:00Z","j":"[1]","b":"AA=="},"after":null}', 'UTF8'), 1500);
CALL try('big', 'debezium', convert_to('{"schema":{"type":"struct","fields":[{"type":"int32","name":"io.debezium.time.Date","field":"d"}]},"payload":{"id":1,"d":5}}', 'UTF8'), 1500, true);
SELECT decode_set('schema', '{"type":"record","name":"r","fields":[{"name":"id","type":["null","int"]},{"name":"v","type":"string"},{"name":"b","type":"bytes"},{"name":"a","type":{"type":"array","items":["null","int"]}},{"name":"n","type":{"type":"bytes","logicalType":"decimal","precision":20,"scale":2}},{"name":"d","type":{"type":"int","logicalType":"date"}},{"name":"ts","type":{"type":"long","logicalType":"timestamp-micros"}},{"name":"j","type":{"type":"map","values":[{"type":"record","name":"q","fields":[{"name":"x","type":"double"},{"name":"r","type":["null","q"]}]},"string",{"type":"int","logicalType":"date"}]}},{"name":"f","type":"float"},{"name":"iv","type":{"type":"fixed","name":"dd","size":12,"logicalType":"duration"}}]}') IS NULL;
CALL try('av', 'avro', '\x0202046869040102060002020000043039c2c00280a9cd88f1fca506040261000000000000f03f000262020278000000c03f0e0000000300000088130000', 1500);
CALL try('cs', 'csv', '12,"a ""b""",1.5,2026-03-01T10:00:00Z', 1500);
-- The schema itself.
CREATE PROCEDURE try_schema(schema text, rounds int) LANGUAGE plpgsql AS $$
DECLARE raised int := 0; good int := 0; r text;
BEGIN
  PERFORM decode_set('schema', NULL);
  FOR i IN 1..rounds LOOP
    BEGIN
      PERFORM decode_set('schema 7', convert_from(mutated(convert_to(schema, 'UTF8'), 1 + floor(random() * 4)::int), 'UTF8'));
      r := decode_bytes('av', 'avro', '\x000000000702020468690401');
      good := good + 1;
    EXCEPTION WHEN character_not_in_repertoire OR untranslatable_character THEN NULL; WHEN OTHERS THEN raised := raised + 1; RAISE WARNING 'schema: % %', SQLERRM, SQLSTATE;
    END;
  END LOOP;
  RAISE NOTICE 'schemas: % raised, some read: %', raised, good > 0;
END $$;
CALL try_schema('{"type":"record","name":"r","namespace":"a.b","fields":[{"name":"id","type":["null","int"]},{"name":"v","type":{"type":"enum","name":"e","symbols":["A","B"]}},{"name":"n","type":{"type":"fixed","name":"f","size":3,"logicalType":"decimal","scale":2}},{"name":"j","type":{"type":"map","values":["null","r","e"]}},{"name":"a","type":{"type":"array","items":"long"}}]}', 1500);
SET client_min_messages = warning;
DROP SCHEMA decode_test CASCADE;
