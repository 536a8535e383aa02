/*
 * avro_schema.c: JSON of an Avro schema → the tree that avro_scan.c walks. Named types are resolved, logical types become encodings; what a
 * logical type does not fit is read as the type below it, as Avro has it.
 */
#include "format/avro_schema.h"

#include "catalog/pg_type.h"
#include "format/binary.h"
#include "format/encoded.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"
#include "utils/numeric.h"

#define MAX_NESTING 200

typedef struct NamedType
{
	const char *name; /* full */
	AvroSchema *schema;
} NamedType;

typedef struct Parser
{
	DecodeError *error;
	List *named; /* NamedType */
	int depth;
} Parser;

static AvroSchema *parse_type(Parser *parser, JsonbValue *value, const char *space);

static const struct
{
	const char *name;
	AvroType type;
} primitives[] = {
	{"null", AVRO_NULL}, {"boolean", AVRO_BOOLEAN}, {"int", AVRO_INT},	   {"long", AVRO_LONG},
	{"float", AVRO_FLOAT}, {"double", AVRO_DOUBLE}, {"bytes", AVRO_BYTES}, {"string", AVRO_STRING},
};

static void *
schema_fail(Parser *parser, const char *what, const char *name)
{
	decode_fail(parser->error, NULL, ERRCODE_INVALID_BINARY_REPRESENTATION, "invalid Avro schema: %s \"%s\"", what, name);
	return NULL;
}

/* ---- members of JSON objects ---- */

static JsonbValue *
member(JsonbContainer *object, const char *name)
{
	return getKeyJsonValueFromContainer(object, name, strlen(name), NULL);
}

static char *
member_text(JsonbContainer *object, const char *name)
{
	JsonbValue *v = member(object, name);

	return v && v->type == jbvString ? pnstrdup(v->val.string.val, v->val.string.len) : NULL;
}

/* -1: none, or out of range */
static int
member_int(JsonbContainer *object, const char *name)
{
	JsonbValue *v = member(object, name);
	bool out_of_range = false;
	int number;

	if (v == NULL || v->type != jbvNumeric)
		return -1;
	number = numeric_int4_opt_error(v->val.numeric, &out_of_range);
	return out_of_range ? -1 : number;
}

/* The array of that name; NULL: there is none. */
static JsonbContainer *
member_array(JsonbContainer *object, const char *name)
{
	JsonbValue *v = member(object, name);

	return v && v->type == jbvBinary && JsonContainerIsArray(v->val.binary.data) ? v->val.binary.data : NULL;
}

static bool
is_object(const JsonbValue *value)
{
	return value->type == jbvBinary && JsonContainerIsObject(value->val.binary.data);
}

/* ---- names ---- */

static char *
full_name(const char *name, const char *space)
{
	return strchr(name, '.') || *space == '\0' ? pstrdup(name) : psprintf("%s.%s", space, name);
}

static AvroSchema *
find_named(Parser *parser, const char *name)
{
	ListCell *lc;

	foreach (lc, parser->named)
		if (strcmp(((NamedType *) lfirst(lc))->name, name) == 0)
			return ((NamedType *) lfirst(lc))->schema;
	return NULL;
}

static AvroSchema *
schema_make(AvroType type)
{
	AvroSchema *schema = palloc0(sizeof(AvroSchema));

	schema->type = type;
	return schema;
}

/* A record, an enum or a fixed: known by its name from here on. *space: of what is inside it. */
static AvroSchema *
define_named(Parser *parser, JsonbContainer *object, AvroType type, const char **space)
{
	char *name = member_text(object, "name"), *own_space = member_text(object, "namespace"), *dot;
	NamedType *named = palloc(sizeof(NamedType));

	if (name == NULL)
		return schema_fail(parser, "a type without", "name");
	name = full_name(name, own_space ? own_space : *space);
	if (find_named(parser, name))
		return schema_fail(parser, "a second type", name);
	named->name = name;
	named->schema = schema_make(type);
	parser->named = lappend(parser->named, named);
	dot = strrchr(name, '.');
	*space = dot ? pnstrdup(name, dot - name) : "";
	return named->schema;
}

/* ---- logical types ---- */

static Encoding
logical_encoding(AvroType type, size_t size, const char *logical)
{
	static const struct
	{
		const char *name;
		AvroType type;
		Encoding encoding;
	} names[] = {
		{"date", AVRO_INT, ENCODED_DAYS},
		{"time-millis", AVRO_INT, ENCODED_TIME_MS},
		{"time-micros", AVRO_LONG, ENCODED_TIME_US},
		{"timestamp-millis", AVRO_LONG, ENCODED_INSTANT_MS},
		{"timestamp-micros", AVRO_LONG, ENCODED_INSTANT_US},
		{"timestamp-nanos", AVRO_LONG, ENCODED_INSTANT_NS},
		{"local-timestamp-millis", AVRO_LONG, ENCODED_INSTANT_MS},
		{"local-timestamp-micros", AVRO_LONG, ENCODED_INSTANT_US},
		{"local-timestamp-nanos", AVRO_LONG, ENCODED_INSTANT_NS},
		{"decimal", AVRO_BYTES, ENCODED_DECIMAL},
		{"decimal", AVRO_FIXED, ENCODED_DECIMAL},
	};

	if (type == AVRO_FIXED && size == 16 && strcmp(logical, "uuid") == 0)
		return ENCODED_UUID;
	if (type == AVRO_FIXED && size == 12 && strcmp(logical, "duration") == 0)
		return ENCODED_MONTHS;
	for (int i = 0; i < lengthof(names); i++)
		if (names[i].type == type && strcmp(names[i].name, logical) == 0)
			return names[i].encoding;
	return ENCODED_PLAIN;
}

/* Names of Kafka Connect fit the types its converter writes. */
static bool
connect_fits(AvroType type, Encoding encoding)
{
	if (encoding == ENCODED_JSON)
		return type == AVRO_STRING;
	return encoding != ENCODED_DECIMAL && encoding != ENCODED_BYTES && (type == AVRO_INT || type == AVRO_LONG);
}

static void
take_logical_type(AvroSchema *schema, JsonbContainer *object)
{
	char *logical = member_text(object, "logicalType"), *connect = member_text(object, "connect.name");

	if (schema->type == AVRO_BYTES || schema->type == AVRO_FIXED)
		schema->encoding = ENCODED_BYTES;
	if (logical && logical_encoding(schema->type, schema->size, logical) != ENCODED_PLAIN)
		schema->encoding = logical_encoding(schema->type, schema->size, logical);
	else if (connect && connect_fits(schema->type, encoding_of_name(connect)))
		schema->encoding = encoding_of_name(connect);
	if (schema->encoding != ENCODED_DECIMAL)
		return;
	schema->scale = Max(member_int(object, "scale"), 0);
	if (schema->scale > BINARY_DECIMAL_MAX_SCALE)
		schema->encoding = ENCODED_BYTES;
}

/* ---- types ---- */

static AvroSchema *
parse_record(Parser *parser, JsonbContainer *object, const char *space)
{
	AvroSchema *schema = define_named(parser, object, AVRO_RECORD, &space);
	JsonbContainer *fields = member_array(object, "fields");

	if (schema == NULL)
		return NULL;
	if (fields == NULL)
		return schema_fail(parser, "a record without", "fields");
	schema->children = palloc0(sizeof(AvroSchema *) * (JsonContainerSize(fields) + 1));
	schema->names = palloc0(sizeof(char *) * (JsonContainerSize(fields) + 1));
	for (uint32 i = 0; i < JsonContainerSize(fields); i++)
	{
		JsonbValue *field = getIthJsonbValueFromContainer(fields, i);
		char *name = is_object(field) ? member_text(field->val.binary.data, "name") : NULL;
		JsonbValue *type = name ? member(field->val.binary.data, "type") : NULL;

		if (type == NULL)
			return schema_fail(parser, "a field without", name ? "type" : "name");
		schema->names[i] = name;
		schema->children[i] = parse_type(parser, type, space);
		if (schema->children[i] == NULL)
			return NULL;
	}
	schema->count = JsonContainerSize(fields);
	return schema;
}

static AvroSchema *
parse_enum(Parser *parser, JsonbContainer *object, const char *space)
{
	AvroSchema *schema = define_named(parser, object, AVRO_ENUM, &space);
	JsonbContainer *symbols = member_array(object, "symbols");

	if (schema == NULL)
		return NULL;
	if (symbols == NULL)
		return schema_fail(parser, "an enum without", "symbols");
	schema->names = palloc0(sizeof(char *) * (JsonContainerSize(symbols) + 1));
	for (uint32 i = 0; i < JsonContainerSize(symbols); i++)
	{
		JsonbValue *symbol = getIthJsonbValueFromContainer(symbols, i);

		if (symbol->type != jbvString)
			return schema_fail(parser, "an enum with a symbol that is no", "string");
		schema->names[i] = pnstrdup(symbol->val.string.val, symbol->val.string.len);
	}
	schema->count = JsonContainerSize(symbols);
	return schema;
}

static AvroSchema *
parse_fixed(Parser *parser, JsonbContainer *object, const char *space)
{
	AvroSchema *schema = define_named(parser, object, AVRO_FIXED, &space);
	int size = member_int(object, "size");

	if (schema == NULL)
		return NULL;
	if (size < 0)
		return schema_fail(parser, "a fixed without", "size");
	schema->size = size;
	take_logical_type(schema, object);
	return schema;
}

/* An array or a map. */
static AvroSchema *
parse_items(Parser *parser, JsonbContainer *object, AvroType type, const char *space)
{
	const char *name = type == AVRO_ARRAY ? "items" : "values";
	AvroSchema *schema = schema_make(type);
	JsonbValue *items = member(object, name);

	if (items == NULL)
		return schema_fail(parser, "a container without", name);
	schema->children = palloc(sizeof(AvroSchema *));
	schema->children[0] = parse_type(parser, items, space);
	schema->count = 1;
	return schema->children[0] ? schema : NULL;
}

static AvroSchema *
parse_union(Parser *parser, JsonbContainer *branches, const char *space)
{
	AvroSchema *schema = schema_make(AVRO_UNION);

	schema->children = palloc(sizeof(AvroSchema *) * (JsonContainerSize(branches) + 1));
	for (uint32 i = 0; i < JsonContainerSize(branches); i++)
	{
		AvroSchema *branch = parse_type(parser, getIthJsonbValueFromContainer(branches, i), space);

		if (branch == NULL)
			return NULL;
		if (branch->type == AVRO_UNION)
			return schema_fail(parser, "a union inside a", "union");
		schema->children[i] = branch;
	}
	schema->count = JsonContainerSize(branches);
	return schema;
}

static AvroSchema *
parse_name(Parser *parser, const char *name, const char *space)
{
	AvroSchema *schema;

	for (int i = 0; i < lengthof(primitives); i++)
		if (strcmp(primitives[i].name, name) == 0)
		{
			schema = schema_make(primitives[i].type);
			if (schema->type == AVRO_BYTES)
				schema->encoding = ENCODED_BYTES;
			return schema;
		}
	schema = find_named(parser, full_name(name, space));
	if (schema == NULL)
		schema = find_named(parser, name);
	return schema ? schema : schema_fail(parser, "unknown type", name);
}

static AvroSchema *
parse_object(Parser *parser, JsonbContainer *object, const char *space)
{
	JsonbValue *type = member(object, "type");
	char *name;
	AvroSchema *schema;

	if (type == NULL)
		return schema_fail(parser, "an object without", "type");
	if (type->type != jbvString)
		return parse_type(parser, type, space);
	name = pnstrdup(type->val.string.val, type->val.string.len);
	if (strcmp(name, "record") == 0 || strcmp(name, "error") == 0)
		return parse_record(parser, object, space);
	if (strcmp(name, "enum") == 0)
		return parse_enum(parser, object, space);
	if (strcmp(name, "fixed") == 0)
		return parse_fixed(parser, object, space);
	if (strcmp(name, "array") == 0)
		return parse_items(parser, object, AVRO_ARRAY, space);
	if (strcmp(name, "map") == 0)
		return parse_items(parser, object, AVRO_MAP, space);
	schema = parse_name(parser, name, space);
	if (schema && schema->type <= AVRO_STRING)
		take_logical_type(schema, object);
	return schema;
}

static AvroSchema *
parse_type(Parser *parser, JsonbValue *value, const char *space)
{
	AvroSchema *schema;

	if (++parser->depth > MAX_NESTING)
		return schema_fail(parser, "nested too", "deeply");
	if (value->type == jbvString)
		schema = parse_name(parser, pnstrdup(value->val.string.val, value->val.string.len), space);
	else if (is_object(value))
		schema = parse_object(parser, value->val.binary.data, space);
	else if (value->type == jbvBinary)
		schema = parse_union(parser, value->val.binary.data, space);
	else
		schema = schema_fail(parser, "a type that is no", "string, object or array");
	parser->depth--;
	return schema;
}

/* ---- texts ---- */

/* A jsonb that nobody declared. */
static bool
read_json(const char *text, Datum *jsonb, DecodeError *error)
{
	TupleDesc desc = CreateTemplateTupleDesc(1);
	DecoderConfig config = {.desc = desc};
	Column column;

	TupleDescInitEntry(desc, 1, "schema", JSONBOID, -1, 0);
	column_init(&column, &config, 0);
	return column_input(&column, text, strlen(text), jsonb, error);
}

AvroSchema *
avro_schema_parse(List *texts, DecodeError *error)
{
	Parser parser = {.error = error};
	AvroSchema *schema = NULL;
	ListCell *lc;

	foreach (lc, texts)
	{
		JsonbContainer *root;
		JsonbValue whole = {.type = jbvBinary};
		Datum jsonb;

		if (!read_json(lfirst(lc), &jsonb, error))
			return NULL;
		root = &DatumGetJsonbP(jsonb)->root;
		whole.val.binary.data = root;
		whole.val.binary.len = VARSIZE(DatumGetPointer(jsonb)) - VARHDRSZ;
		/* "string": a scalar stands inside an array of its own */
		schema = parse_type(&parser, JsonContainerIsScalar(root) ? getIthJsonbValueFromContainer(root, 0) : &whole, "");
		if (schema == NULL)
			return NULL;
	}
	return schema;
}
