/*
 * avro_scan.c: Avro's binary form, read once: wanted fields become tokens, all else is stepped over.
 * Danger: every length and count comes from the message. Nothing is read behind the end, no count is trusted, and types that contain
 * themselves without a byte between are stopped by their depth.
 */
#include "format/avro_scan.h"

#include <string.h>

#include "format/utf8.h"

static const char *const fault_texts[] = {
	[AVRO_OK] = "nothing",
	[AVRO_END] = "the message ends too early",
	[AVRO_VARINT] = "a whole number is out of range",
	[AVRO_LENGTH] = "a length is negative",
	[AVRO_FLAG] = "a boolean is neither 0 nor 1",
	[AVRO_BRANCH] = "a union has no such branch",
	[AVRO_SYMBOL] = "an enum has no such symbol",
	[AVRO_ENCODING] = "a string is no UTF-8, or has a zero byte",
	[AVRO_DEPTH] = "values are nested too deeply",
	[AVRO_ITEMS] = "too many items without content",
	[AVRO_UNREAD] = "unread bytes follow the value",
};

const char *
avro_fault_text(AvroFault fault)
{
	return fault_texts[fault];
}

static bool
fail(AvroScan *scan, AvroFault fault)
{
	scan->fault = fault;
	scan->where = scan->p;
	return false;
}

/* ---- scalars ---- */

/* Zigzag, seven bits a byte, least first. */
static inline bool
read_long(AvroScan *scan, int64_t *value)
{
	uint64_t bits = 0;
	int shift = 0;
	const char *p = scan->p;

	for (;;)
	{
		uint8_t byte;

		if (p == scan->end)
			return fail(scan, AVRO_END);
		byte = (uint8_t) *p++;
		if (shift == 63 && byte > 1)
			return fail(scan, AVRO_VARINT);
		bits |= (uint64_t) (byte & 0x7F) << shift;
		if (byte < 0x80)
			break;
		shift += 7;
	}
	*value = (int64_t) (bits >> 1) ^ -(int64_t) (bits & 1);
	scan->p = p;
	return true;
}

static bool
read_int(AvroScan *scan, int64_t *value)
{
	const char *start = scan->p;

	if (!read_long(scan, value))
		return false;
	if (*value >= INT32_MIN && *value <= INT32_MAX)
		return true;
	scan->p = start;
	return fail(scan, AVRO_VARINT);
}

static bool
read_bytes(AvroScan *scan, size_t size, AvroToken *token)
{
	if ((size_t) (scan->end - scan->p) < size)
		return fail(scan, AVRO_END);
	token->start = scan->p;
	token->len = size;
	scan->p += size;
	return true;
}

static bool
read_counted(AvroScan *scan, AvroToken *token)
{
	int64_t size;

	if (!read_long(scan, &size))
		return false;
	if (size < 0)
		return fail(scan, AVRO_LENGTH);
	if ((uint64_t) size > (uint64_t) (scan->end - scan->p))
		return fail(scan, AVRO_END);
	return read_bytes(scan, (size_t) size, token);
}

static bool
read_boolean(AvroScan *scan, AvroToken *token)
{
	if (!read_bytes(scan, 1, token))
		return false;
	token->number = *token->start;
	if (token->number == 0 || token->number == 1)
		return true;
	scan->p--;
	return fail(scan, AVRO_FLAG);
}

static bool
read_real(AvroScan *scan, bool is_double, AvroToken *token)
{
	uint64_t bits = 0;
	uint32_t half;
	float single;

	if (!read_bytes(scan, is_double ? 8 : 4, token))
		return false;
	for (size_t i = token->len; i-- > 0;)
		bits = bits << 8 | (uint8_t) token->start[i];
	half = (uint32_t) bits;
	if (is_double)
		memcpy(&token->real, &bits, sizeof(double));
	else
	{
		memcpy(&single, &half, sizeof(float));
		token->real = single;
	}
	return true;
}

static bool
read_symbol(AvroScan *scan, const AvroSchema *schema, AvroToken *token)
{
	const char *start = scan->p;

	if (!read_int(scan, &token->number))
		return false;
	if (token->number >= 0 && token->number < schema->count)
		return true;
	scan->p = start;
	return fail(scan, AVRO_SYMBOL);
}

bool
avro_read_scalar(AvroScan *scan, const AvroSchema *schema, AvroToken *token)
{
	token->schema = schema;
	token->start = scan->p;
	switch (schema->type)
	{
		case AVRO_NULL:
			return true;
		case AVRO_BOOLEAN:
			return read_boolean(scan, token);
		case AVRO_INT:
			return read_int(scan, &token->number);
		case AVRO_LONG:
			return read_long(scan, &token->number);
		case AVRO_FLOAT:
		case AVRO_DOUBLE:
			return read_real(scan, schema->type == AVRO_DOUBLE, token);
		case AVRO_BYTES:
		case AVRO_STRING:
			return read_counted(scan, token);
		case AVRO_FIXED:
			return read_bytes(scan, schema->size, token);
		case AVRO_ENUM:
			return read_symbol(scan, schema, token);
		default:
			return false;
	}
}

const AvroSchema *
avro_read_branch(AvroScan *scan, const AvroSchema *schema)
{
	while (schema->type == AVRO_UNION)
	{
		const char *start = scan->p;
		int64_t branch;

		if (!read_long(scan, &branch))
			return NULL;
		if (branch < 0 || branch >= schema->count)
		{
			scan->p = start;
			fail(scan, AVRO_BRANCH);
			return NULL;
		}
		schema = schema->children[branch];
	}
	return schema;
}

/* A negative count has the block's size in bytes behind it. */
bool
avro_read_block(AvroScan *scan, int64_t *count)
{
	int64_t size;

	if (!read_long(scan, count))
		return false;
	if (*count >= 0)
		return true;
	if (*count == INT64_MIN)
		return fail(scan, AVRO_LENGTH);
	*count = -*count;
	if (!read_long(scan, &size))
		return false;
	return size >= 0 || fail(scan, AVRO_LENGTH);
}

/* ---- the walk ---- */

/* Instead of a node. */
#define NOBODY (-1) /* wants it */
#define PART (-2)	/* of something wanted as a whole */

static bool scan_value(AvroScan *scan, const AvroSchema *schema, int node);

static const int *
fields_for(const AvroSchema *record, int node)
{
	for (AvroFields *fields = node < 0 ? NULL : record->fields; fields; fields = fields->next)
		if (fields->node == node)
			return fields->children;
	return NULL;
}

/*
 * Fields nobody wants by themselves: of the message as a whole they are stepped over; of a record inside it that is wanted they belong to that,
 * and what will be written as a document must be text.
 */
static bool
scan_record(AvroScan *scan, const AvroSchema *schema, int node)
{
	const int *children = fields_for(schema, node);
	int others = node == PART || node > 0 ? PART : NOBODY;

	for (int i = 0; i < schema->count; i++)
		if (!scan_value(scan, schema->children[i], children && children[i] >= 0 ? children[i] : others))
			return false;
	return true;
}

/* A key of a map that somebody wants, by its name. */
static int
child_named(const JsonTree *tree, int node, const AvroToken *key)
{
	int child = node < 0 ? -1 : tree->nodes[node].first_child;

	while (child >= 0 && (tree->nodes[child].name_len != key->len || memcmp(tree->nodes[child].name, key->start, key->len) != 0))
		child = tree->nodes[child].next;
	return child;
}

static bool
scan_items(AvroScan *scan, const AvroSchema *schema, int node)
{
	int others = node == NOBODY ? NOBODY : PART;
	int64_t count;
	AvroToken key;

	for (;;)
	{
		if (!avro_read_block(scan, &count))
			return false;
		if (count == 0)
			return true;
		while (count-- > 0)
		{
			int child = -1;

			if (schema->type == AVRO_MAP)
			{
				if (!read_counted(scan, &key))
					return false;
				if (node != NOBODY && utf8_invalid(key.start, key.len))
					return fail(scan, AVRO_ENCODING);
				child = child_named(scan->tree, node, &key);
			}
			if (!scan_value(scan, schema->children[0], child >= 0 ? child : others))
				return false;
		}
	}
}

static bool
scan_complex(AvroScan *scan, const AvroSchema *schema, int node)
{
	const char *start = scan->p;

	if (++scan->depth > AVRO_MAX_DEPTH)
		return fail(scan, AVRO_DEPTH);
	if (!(schema->type == AVRO_RECORD ? scan_record(scan, schema, node) : scan_items(scan, schema, node)))
		return false;
	scan->depth--;
	if (node >= 0)
		scan->tokens[node] = (AvroToken){.schema = schema, .start = start, .len = scan->p - start};
	return true;
}

static bool
scan_value(AvroScan *scan, const AvroSchema *schema, int node)
{
	AvroToken token = {0};

	schema = avro_read_branch(scan, schema);
	if (schema == NULL)
		return false;
	if (--scan->steps < 0)
		return fail(scan, AVRO_ITEMS);
	if (schema->type >= AVRO_ARRAY)
		return scan_complex(scan, schema, node);
	if (!avro_read_scalar(scan, schema, &token))
		return false;
	if (node == NOBODY)
		return true;
	if (schema->type == AVRO_STRING && utf8_invalid(token.start, token.len))
	{
		scan->p = token.start;
		return fail(scan, AVRO_ENCODING);
	}
	if (node >= 0)
		scan->tokens[node] = token;
	return true;
}

bool
avro_scan(AvroScan *scan, const AvroSchema *schema, const char *buf, size_t len)
{
	memset(scan->tokens, 0, sizeof(AvroToken) * scan->tree->nnodes);
	scan->p = scan->begin = buf;
	scan->end = buf + len;
	scan->steps = (int64_t) len * 8 + 10000;
	scan->depth = 0;
	scan->fault = AVRO_OK;
	if (!scan_value(scan, schema, 0))
		return false;
	return scan->p == scan->end || fail(scan, AVRO_UNREAD);
}

/* ---- wanted fields ---- */

static int
node_named(const JsonTree *tree, int parent, const char *name)
{
	int child = tree->nodes[parent].first_child;

	while (child >= 0 && strcmp(tree->nodes[child].name, name) != 0)
		child = tree->nodes[child].next;
	return child;
}

void
avro_resolve(AvroSchema *schema, const JsonTree *tree, int node, void *(*alloc)(size_t size))
{
	AvroFields *fields;

	if (schema->type == AVRO_UNION)
		for (int i = 0; i < schema->count; i++)
			if (schema->children[i]->type != AVRO_UNION)
				avro_resolve(schema->children[i], tree, node, alloc);
	if (schema->type == AVRO_MAP)
		for (int child = tree->nodes[node].first_child; child >= 0; child = tree->nodes[child].next)
			avro_resolve(schema->children[0], tree, child, alloc);
	if (schema->type != AVRO_RECORD || fields_for(schema, node))
		return;
	fields = alloc(sizeof(AvroFields));
	fields->node = node;
	fields->children = alloc(sizeof(int) * (schema->count + 1));
	fields->next = schema->fields;
	schema->fields = fields;
	for (int i = 0; i < schema->count; i++)
	{
		fields->children[i] = node_named(tree, node, schema->names[i]);
		if (fields->children[i] >= 0)
			avro_resolve(schema->children[i], tree, fields->children[i], alloc);
	}
}
