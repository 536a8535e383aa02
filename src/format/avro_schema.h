/* avro_schema.h: a writer's schema, from its JSON. */
#ifndef STREAM_FORMAT_AVRO_SCHEMA_H
#define STREAM_FORMAT_AVRO_SCHEMA_H

#include "postgres.h"

#include "format/avro_scan.h"
#include "format/format.h"
#include "nodes/pg_list.h"

/*
 * texts: JSON of schemas (char *); the last is the schema wanted, those before define names it uses. In CurrentMemoryContext. NULL: *error
 * says what is wrong.
 */
extern AvroSchema *avro_schema_parse(List *texts, DecodeError *error);

#endif
