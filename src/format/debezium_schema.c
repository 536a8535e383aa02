/*
 * debezium_schema.c: the schema that Kafka Connect's JSON converter puts around a document → in which form each column's field is written.
 * The schema has been checked with its document; what is not as expected in it is left to the columns' types.
 */
#include "format/debezium_schema.h"

#include "catalog/pg_type.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"
#include "utils/memutils.h"
#include "utils/numeric.h"

static JsonbValue *
member(JsonbContainer *object, const char *name, JsonbValue *value)
{
	return getKeyJsonValueFromContainer(object, name, strlen(name), value);
}

/* A string member, NULL: there is none. */
static char *
member_text(JsonbContainer *object, const char *name)
{
	JsonbValue v;

	if (member(object, name, &v) == NULL || v.type != jbvString)
		return NULL;
	return pnstrdup(v.val.string.val, v.val.string.len);
}

static FieldType
field_type(JsonbContainer *field)
{
	FieldType type = {0};
	char *name = member_text(field, "name"), *base = member_text(field, "type"), *scale;
	JsonbValue v;

	type.encoding = name ? encoding_of_name(name) : ENCODED_PLAIN;
	if (type.encoding == ENCODED_PLAIN && base && strcmp(base, "bytes") == 0)
		type.encoding = ENCODED_BYTES;
	if (type.encoding != ENCODED_DECIMAL || member(field, "parameters", &v) == NULL || v.type != jbvBinary ||
		!JsonContainerIsObject(v.val.binary.data))
		return type;
	scale = member_text(v.val.binary.data, "scale");
	type.scale = scale ? atoi(scale) : 0;
	return type;
}

static void
types_from_fields(SchemaCache *cache, JsonbContainer *record)
{
	JsonbValue fields;

	if (member(record, "fields", &fields) == NULL || fields.type != jbvBinary || !JsonContainerIsArray(fields.val.binary.data))
		return;
	for (uint32 i = 0; i < JsonContainerSize(fields.val.binary.data); i++)
	{
		JsonbValue *field = getIthJsonbValueFromContainer(fields.val.binary.data, i);
		char *name = field->type == jbvBinary && JsonContainerIsObject(field->val.binary.data) ? member_text(field->val.binary.data, "field") : NULL;

		for (int c = 0; name && c < cache->nfields; c++)
			if (cache->fields[c] && strcmp(cache->fields[c], name) == 0)
				cache->types[c] = field_type(field->val.binary.data);
	}
}

/* The struct in the fields of an envelope's schema that the image has. */
static JsonbContainer *
image_schema(JsonbContainer *envelope)
{
	JsonbValue fields;

	if (member(envelope, "fields", &fields) == NULL || fields.type != jbvBinary || !JsonContainerIsArray(fields.val.binary.data))
		return NULL;
	for (uint32 i = 0; i < JsonContainerSize(fields.val.binary.data); i++)
	{
		JsonbValue *field = getIthJsonbValueFromContainer(fields.val.binary.data, i);
		char *name = field->type == jbvBinary && JsonContainerIsObject(field->val.binary.data) ? member_text(field->val.binary.data, "field") : NULL;

		if (name && strcmp(name, "after") == 0)
			return field->val.binary.data;
	}
	return NULL;
}

static bool
schema_load(SchemaCache *cache, const JsonToken *token, DecodeError *error)
{
	JsonbContainer *record;
	Datum jsonb;

	if (!column_from_json(&cache->json, token->start, token->len, &jsonb, error))
		return false;
	memcpy(cache->types, cache->by_type, sizeof(FieldType) * cache->nfields);
	record = &DatumGetJsonbP(jsonb)->root;
	if (cache->is_envelope)
		record = image_schema(record);
	if (record)
		types_from_fields(cache, record);
	if (cache->room < token->len)
	{
		if (cache->text)
			pfree(cache->text);
		cache->room = token->len;
		cache->text = MemoryContextAllocHuge(GetMemoryChunkContext(cache), cache->room);
	}
	memcpy(cache->text, token->start, token->len);
	cache->length = token->len;
	return true;
}

SchemaCache *
schema_cache_make(const char **fields, const FieldType *by_type, int nfields, bool is_envelope)
{
	SchemaCache *cache = palloc0(sizeof(SchemaCache));
	TupleDesc desc = CreateTemplateTupleDesc(1);
	DecoderConfig config = {.desc = desc};

	cache->fields = fields;
	cache->by_type = by_type;
	cache->nfields = nfields;
	cache->is_envelope = is_envelope;
	cache->types = palloc0(sizeof(FieldType) * Max(nfields, 1));
	/* A jsonb that nobody declared. */
	TupleDescInitEntry(desc, 1, "schema", JSONBOID, -1, 0);
	column_init(&cache->json, &config, 0);
	return cache;
}

/* Documents of a stream repeat their schema byte for byte: it is read once. */
const FieldType *
schema_types(SchemaCache *cache, const JsonToken *schema, DecodeError *error)
{
	if (schema->kind != JSON_OBJECT)
		return cache->by_type;
	if (cache->text && cache->length == schema->len && memcmp(cache->text, schema->start, schema->len) == 0)
		return cache->types;
	return schema_load(cache, schema, error) ? cache->types : NULL;
}

/* {"scale": 2, "value": "…"}: a decimal that brings its scale along. False: it is none. */
bool
schema_variable_decimal(SchemaCache *cache, const JsonToken *token, int *scale, JsonToken *digits)
{
	JsonbContainer *object;
	JsonbValue v;
	Datum jsonb;
	DecodeError ignored;
	bool out_of_range = false;

	if (!column_from_json(&cache->json, token->start, token->len, &jsonb, &ignored))
		return false;
	object = &DatumGetJsonbP(jsonb)->root;
	if (member(object, "scale", &v) == NULL || v.type != jbvNumeric)
		return false;
	*scale = numeric_int4_opt_error(v.val.numeric, &out_of_range);
	*digits = (JsonToken){.kind = JSON_STRING, .start = member_text(object, "value")};
	if (out_of_range || digits->start == NULL)
		return false;
	digits->len = strlen(digits->start);
	return true;
}
