/*
 * kafka_message.c: a row → a Kafka message. Columns key, value, headers, topic and partition are those parts of it; without a column value the other
 * columns are the value, as one JSON object. Text goes out in UTF-8, bytea as it is, other types as their text.
 */
#include "sink/kafka_message.h"

#include "catalog/pg_type.h"
#include "executor/tuptable.h"
#include "fmgr.h"
#include "mb/pg_wchar.h"
#include "sink/row_json.h"
#include "util/options.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

#define BATCH_HEADER "batch_id"

typedef enum Part
{
	PART_KEY,
	PART_VALUE,
	PART_HEADERS,
	PART_TOPIC,
	PART_PARTITION,
	PART_COUNT
} Part;

static const char *const part_names[] = {"key", "value", "headers", "topic", "partition"};

typedef struct PartColumn
{
	int index; /* in the slot; -1: the query has no such column */
	Oid type;
	FmgrInfo out;
} PartColumn;

struct MessageShape
{
	SinkDef *def;
	PartColumn parts[PART_COUNT];
	RowJson *json;			   /* NULL: there is a column value */
	TupleTableSlot *json_slot; /* the columns that go into it */
	int *json_columns;		   /* their indexes in the row */
	MemoryContext context;	   /* of one message */
	KafkaMessage message;
	MemoryContextCallback release;
};

/* ---- shape ---- */

static int
part_of(const char *column)
{
	for (int i = 0; i < PART_COUNT; i++)
		if (strcmp(part_names[i], column) == 0)
			return i;
	return -1;
}

static void
part_check_type(SinkDef *def, Part part, Oid type)
{
	const char *expected = NULL;

	if (part == PART_HEADERS && type != JSONBOID)
		expected = "jsonb, an array of [name, value] pairs or an object";
	else if (part == PART_PARTITION && type != INT2OID && type != INT4OID && type != INT8OID)
		expected = "an integer";
	else if (part == PART_TOPIC && type != TEXTOID && type != VARCHAROID)
		expected = "text";
	if (expected)
		ereport(ERROR, (errcode(ERRCODE_DATATYPE_MISMATCH),
						errmsg("column \"%s\" of query \"%s\" is of type %s", part_names[part], def->query_name, format_type_be(type)),
						errdetail("For a Kafka message it must be %s.", expected),
						errhint("Cast it, or give the column another name to have it in the message's JSON value.")));
}

static void
parts_find(MessageShape *shape, TupleDesc desc)
{
	for (int i = 0; i < PART_COUNT; i++)
		shape->parts[i].index = -1;
	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);
		int part = part_of(NameStr(att->attname));
		PartColumn *column;
		Oid out;
		bool varlena;

		if (part < 0)
			continue;
		column = &shape->parts[part];
		if (column->index >= 0)
			ereport(ERROR, (errcode(ERRCODE_DUPLICATE_COLUMN),
							errmsg("query \"%s\" has two columns \"%s\"", shape->def->query_name, part_names[part]),
							errdetail("A Kafka message has one %s.", part_names[part])));
		part_check_type(shape->def, part, att->atttypid);
		column->index = i;
		column->type = getBaseType(att->atttypid);
		getTypeOutputInfo(att->atttypid, &out, &varlena);
		fmgr_info(out, &column->out);
	}
}

/* The columns that are no part of the message become its value: there must be some, or a column value, but not both. */
static void
json_prepare(MessageShape *shape, TupleDesc desc)
{
	bool has_value = shape->parts[PART_VALUE].index >= 0;
	TupleDesc json;
	int n = 0;

	shape->json_columns = palloc(sizeof(int) * Max(desc->natts, 1));
	for (int i = 0; i < desc->natts; i++)
	{
		char *name = NameStr(TupleDescAttr(desc, i)->attname);

		if (part_of(name) >= 0)
			continue;
		if (has_value)
			ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
							errmsg("column \"%s\" of query \"%s\" has no place in a Kafka message", name, shape->def->query_name),
							errdetail("The query has a column \"value\", which is the whole value of the message."),
							errhint("Rename the column \"value\" to have all of them in one JSON value, or leave the others away.")));
		shape->json_columns[n++] = i;
	}
	if (has_value)
		return;
	if (n == 0)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("query \"%s\" has no column for the value of its Kafka messages", shape->def->query_name),
						errhint("Add a column \"value\", or others that become its JSON.")));
	json = CreateTemplateTupleDesc(n);
	for (int i = 0; i < n; i++)
		TupleDescCopyEntry(json, i + 1, desc, shape->json_columns[i] + 1);
	shape->json = row_json_make(json);
	shape->json_slot = MakeSingleTupleTableSlot(shape->json->desc, &TTSOpsVirtual);
}

/* Headers are librdkafka's memory: they go with the shape, or with the next message, unless they were handed on. */
static void
headers_release(void *arg)
{
	MessageShape *shape = arg;

	if (shape->message.headers)
		rd_kafka_headers_destroy(shape->message.headers);
	shape->message.headers = NULL;
}

MessageShape *
kafka_message_shape(SinkDef *def, SinkShape *sink_shape)
{
	MessageShape *shape = palloc0(sizeof(MessageShape));

	shape->def = def;
	parts_find(shape, sink_shape->desc);
	json_prepare(shape, sink_shape->desc);
	shape->context = AllocSetContextCreate(CurrentMemoryContext, "stream_ext kafka message", ALLOCSET_DEFAULT_SIZES);
	shape->release.func = headers_release;
	shape->release.arg = shape;
	MemoryContextRegisterResetCallback(CurrentMemoryContext, &shape->release);
	return shape;
}

/* ---- one message ---- */

static void
text_bytes(char *text, size_t length, const void **bytes, size_t *size)
{
	char *utf8 = pg_server_to_any(text, (int) length, PG_UTF8);

	*bytes = utf8;
	*size = utf8 == text ? length : strlen(utf8);
}

/* Key or value: NULL stays NULL. */
static void
part_bytes(MessageShape *shape, Part part, TupleTableSlot *slot, const void **bytes, size_t *size)
{
	PartColumn *column = &shape->parts[part];

	*bytes = NULL;
	*size = 0;
	if (column->index < 0 || slot->tts_isnull[column->index])
		return;
	if (column->type == BYTEAOID || column->type == TEXTOID || column->type == VARCHAROID)
	{
		struct varlena *value = PG_DETOAST_DATUM_PACKED(slot->tts_values[column->index]);

		*bytes = VARDATA_ANY(value);
		*size = VARSIZE_ANY_EXHDR(value);
		if (column->type != BYTEAOID)
			text_bytes(VARDATA_ANY(value), *size, bytes, size);
	}
	else
	{
		char *text = OutputFunctionCall(&column->out, slot->tts_values[column->index]);

		text_bytes(text, strlen(text), bytes, size);
	}
}

static void
headers_refuse(MessageShape *shape)
{
	ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("column \"headers\" of query \"%s\" holds something that is no list of headers", shape->def->query_name),
					errdetail("It must be an array of [name, value] pairs, or an object; a value is text, \\x followed by hexadecimal digits for bytes, or null.")));
}

static bool
hex_bytes(const char *text, size_t length, const void **bytes, size_t *size)
{
	char *to;

	if (length < 2 || length % 2 != 0 || text[0] != '\\' || text[1] != 'x' || strspn(text + 2, "0123456789abcdefABCDEF") < length - 2)
		return false;
	to = palloc(length / 2);
	*size = hex_decode(text + 2, length - 2, to);
	*bytes = to;
	return true;
}

static void
header_add(MessageShape *shape, rd_kafka_headers_t *headers, const char *name, JsonbValue *value)
{
	const void *bytes = NULL;
	size_t size = 0;
	char *text;

	if (value->type == jbvBinary)
		headers_refuse(shape);
	if (strcmp(name, BATCH_HEADER) == 0)
		return; /* of the query the message came from; ours stands for the sender now */
	if (value->type == jbvString)
	{
		text = pnstrdup(value->val.string.val, value->val.string.len);
		if (!hex_bytes(text, value->val.string.len, &bytes, &size))
			text_bytes(text, value->val.string.len, &bytes, &size);
	}
	else if (value->type != jbvNull)
	{
		text = value->type == jbvBool ? (value->val.boolean ? "true" : "false")
									  : DatumGetCString(DirectFunctionCall1(numeric_out, NumericGetDatum(value->val.numeric)));
		text_bytes(text, strlen(text), &bytes, &size);
	}
	rd_kafka_header_add(headers, name, -1, bytes, size);
}

static const char *
header_name(MessageShape *shape, JsonbValue *v)
{
	char *name;
	const void *bytes;
	size_t size;

	if (v == NULL || v->type != jbvString)
		headers_refuse(shape);
	name = pnstrdup(v->val.string.val, v->val.string.len);
	text_bytes(name, v->val.string.len, &bytes, &size);
	return bytes;
}

static void
headers_from_array(MessageShape *shape, rd_kafka_headers_t *headers, JsonbContainer *array)
{
	for (uint32 i = 0; i < JsonContainerSize(array); i++)
	{
		JsonbValue *pair = getIthJsonbValueFromContainer(array, i);

		if (pair->type != jbvBinary || !JsonContainerIsArray(pair->val.binary.data) || JsonContainerSize(pair->val.binary.data) != 2)
			headers_refuse(shape);
		header_add(shape, headers, header_name(shape, getIthJsonbValueFromContainer(pair->val.binary.data, 0)),
				   getIthJsonbValueFromContainer(pair->val.binary.data, 1));
	}
}

static void
headers_from_object(MessageShape *shape, rd_kafka_headers_t *headers, JsonbContainer *object)
{
	JsonbIterator *it = JsonbIteratorInit(object);
	JsonbValue v;
	JsonbIteratorToken token;

	while ((token = JsonbIteratorNext(&it, &v, true)) != WJB_DONE)
		if (token == WJB_KEY)
		{
			const char *name = header_name(shape, &v);

			JsonbIteratorNext(&it, &v, true);
			header_add(shape, headers, name, &v);
		}
}

static void
headers_make(MessageShape *shape, TupleTableSlot *slot, rd_kafka_headers_t *headers)
{
	int index = shape->parts[PART_HEADERS].index;
	Jsonb *json;

	if (index < 0 || slot->tts_isnull[index])
		return;
	json = DatumGetJsonbP(slot->tts_values[index]);
	if (JB_ROOT_IS_OBJECT(json))
		headers_from_object(shape, headers, &json->root);
	else if (JB_ROOT_IS_ARRAY(json) && !JB_ROOT_IS_SCALAR(json))
		headers_from_array(shape, headers, &json->root);
	else
		headers_refuse(shape);
}

static int32
partition_number(MessageShape *shape, TupleTableSlot *slot)
{
	PartColumn *column = &shape->parts[PART_PARTITION];
	Datum value;
	int64 number;

	if (column->index < 0 || slot->tts_isnull[column->index])
		return RD_KAFKA_PARTITION_UA;
	value = slot->tts_values[column->index];
	number = column->type == INT8OID ? DatumGetInt64(value) : column->type == INT4OID ? DatumGetInt32(value) : DatumGetInt16(value);
	if (number < 0 || number > PG_INT32_MAX)
		ereport(ERROR, (errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE), errmsg("column \"partition\" of query \"%s\" is out of range: " INT64_FORMAT, shape->def->query_name, number),
						errhint("NULL lets the key decide.")));
	return (int32) number;
}

static void
json_value(MessageShape *shape, TupleTableSlot *slot, KafkaMessage *message)
{
	TupleTableSlot *json = shape->json_slot;
	text *value;

	ExecClearTuple(json);
	for (int i = 0; i < json->tts_tupleDescriptor->natts; i++)
	{
		json->tts_values[i] = slot->tts_values[shape->json_columns[i]];
		json->tts_isnull[i] = slot->tts_isnull[shape->json_columns[i]];
	}
	ExecStoreVirtualTuple(json);
	value = DatumGetTextPP(row_json_text(shape->json, json));
	text_bytes(VARDATA_ANY(value), VARSIZE_ANY_EXHDR(value), &message->value, &message->value_size);
}

KafkaMessage *
kafka_message_make(MessageShape *shape, TupleTableSlot *slot, const char *batch_id)
{
	int topic = shape->parts[PART_TOPIC].index;
	KafkaMessage *message = &shape->message;
	MemoryContext old;

	headers_release(shape);
	MemoryContextReset(shape->context);
	old = MemoryContextSwitchTo(shape->context);
	slot_getallattrs(slot);
	message->topic = topic >= 0 && !slot->tts_isnull[topic] ? TextDatumGetCString(slot->tts_values[topic]) : NULL;
	message->partition = partition_number(shape, slot);
	part_bytes(shape, PART_KEY, slot, &message->key, &message->key_size);
	if (shape->json)
		json_value(shape, slot, message);
	else
		part_bytes(shape, PART_VALUE, slot, &message->value, &message->value_size);
	message->headers = rd_kafka_headers_new(4);
	headers_make(shape, slot, message->headers);
	rd_kafka_header_add(message->headers, BATCH_HEADER, -1, batch_id, -1);
	MemoryContextSwitchTo(old);
	return message;
}
