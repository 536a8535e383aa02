/*
 * avro.c: Avro messages → columns by name, whatever schema their writer used: fields it lacks are NULL, fields nobody wants are passed over, types
 * are converted as the column's type takes them. Message → (frame: id) → writer's schema → scan (avro_scan.c) → column.
 */
#include "format/avro_schema.h"

#include <math.h>

#include "catalog/pg_type.h"
#include "format/avro_json.h"
#include "format/encoded.h"
#include "format/json_column.h"
#include "mb/pg_wchar.h"
#include "utils/builtins.h"
#include "utils/hsearch.h"
#include "utils/json.h"
#include "utils/memutils.h"

#define FRAME_SIZE 5 /* of a schema registry: a zero byte, and the schema's id */

typedef struct KnownSchema
{
	uint32 id; /* key */
	AvroSchema *schema; /* NULL: could not be read */
	DecodeError error;	/* then: why */
} KnownSchema;

typedef struct AvroDecoder
{
	Decoder base;
	MemoryContext context; /* of schemas */
	AvroSource source;
	KnownSchema plain;	   /* source.schema, where messages have no frame */
	HTAB *schemas;
	KnownSchema *last; /* of the message before */
	bool null_on_error;
	int ncolumns;
	Column *columns;
	int *nodes; /* per column */
	JsonTree tree;
	JsonScan unused; /* json_tree_finish wants one */
	AvroScan scan;
} AvroDecoder;

/* ---- schemas ---- */

static void *
zeroed(size_t size)
{
	return palloc0(size);
}

static bool
schema_read(AvroDecoder *self, KnownSchema *known, List *texts)
{
	MemoryContext old = MemoryContextSwitchTo(self->context);

	known->schema = avro_schema_parse(texts, &known->error);
	if (known->schema)
		avro_resolve(known->schema, &self->tree, 0, zeroed);
	MemoryContextSwitchTo(old);
	return known->schema != NULL;
}

/* The schema of that id. NULL: there is none, *error says why. */
static const AvroSchema *
schema_of(AvroDecoder *self, uint32 id, DecodeError *error)
{
	KnownSchema *known = self->last && self->last->id == id ? self->last : hash_search(self->schemas, &id, HASH_FIND, NULL);

	if (known == NULL)
	{
		List *texts = self->source.lookup(self->source.arg, id, error);

		/* Not kept: it may be there the next time. */
		if (texts == NIL)
			return NULL;
		known = hash_search(self->schemas, &id, HASH_ENTER, NULL);
		known->schema = NULL;
		known->error = (DecodeError){.sqlstate = ERRCODE_INVALID_BINARY_REPRESENTATION};
		(void) schema_read(self, known, texts);
	}
	self->last = known;
	if (known->schema == NULL)
		*error = known->error;
	return known->schema;
}

/* The frame is taken off. */
static const AvroSchema *
schema_of_message(AvroDecoder *self, const char **p, size_t *len, DecodeError *error)
{
	const uint8 *bytes = (const uint8 *) *p;
	uint32 id;

	if (self->source.lookup == NULL)
		return self->plain.schema;
	if (*len > 0 && bytes[0] != 0)
	{
		decode_fail(error, NULL, ERRCODE_INVALID_BINARY_REPRESENTATION, "no frame of a schema registry: the first byte is 0x%02x, not 0x00", bytes[0]);
		return NULL;
	}
	if (*len < FRAME_SIZE)
	{
		decode_fail(error, NULL, ERRCODE_INVALID_BINARY_REPRESENTATION, "no frame of a schema registry: %zu bytes are less than %d", *len, FRAME_SIZE);
		return NULL;
	}
	id = (uint32) bytes[1] << 24 | (uint32) bytes[2] << 16 | (uint32) bytes[3] << 8 | bytes[4];
	*p += FRAME_SIZE;
	*len -= FRAME_SIZE;
	return schema_of(self, id, error);
}

static void
schemas_open(AvroDecoder *self, const DecoderConfig *config)
{
	HASHCTL control = {.keysize = sizeof(uint32), .entrysize = sizeof(KnownSchema), .hcxt = self->context};

	if (config->avro)
		self->source = *config->avro;
	if (self->source.schema)
		self->source.schema = pg_server_to_any(self->source.schema, strlen(self->source.schema), PG_UTF8);
	if (self->source.lookup)
		self->schemas = hash_create("stream_ext Avro schemas", 16, &control, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	else if (self->source.schema == NULL)
		ereport(ERROR, errcode(ERRCODE_FEATURE_NOT_SUPPORTED), errmsg("format \"avro\" needs the schema that messages were written with"),
				errdetail("It comes from a schema registry, or from an option of a Kafka source."),
				errhint("Set option \"schema.registry.url\", or \"avro_schema\" for messages without a registry's frame."));
	else if (!schema_read(self, &self->plain, list_make1((char *) self->source.schema)))
		ereport(ERROR, errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("option \"avro_schema\" holds no Avro schema"),
				errdetail("%s.", self->plain.error.message));
}

static Decoder *
avro_open(const DecoderConfig *config)
{
	AvroDecoder *self = palloc0(sizeof(AvroDecoder));

	self->base.ops = &avro_decoder;
	self->context = CurrentMemoryContext;
	self->null_on_error = config->null_on_error;
	self->columns = palloc0(sizeof(Column) * Max(config->desc->natts, 1));
	self->nodes = palloc0(sizeof(int) * Max(config->desc->natts, 1));
	json_tree_init(&self->tree, json_tree_palloc);
	for (int i = 0; i < config->desc->natts; i++)
		if (config->paths[i] != NULL && !TupleDescAttr(config->desc, i)->attisdropped)
		{
			column_init(&self->columns[self->ncolumns], config, i);
			self->nodes[self->ncolumns] = json_path_add(&self->tree, 0, self->columns[self->ncolumns].name, config->paths[i]);
			self->ncolumns++;
		}
	json_tree_finish(&self->tree, &self->unused);
	self->scan.tree = &self->tree;
	self->scan.tokens = palloc0(sizeof(AvroToken) * self->tree.nnodes);
	schemas_open(self, config);
	return &self->base;
}

/* ---- values ---- */

static bool
take_real(Column *column, const AvroToken *token, Datum *value, DecodeError *error)
{
	char *text;

	if (column->kind == COLUMN_FLOAT8)
	{
		*value = Float8GetDatum(token->real);
		return true;
	}
	text = avro_real_text(token);
	if (isfinite(token->real))
		return column_from_number(column, text, strlen(text), value, error);
	if (column->is_json)
		text = psprintf("\"%s\"", text);
	return column->is_json ? column_from_json(column, text, strlen(text), value, error) : column_from_string(column, text, strlen(text), value, error);
}

static bool
take_bytes(Column *column, const AvroToken *token, Datum *value, DecodeError *error)
{
	char *text;

	switch (token->schema->encoding)
	{
		case ENCODED_DECIMAL:
			return encoded_decimal(column, (const uint8 *) token->start, token->len, token->schema->scale, value, error);
		case ENCODED_UUID:
			text = avro_uuid_text(token->start);
			break;
		case ENCODED_MONTHS:
			text = avro_months_text(token->start);
			break;
		default:
			return encoded_bytes(column, (const uint8 *) token->start, token->len, value, error);
	}
	if (column->is_json)
		text = psprintf("\"%s\"", text);
	return column->is_json ? column_from_json(column, text, strlen(text), value, error) : column_from_string(column, text, strlen(text), value, error);
}

/* By way of JSON: for json columns, arrays and rows; and what a text column shows of it. */
static bool
take_document(Column *column, const AvroToken *token, Datum *value, DecodeError *error)
{
	StringInfoData json;

	initStringInfo(&json);
	if (!avro_json_write(&json, token))
		return decode_fail(error, column, ERRCODE_DATETIME_VALUE_OUT_OF_RANGE, "a value inside it is out of range");
	return column_from_json(column, json.data, json.len, value, error);
}

static bool
take_text(Column *column, const char *p, size_t len, Encoding encoding, Datum *value, DecodeError *error)
{
	StringInfoData quoted;

	if (encoding == ENCODED_JSON)
		return encoded_json(column, p, len, value, error);
	if (!column->is_json)
		return column_from_string(column, p, len, value, error);
	initStringInfo(&quoted);
	escape_json(&quoted, pnstrdup(p, len));
	return column_from_json(column, quoted.data, quoted.len, value, error);
}

static bool
take_token(Column *column, const AvroToken *token, Datum *value, bool *isnull, DecodeError *error)
{
	*isnull = token->schema == NULL || token->schema->type == AVRO_NULL;
	if (*isnull)
		return column_take_null(column, error);
	switch (token->schema->type)
	{
		case AVRO_BOOLEAN:
			return column_from_bool(column, token->number != 0, value, error);
		case AVRO_INT:
		case AVRO_LONG:
			return encoded_int(column, token->schema->encoding, token->number, value, error);
		case AVRO_FLOAT:
		case AVRO_DOUBLE:
			return take_real(column, token, value, error);
		case AVRO_STRING:
			return take_text(column, token->start, token->len, token->schema->encoding, value, error);
		case AVRO_ENUM:
			return take_text(column, token->schema->names[token->number], strlen(token->schema->names[token->number]), ENCODED_PLAIN, value, error);
		case AVRO_BYTES:
		case AVRO_FIXED:
			return take_bytes(column, token, value, error);
		default:
			return take_document(column, token, value, error);
	}
}

static bool
scan_fail(AvroDecoder *self, DecodeError *error)
{
	AvroScan *scan = &self->scan;
	int sqlstate = scan->fault == AVRO_ENCODING ? ERRCODE_CHARACTER_NOT_IN_REPERTOIRE
				   : scan->fault == AVRO_DEPTH	? ERRCODE_STATEMENT_TOO_COMPLEX
												: ERRCODE_INVALID_BINARY_REPRESENTATION;

	if (scan->fault == AVRO_UNREAD)
		return decode_fail(error, NULL, sqlstate, "%zd unread bytes follow the value; was it written with another schema?", scan->end - scan->p);
	return decode_fail(error, NULL, sqlstate, "not the Avro of its schema: %s, at byte %zd", avro_fault_text(scan->fault), scan->where - scan->begin);
}

static bool
avro_decode(Decoder *decoder, const char *buf, size_t len, Datum *values, bool *isnull, DecodeError *error)
{
	AvroDecoder *self = (AvroDecoder *) decoder;
	const AvroSchema *schema = schema_of_message(self, &buf, &len, error);

	if (schema == NULL)
		return false;
	if (!avro_scan(&self->scan, schema, buf, len))
		return scan_fail(self, error);
	for (int i = 0; i < self->ncolumns; i++)
	{
		Column *column = &self->columns[i];
		const AvroToken *token = &self->scan.tokens[self->nodes[i]];
		Datum *value = &values[column->index];
		bool *null = &isnull[column->index];

		/* A message that is no record: the only column takes it. */
		if (token->schema == NULL && self->ncolumns == 1 && self->scan.tokens[0].schema && self->scan.tokens[0].schema->type != AVRO_RECORD)
			token = &self->scan.tokens[0];
		if (!column_settle(column, take_token(column, token, value, null, error), self->null_on_error, value, null, error))
			return false;
	}
	return true;
}

const DecoderOps avro_decoder = {
	.name = "avro",
	.open = avro_open,
	.decode = avro_decode,
};
