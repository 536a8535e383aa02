/* debezium_schema.h: forms of fields, from a schema in the document or from the columns' types. */
#ifndef STREAM_FORMAT_DEBEZIUM_SCHEMA_H
#define STREAM_FORMAT_DEBEZIUM_SCHEMA_H

#include "format/encoded.h"
#include "format/json_column.h"

typedef struct FieldType
{
	Encoding encoding;
	int scale; /* ENCODED_DECIMAL */
} FieldType;

/* Field types of one kind of document, and the schema they were read from. */
typedef struct SchemaCache
{
	const char **fields;	  /* per column: its field's name, NULL: by a path into one */
	const FieldType *by_type; /* per column: without a schema */
	int nfields;
	bool is_envelope; /* the fields are those of its image */
	Column json;	  /* reads documents */
	char *text;
	size_t length, room;
	FieldType *types; /* per column */
} SchemaCache;

/* In CurrentMemoryContext; the arrays are kept by the caller. */
extern SchemaCache *schema_cache_make(const char **fields, const FieldType *by_type, int nfields, bool is_envelope);
/* By the schema of a document, an object, or without (any other token). NULL: *error says why. */
extern const FieldType *schema_types(SchemaCache *cache, const JsonToken *schema, DecodeError *error);
extern bool schema_variable_decimal(SchemaCache *cache, const JsonToken *token, int *scale, JsonToken *digits);

#endif
