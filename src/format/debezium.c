/*
 * debezium.c: change events in Debezium's JSON envelope → rows: the row's image (after, or before of a delete), column op, the names of columns
 * whose values did not come. With a schema around it or without: what a number in a date column means is the schema's word, else the column's type's.
 * Danger: a placeholder for a large value that was not touched must never pass for a value.
 */
#include "format/debezium_schema.h"

#include "catalog/pg_type.h"
#include "common/base64.h"
#include "format/binary.h"
#include "utils/array.h"
#include "utils/builtins.h"

#define PLACEHOLDER "__debezium_unavailable_value"

typedef enum Role
{
	ROLE_IMAGE,		/* a field of the row */
	ROLE_ENVELOPE,	/* by a path of its own: source.table, ts_ms */
	ROLE_OP,
	ROLE_UNCHANGED
} Role;

typedef struct ChangeColumn
{
	Column column;
	Role role;
	int after[2], before[2]; /* nodes of the image, [1] inside "payload"; ROLE_ENVELOPE, ROLE_OP: after only */
	int key[2];			 /* node in the message's key */
} ChangeColumn;

typedef struct DebeziumDecoder
{
	Decoder base;
	bool null_on_error;
	TimestampUnit unit;
	int ncolumns;
	ChangeColumn *columns;
	ChangeColumn *unchanged; /* or NULL */
	JsonTree tree, key_tree;
	JsonScan scan, key_scan;
	int payload, schema, key_payload, key_schema;
	int op[2], after[2], before[2];
	SchemaCache *value_types, *key_types;
	FieldType *by_type; /* per column, without a schema */
	const char **fields; /* per column: its name in the row, where it is no path into one */
	Datum *names;		/* of columns unchanged in the row at hand */
	int nnames;
	char *placeholder_base64;
} DebeziumDecoder;

/* ---- columns ---- */

static bool
is_envelope_field(const char *step)
{
	static const char *const fields[] = {"before", "after", "source", "op", "ts_ms", "ts_us", "ts_ns", "transaction"};

	for (int i = 0; i < lengthof(fields); i++)
		if (strcmp(fields[i], step) == 0)
			return true;
	return false;
}

static void
check_type(Column *column, Oid type, Oid other_type)
{
	if (column->type != type && column->type != other_type)
		ereport(ERROR, errcode(ERRCODE_DATATYPE_MISMATCH),
				errmsg("column \"%s\" is of type %s", column->name, format_type_be(column->type)),
				errdetail("In format \"debezium\" the column of that name is of type %s.", format_type_be(type)),
				errhint("Declare it so; or give the column a path, such as \"after.%s\", if it is a field of the rows.", column->name));
}

static Role
role_of(Column *column, const char *path)
{
	bool more;

	if (strcmp(path, column->name) != 0)
		return strcmp(path, "op") == 0 ? ROLE_OP : is_envelope_field(json_path_first(path, &more)) ? ROLE_ENVELOPE : ROLE_IMAGE;
	if (strcmp(path, "op") == 0)
	{
		check_type(column, TEXTOID, VARCHAROID);
		return ROLE_OP;
	}
	if (strcmp(path, "unchanged") == 0)
	{
		check_type(column, TEXTARRAYOID, TEXTARRAYOID);
		return ROLE_UNCHANGED;
	}
	return ROLE_IMAGE;
}

/* Without a schema: what the column's type lets expect. */
static Encoding
encoding_by_type(const Column *column, TimestampUnit unit)
{
	switch (column->base_type)
	{
		case DATEOID:
			return ENCODED_DAYS;
		case TIMEOID:
		case TIMETZOID:
			return unit == TIMESTAMP_UNIT_MS ? ENCODED_TIME_MS : unit == TIMESTAMP_UNIT_US ? ENCODED_TIME_US : ENCODED_PLAIN;
		case INTERVALOID:
			return ENCODED_DURATION_US;
		case BYTEAOID:
			return ENCODED_BYTES;
		case JSONOID:
		case JSONBOID:
			return ENCODED_JSON;
		default:
			return ENCODED_PLAIN;
	}
}

/* Times of the envelope say their unit in their name. */
static Encoding
encoding_by_path(const Column *column, const char *path)
{
	const char *dot = strrchr(path, '.'), *name = dot ? dot + 1 : path;

	if (!column->is_instant)
		return ENCODED_PLAIN;
	return strcmp(name, "ts_ms") == 0   ? ENCODED_INSTANT_MS
		   : strcmp(name, "ts_us") == 0 ? ENCODED_INSTANT_US
		   : strcmp(name, "ts_ns") == 0 ? ENCODED_INSTANT_NS
										: ENCODED_PLAIN;
}

static int
add_field(JsonTree *tree, int parent, const char *name)
{
	return json_tree_add(tree, parent, name, strlen(name));
}

static void
column_open(DebeziumDecoder *self, const DecoderConfig *config, int i)
{
	ChangeColumn *c = &self->columns[self->ncolumns];
	const char *path = config->paths[i];
	bool more;

	column_init(&c->column, config, i);
	c->role = role_of(&c->column, path);
	self->by_type[self->ncolumns].encoding = encoding_by_type(&c->column, self->unit);
	for (int wrapped = 0; wrapped < 2; wrapped++)
	{
		int root = wrapped ? self->payload : 0;

		if (c->role == ROLE_IMAGE)
		{
			c->after[wrapped] = json_path_add(&self->tree, self->after[wrapped], c->column.name, path);
			c->before[wrapped] = json_path_add(&self->tree, self->before[wrapped], c->column.name, path);
			c->key[wrapped] = json_path_add(&self->key_tree, wrapped ? self->key_payload : 0, c->column.name, path);
		}
		else if (c->role != ROLE_UNCHANGED)
			c->after[wrapped] = json_path_add(&self->tree, root, "", path);
	}
	if (c->role == ROLE_IMAGE)
	{
		self->fields[self->ncolumns] = json_path_first(path, &more);
		if (strcmp(path, c->column.name) == 0)
			self->fields[self->ncolumns] = c->column.name;
		else if (more)
			self->fields[self->ncolumns] = NULL;
	}
	else if (c->role == ROLE_UNCHANGED)
		self->unchanged = c;
	else
		self->by_type[self->ncolumns].encoding = encoding_by_path(&c->column, path);
	self->ncolumns++;
}

static char *
placeholder_base64(void)
{
	int room = pg_b64_enc_len(strlen(PLACEHOLDER));
	char *text = palloc(room + 1);
	int len = pg_b64_encode((const void *) PLACEHOLDER, strlen(PLACEHOLDER), text, room);

	text[len] = '\0';
	return text;
}

static Decoder *
debezium_open(const DecoderConfig *config)
{
	DebeziumDecoder *self = palloc0(sizeof(DebeziumDecoder));
	int room = Max(config->desc->natts, 1);

	self->base.ops = &debezium_decoder;
	self->null_on_error = config->null_on_error;
	self->unit = config->timestamp_unit;
	self->columns = palloc0(sizeof(ChangeColumn) * room);
	self->by_type = palloc0(sizeof(FieldType) * room);
	self->fields = palloc0(sizeof(char *) * room);
	self->names = palloc(sizeof(Datum) * room);
	self->placeholder_base64 = placeholder_base64();
	json_tree_init(&self->tree, json_tree_palloc);
	json_tree_init(&self->key_tree, json_tree_palloc);
	self->payload = add_field(&self->tree, 0, "payload");
	self->schema = add_field(&self->tree, 0, "schema");
	self->key_payload = add_field(&self->key_tree, 0, "payload");
	self->key_schema = add_field(&self->key_tree, 0, "schema");
	for (int wrapped = 0; wrapped < 2; wrapped++)
	{
		int root = wrapped ? self->payload : 0;

		self->op[wrapped] = add_field(&self->tree, root, "op");
		self->after[wrapped] = add_field(&self->tree, root, "after");
		self->before[wrapped] = add_field(&self->tree, root, "before");
	}
	for (int i = 0; i < config->desc->natts; i++)
		if (config->paths[i] != NULL && !TupleDescAttr(config->desc, i)->attisdropped)
			column_open(self, config, i);
	self->value_types = schema_cache_make(self->fields, self->by_type, self->ncolumns, true);
	self->key_types = schema_cache_make(self->fields, self->by_type, self->ncolumns, false);
	json_tree_finish(&self->tree, &self->scan);
	json_tree_finish(&self->key_tree, &self->key_scan);
	self->scan.check_number = self->key_scan.check_number = column_number_fits_numeric;
	return &self->base;
}

/* ---- values ---- */

static bool
is_placeholder(DebeziumDecoder *self, const Column *column, const JsonToken *token)
{
	static const char array[] = "[\"" PLACEHOLDER "\"]";

	if (token->kind == JSON_STRING)
		return (token->len == strlen(PLACEHOLDER) && memcmp(token->start, PLACEHOLDER, token->len) == 0) ||
			   (column->base_type == BYTEAOID && token->len == strlen(self->placeholder_base64) &&
				memcmp(token->start, self->placeholder_base64, token->len) == 0);
	return token->kind == JSON_ARRAY && token->len == strlen(array) && memcmp(token->start, array, token->len) == 0;
}

static bool
take_placeholder(DebeziumDecoder *self, Column *column, bool *isnull, DecodeError *error)
{
	*isnull = true;
	if (self->unchanged == NULL)
		return decode_fail(error, column, ERRCODE_NO_DATA_FOUND,
						   "the change does not bring this value; declare a column \"unchanged text[]\" to be told");
	self->names[self->nnames++] = CStringGetTextDatum(column->name);
	return column_take_null(column, error);
}

/* The string of a token, escapes resolved. */
static const char *
token_text(const JsonToken *token, size_t *len)
{
	char *text;

	*len = token->len;
	if (!token->escaped)
		return token->start;
	text = palloc(token->len + 1);
	*len = json_unescape(token, text);
	return text;
}

static bool
from_base64(Column *column, FieldType type, const JsonToken *token, Datum *value, DecodeError *error)
{
	size_t len, n;
	const char *text = token_text(token, &len);
	uint8 *bytes = palloc(len / 4 * 3 + 1);

	if (!base64_read(text, len, bytes, &n))
		return decode_fail(error, column, ERRCODE_INVALID_TEXT_REPRESENTATION, "no base64: \"%.*s\"", (int) Min(len, 40), text);
	if (type.encoding == ENCODED_DECIMAL)
		return encoded_decimal(column, bytes, n, type.scale, value, error);
	return encoded_bytes(column, bytes, n, value, error);
}

static bool
image_value(DebeziumDecoder *self, Column *column, FieldType type, const JsonToken *token, Datum *value, bool *isnull, DecodeError *error)
{
	JsonToken digits;
	size_t len;
	const char *text;

	if (is_placeholder(self, column, token))
		return take_placeholder(self, column, isnull, error);
	*isnull = false;
	if (token->kind == JSON_NUMBER)
		return encoded_number(column, type.encoding, token->start, token->len, value, error);
	if (token->kind == JSON_STRING && (type.encoding == ENCODED_DECIMAL || (type.encoding == ENCODED_BYTES && column->base_type == BYTEAOID)))
		return from_base64(column, type, token, value, error);
	if (token->kind == JSON_STRING && column->is_json && type.encoding == ENCODED_JSON)
	{
		text = token_text(token, &len);
		return encoded_json(column, text, len, value, error);
	}
	if (token->kind == JSON_OBJECT && column->base_type == NUMERICOID && schema_variable_decimal(self->value_types, token, &type.scale, &digits))
	{
		type.encoding = ENCODED_DECIMAL;
		return from_base64(column, type, &digits, value, error);
	}
	return json_column_value(column, token, value, isnull, error);
}

static const JsonToken *
token_of(DebeziumDecoder *self, ChangeColumn *c, bool wrapped, bool gone)
{
	return &self->scan.tokens[c->role == ROLE_IMAGE && gone ? c->before[wrapped] : c->after[wrapped]];
}

static bool
take_value(DebeziumDecoder *self, ChangeColumn *c, FieldType type, const JsonToken *token, Datum *values, bool *isnull, DecodeError *error)
{
	Column *column = &c->column;
	Datum *value = &values[column->index];
	bool *null = &isnull[column->index];

	*value = (Datum) 0;
	return column_settle(column, image_value(self, column, type, token, value, null, error), self->null_on_error, value, null, error);
}

static void
take_unchanged(DebeziumDecoder *self, Datum *values, bool *isnull)
{
	Column *column;

	if (self->unchanged == NULL)
		return;
	column = &self->unchanged->column;
	isnull[column->index] = self->nnames == 0 || !column->needed;
	values[column->index] = isnull[column->index] ? (Datum) 0
												  : PointerGetDatum(construct_array(self->names, self->nnames, TEXTOID, -1, false, TYPALIGN_INT));
}

/* ---- events ---- */

static bool
no_event(DecodeError *error, const char *what)
{
	return decode_fail(error, NULL, ERRCODE_INVALID_TEXT_REPRESENTATION, "no change event: %s", what);
}

static bool
check_event(DebeziumDecoder *self, bool wrapped, char *op, DecodeError *error)
{
	const JsonToken *tokens = self->scan.tokens, *word = &tokens[self->op[wrapped]];
	bool gone;

	if (word->kind != JSON_STRING)
		return no_event(error, "field \"op\" is missing");
	if (word->len != 1 || strchr("crudt", word->start[0]) == NULL)
		return decode_fail(error, NULL, ERRCODE_INVALID_TEXT_REPRESENTATION, "unknown change \"%.*s\": \"op\" must be one of c, r, u, d, t",
						   (int) Min(word->len, 40), word->start);
	*op = word->start[0];
	gone = *op == 'd';
	if (*op != 't' && tokens[gone ? self->before[wrapped] : self->after[wrapped]].kind != JSON_OBJECT)
		return no_event(error, gone ? "a delete without field \"before\"; the table needs a replica identity" : "field \"after\" is missing");
	return true;
}

static bool
debezium_decode(Decoder *decoder, const char *buf, size_t len, Datum *values, bool *isnull, DecodeError *error)
{
	DebeziumDecoder *self = (DebeziumDecoder *) decoder;
	const FieldType *types;
	bool wrapped;
	char op = '\0';

	if (!json_scan(&self->scan, buf, len))
		return json_fail(&self->scan, error);
	wrapped = self->scan.tokens[self->payload].kind == JSON_OBJECT;
	if (!check_event(self, wrapped, &op, error))
		return false;
	types = wrapped ? schema_types(self->value_types, &self->scan.tokens[self->schema], error) : self->by_type;
	if (types == NULL)
		return false;
	self->nnames = 0;
	for (int i = 0; i < self->ncolumns; i++)
		if (self->columns[i].role != ROLE_UNCHANGED &&
			!take_value(self, &self->columns[i], types[i], token_of(self, &self->columns[i], wrapped, op == 'd'), values, isnull, error))
			return false;
	take_unchanged(self, values, isnull);
	return true;
}

/* A message without a value: the row of its key is gone. */
static bool
debezium_decode_key(Decoder *decoder, const char *key, size_t len, Datum *values, bool *isnull, DecodeError *error)
{
	static const JsonToken nothing = {.kind = JSON_ABSENT}, gone = {.start = "d", .len = 1, .kind = JSON_STRING};
	DebeziumDecoder *self = (DebeziumDecoder *) decoder;
	const FieldType *types;
	bool wrapped, any = false;

	if (!json_scan(&self->key_scan, key, len))
		return json_fail(&self->key_scan, error);
	wrapped = self->key_scan.tokens[self->key_payload].kind == JSON_OBJECT;
	types = schema_types(self->key_types, &self->key_scan.tokens[self->key_schema], error);
	if (types == NULL)
		return false;
	self->nnames = 0;
	for (int i = 0; i < self->ncolumns; i++)
	{
		ChangeColumn *c = &self->columns[i];
		const JsonToken *token = c->role == ROLE_OP ? &gone : c->role == ROLE_IMAGE ? &self->key_scan.tokens[c->key[wrapped]] : &nothing;

		any = any || (c->role == ROLE_IMAGE && token->kind != JSON_ABSENT);
		if (!take_value(self, c, types[i], token, values, isnull, error))
			return false;
	}
	return any || no_event(error, "a message without value (a tombstone) whose key names none of the columns");
}

const DecoderOps debezium_decoder = {
	.name = "debezium",
	.open = debezium_open,
	.decode = debezium_decode,
	.decode_key = debezium_decode_key,
};
