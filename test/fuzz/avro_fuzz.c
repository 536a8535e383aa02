/*
 * avro_fuzz.c: libFuzzer target for the reader of Avro's binary form. The first bytes of the input make a schema of any shape, types that contain
 * themselves included, the rest is the message. What is read must lie inside it; a second look at each document must find what the first found.
 */
#include "fuzz.h"

#include "format/avro_scan.h"
#include "format/utf8.h"

#define MAX_SCHEMAS 64

typedef struct Maker
{
	const uint8_t *p, *end;
	AvroSchema *made[MAX_SCHEMAS];
	int nmade, depth;
} Maker;

/* Memory of one input. */
static void *blocks;

static void *
take(size_t size)
{
	void **block = calloc(1, sizeof(void *) + 8 + size);

	*block = blocks;
	blocks = block;
	return (char *) block + 16;
}

static uint8_t
next_byte(Maker *maker)
{
	return maker->p < maker->end ? *maker->p++ : 0;
}

static AvroSchema *
make_schema(Maker *maker, bool union_allowed)
{
	static const char *const names[] = {"a", "b", "c", "d"};
	uint8_t byte = next_byte(maker);
	AvroSchema *schema;

	if (byte >= 240 && maker->nmade > 0) /* a named type again, perhaps the one we are in */
	{
		schema = maker->made[byte % maker->nmade];
		if (schema->type == AVRO_RECORD)
			return schema;
	}
	schema = take(sizeof(AvroSchema));
	schema->type = byte % (maker->depth > 6 || maker->nmade >= MAX_SCHEMAS ? AVRO_ARRAY : AVRO_RECORD + 1);
	if (schema->type == AVRO_UNION && !union_allowed)
		schema->type = AVRO_LONG;
	if (maker->nmade < MAX_SCHEMAS)
		maker->made[maker->nmade++] = schema;
	schema->size = schema->type == AVRO_FIXED ? next_byte(maker) % 20 : 0;
	if (schema->type == AVRO_ENUM)
		schema->count = next_byte(maker) % 5;
	if (schema->type < AVRO_ARRAY)
		return schema;
	schema->children = take(sizeof(AvroSchema *) * 4);
	schema->names = take(sizeof(char *) * 4);
	schema->count = schema->type == AVRO_ARRAY || schema->type == AVRO_MAP ? 1 : byte / 16 % 4;
	maker->depth++;
	for (int i = 0; i < schema->count; i++)
	{
		schema->names[i] = names[(i + byte) % 4];
		schema->children[i] = make_schema(maker, schema->type != AVRO_UNION);
	}
	maker->depth--;
	return schema;
}

/* Counts the scalars of a value that has been read once. */
static void
second_look(AvroScan *scan, const AvroSchema *schema, int64_t *scalars)
{
	AvroSchema text = {.type = AVRO_STRING};
	AvroToken token = {0};
	int64_t count;

	schema = avro_read_branch(scan, schema);
	CHECK(schema != NULL);
	if (schema->type == AVRO_RECORD)
	{
		for (int i = 0; i < schema->count; i++)
			second_look(scan, schema->children[i], scalars);
		return;
	}
	if (schema->type < AVRO_ARRAY)
	{
		CHECK(avro_read_scalar(scan, schema, &token));
		CHECK(schema->type != AVRO_STRING || utf8_invalid(token.start, token.len) == NULL);
		++*scalars;
		return;
	}
	for (;;)
	{
		CHECK(avro_read_block(scan, &count));
		if (count == 0)
			return;
		while (count-- > 0)
		{
			if (schema->type == AVRO_MAP)
				CHECK(avro_read_scalar(scan, &text, &token) && utf8_invalid(token.start, token.len) == NULL);
			second_look(scan, schema->children[0], scalars);
		}
	}
}

static void
check_token(const AvroToken *token, const char *buf, size_t len)
{
	AvroScan again = {.p = token->start};
	int64_t scalars = 0;

	if (token->schema == NULL || token->schema->type == AVRO_NULL)
		return;
	CHECK(token->schema->type != AVRO_UNION);
	CHECK(token->start >= buf && token->start + token->len <= buf + len);
	CHECK(token->schema->type != AVRO_ENUM || (token->number >= 0 && token->number < token->schema->count));
	CHECK(token->schema->type != AVRO_INT || (token->number >= INT32_MIN && token->number <= INT32_MAX));
	CHECK(token->schema->type != AVRO_STRING || utf8_invalid(token->start, token->len) == NULL);
	if (token->schema->type < AVRO_ARRAY)
		return;
	again.begin = again.p;
	again.end = again.p + token->len;
	second_look(&again, token->schema, &scalars);
	CHECK(again.p == again.end);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	Maker maker = {.p = data};
	JsonTree tree;
	JsonScan unused;
	AvroScan scan = {0};
	AvroSchema *schema;
	char *buf;
	size_t len;
	int inner;

	if (size == 0)
		return 0;
	maker.end = data + (size > 24 ? 24 : size);
	json_tree_init(&tree, take);
	json_tree_add(&tree, 0, "a", 1);
	inner = json_tree_add(&tree, 0, "b", 1);
	json_tree_add(&tree, inner, "a", 1);
	json_tree_add(&tree, json_tree_add(&tree, inner, "c", 1), "d", 1);
	json_tree_finish(&tree, &unused);
	schema = make_schema(&maker, true);
	len = data + size - maker.p;
	buf = malloc(len + 1);
	memcpy(buf, maker.p, len);
	avro_resolve(schema, &tree, 0, take);
	scan.tree = &tree;
	scan.tokens = take(sizeof(AvroToken) * tree.nnodes);
	if (avro_scan(&scan, schema, buf, len))
		for (int i = 1; i < tree.nnodes; i++)
			check_token(&scan.tokens[i], buf, len);
	else
	{
		CHECK(scan.where >= buf && scan.where <= buf + len);
		CHECK(avro_fault_text(scan.fault)[0] != '\0');
	}
	free(buf);
	while (blocks)
	{
		void *block = blocks;

		blocks = *(void **) block;
		free(block);
	}
	return 0;
}
