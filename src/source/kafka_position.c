/*
 * kafka_position.c: positions as the offset log keeps them. One topic: {"0": next, "1": next}; several: {"topic":
 * {"0": next}}: the next message to read of each partition. Beside them, under a name no topic can have, one message
 * of each topic that was read: {"@seen": {"topic": {"partition": 0, "offset": 5, "timestamp": 1772359200000}}}.
 * Danger: a partition the log names and the broker does not have is lost data, never silently skipped.
 */
#include "source/kafka.h"

#include "utils/builtins.h"
#include "utils/numeric.h"

#define SEEN_KEY "@seen"
#define LANES_KEY "@lanes"

static int64
jsonb_value_int64(const JsonbValue *value, const char *what, const char *source)
{
	if (value->type == jbvNumeric)
	{
		bool failed = false;
		int32 small = numeric_int4_opt_error(value->val.numeric, &failed);

		if (!failed)
			return small;
		return DatumGetInt64(DirectFunctionCall1(numeric_int8, NumericGetDatum(value->val.numeric)));
	}
	ereport(ERROR, errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			errmsg("%s of source %s holds an offset that is no number", what, source));
}

static int
partition_find(KafkaReader *reader, int topic, int32 id)
{
	for (int i = 0; i < reader->npartitions; i++)
		if (reader->partitions[i]->topic->number == topic && reader->partitions[i]->id == id)
			return i;
	return -1;
}

static int
topic_find(KafkaReader *reader, const char *name, int len)
{
	for (int i = 0; i < reader->ntopics; i++)
		if (strlen(reader->topics[i]->name) == len && memcmp(reader->topics[i]->name, name, len) == 0)
			return i;
	return -1;
}

/* A partition our position knows, and the broker does not: topic deleted, or made again with fewer. */
static void
partition_is_gone(KafkaReader *reader, const char *topic, const char *partition, int64 offset)
{
	bool fail = reader->options->fail_on_data_loss;

	ereport(
		fail ? ERROR : WARNING, errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
		errmsg("source %s: topic \"%s\" has no partition %s any more", reader->base.def->name, topic, partition),
		errdetail("The query has read it up to offset %lld; the topic seems to have been deleted or created again.",
				  (long long) offset),
		fail
			? errhint(
				  "Reset the query, or set the source's option fail_on_data_loss to false to go on with what is there.")
			: 0);
}

/* One that a pattern had found. */
static void
topic_is_gone(KafkaReader *reader, const char *topic)
{
	bool fail = reader->options->fail_on_data_loss;

	ereport(fail ? ERROR : WARNING, errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			errmsg("topic \"%s\" of source %s does not exist any more", topic, reader->base.def->name),
			fail ? errhint("Create it again and reset the query, or set the source's option fail_on_data_loss to false "
						   "to go on without it.")
				 : 0);
}

/* {"0": 5, …} of one topic into offsets. */
static void
partitions_read(KafkaReader *reader, int topic, JsonbContainer *object, int64 *offsets, const char *what)
{
	JsonbIterator *it = JsonbIteratorInit(object);
	JsonbValue key, value;
	JsonbIteratorToken token;

	while ((token = JsonbIteratorNext(&it, &key, true)) != WJB_DONE)
	{
		char *name, *end;
		int slot;
		long id;
		int64 offset;

		if (token != WJB_KEY)
			continue;
		(void) JsonbIteratorNext(&it, &value, true);
		name = pnstrdup(key.val.string.val, key.val.string.len);
		if (name[0] == '@')
			continue;
		id = strtol(name, &end, 10);
		if (end == name || *end || id < 0)
			ereport(ERROR, errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					errmsg("%s of source %s names partition \"%s\"", what, reader->base.def->name, name),
					errdetail("A partition is a number from 0."));
		offset = jsonb_value_int64(&value, what, reader->base.def->name);
		slot = partition_find(reader, topic, (int32) id);
		if (slot >= 0)
			offsets[slot] = offset;
		else
			partition_is_gone(reader, reader->topics[topic]->name, name, offset);
	}
}

static int64 *
object_read(KafkaReader *reader, Jsonb *object, const char *what, int64 missing)
{
	int64 *offsets = palloc(sizeof(int64) * Max(reader->npartitions, 1));
	JsonbIterator *it;
	JsonbValue key, value;
	JsonbIteratorToken token;

	for (int i = 0; i < reader->npartitions; i++)
		offsets[i] = missing;
	if (!JB_ROOT_IS_OBJECT(object))
		ereport(ERROR, errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				errmsg("%s of source %s is no JSON object", what, reader->base.def->name));
	if (!kafka_is_nested(reader))
	{
		JsonbValue *nested =
			getKeyJsonValueFromContainer(&object->root, reader->topics[0]->name, strlen(reader->topics[0]->name), NULL);

		if (!nested || nested->type != jbvBinary)
		{
			partitions_read(reader, 0, &object->root, offsets, what);
			return offsets;
		}
	}
	it = JsonbIteratorInit(&object->root);
	while ((token = JsonbIteratorNext(&it, &key, true)) != WJB_DONE)
	{
		int topic;

		if (token != WJB_KEY)
			continue;
		(void) JsonbIteratorNext(&it, &value, true);
		if (key.val.string.len > 0 && key.val.string.val[0] == '@')
			continue;
		topic = topic_find(reader, key.val.string.val, key.val.string.len);
		if (topic < 0 && value.type == jbvBinary && reader->options->pattern)
		{
			topic_is_gone(reader, pnstrdup(key.val.string.val, key.val.string.len));
			continue;
		}
		if (topic < 0 || value.type != jbvBinary)
			ereport(ERROR, errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					errmsg("%s of source %s names topic \"%s\"", what, reader->base.def->name,
						   pnstrdup(key.val.string.val, key.val.string.len)),
					errdetail("With several topics, each topic of the source has an object of its own: {\"topic\": "
							  "{\"0\": 23}}."));
		partitions_read(reader, topic, value.val.binary.data, offsets, what);
	}
	return offsets;
}

static JsonbContainer *
member_object(JsonbContainer *object, const char *key)
{
	JsonbValue *value = object ? getKeyJsonValueFromContainer(object, key, strlen(key), NULL) : NULL;

	return value && value->type == jbvBinary && JsonContainerIsObject(value->val.binary.data) ? value->val.binary.data
																							  : NULL;
}

static int64
member_int64(KafkaReader *reader, JsonbContainer *object, const char *key)
{
	JsonbValue *value = getKeyJsonValueFromContainer(object, key, strlen(key), NULL);

	return value ? jsonb_value_int64(value, "the position", reader->base.def->name) : -1;
}

/* Topics found by a pattern keep the number they had in the log; new ones get the next, by name. */
static void
topics_number(KafkaReader *reader, Position *position)
{
	JsonbContainer *lanes = position && JB_ROOT_IS_OBJECT(position) ? member_object(&position->root, LANES_KEY) : NULL;
	int next = 0;

	for (int i = 0; i < reader->ntopics; i++)
	{
		KafkaTopic *topic = reader->topics[i];
		int64 number = lanes ? member_int64(reader, lanes, topic->name) : -1;

		if (number >= 0)
			topic->lane_number = (int) number;
		next = Max(next, topic->lane_number + 1);
	}
	for (int i = 0; i < reader->npartitions; i++)
		if (reader->partitions[i]->topic->lane_number < 0)
			reader->partitions[i]->topic->lane_number = next++;
}

int64 *
kafka_position_read(KafkaReader *reader, Position *position)
{
	int64 *offsets;

	if (reader->options->pattern)
		topics_number(reader, position);
	if (position)
		return object_read(reader, position, "the position", KAFKA_NOT_FOUND);
	offsets = palloc(sizeof(int64) * Max(reader->npartitions, 1));
	for (int i = 0; i < reader->npartitions; i++)
		offsets[i] = KAFKA_NOT_FOUND;
	return offsets;
}

int64 *
kafka_starting_offsets(KafkaReader *reader)
{
	int64 *offsets = object_read(reader, reader->options->starting_offsets, "option starting_offsets", PG_INT64_MIN);

	for (int i = 0; i < reader->npartitions; i++)
	{
		KafkaPartition *partition = reader->partitions[i];

		if (offsets[i] == PG_INT64_MIN)
			ereport(ERROR, errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					errmsg("option starting_offsets of source %s lacks partition %d of topic \"%s\"",
						   reader->base.def->name, partition->id, partition->topic->name),
					errhint("Name every partition; -2 stands for the earliest offset, -1 for the latest."));
	}
	return offsets;
}

static void
push_key(JsonbParseState **state, const char *key)
{
	JsonbValue value = {.type = jbvString};

	value.val.string.val = (char *) key;
	value.val.string.len = strlen(key);
	pushJsonbValue(state, WJB_KEY, &value);
}

static void
push_int64(JsonbParseState **state, const char *key, int64 number)
{
	JsonbValue value = {.type = jbvNumeric};

	push_key(state, key);
	value.val.numeric = int64_to_numeric(number);
	pushJsonbValue(state, WJB_VALUE, &value);
}

static void
push_text(JsonbParseState **state, const char *key, const char *text)
{
	JsonbValue value = {.type = jbvString};

	push_key(state, key);
	value.val.string.val = (char *) text;
	value.val.string.len = strlen(text);
	pushJsonbValue(state, WJB_VALUE, &value);
}

static void
push_evidence(JsonbParseState **state, KafkaReader *reader, const KafkaEvidence *evidence)
{
	bool any = false;

	for (int i = 0; i < reader->ntopics; i++)
	{
		if (evidence[i].offset < 0)
			continue;
		if (!any)
		{
			push_key(state, SEEN_KEY);
			pushJsonbValue(state, WJB_BEGIN_OBJECT, NULL);
		}
		any = true;
		push_key(state, reader->topics[i]->name);
		pushJsonbValue(state, WJB_BEGIN_OBJECT, NULL);
		push_int64(state, "partition", evidence[i].partition);
		push_int64(state, "offset", evidence[i].offset);
		push_int64(state, "timestamp", evidence[i].timestamp_ms);
		pushJsonbValue(state, WJB_END_OBJECT, NULL);
	}
	if (any)
		pushJsonbValue(state, WJB_END_OBJECT, NULL);
}

static void
push_lanes(JsonbParseState **state, KafkaReader *reader)
{
	push_key(state, LANES_KEY);
	pushJsonbValue(state, WJB_BEGIN_OBJECT, NULL);
	for (int i = 0; i < reader->ntopics; i++)
		if (reader->topics[i]->lane_number >= 0)
			push_int64(state, reader->topics[i]->name, reader->topics[i]->lane_number);
	pushJsonbValue(state, WJB_END_OBJECT, NULL);
}

static Position *
position_build(KafkaReader *reader, const int64 *offsets, const KafkaEvidence *evidence, bool lanes)
{
	JsonbParseState *state = NULL;
	bool nested = kafka_is_nested(reader);
	int topic = -1;

	pushJsonbValue(&state, WJB_BEGIN_OBJECT, NULL);
	for (int i = 0; i < reader->npartitions; i++)
	{
		KafkaPartition *partition = reader->partitions[i];

		if (nested && partition->topic->number != topic)
		{
			if (topic >= 0)
				pushJsonbValue(&state, WJB_END_OBJECT, NULL);
			topic = partition->topic->number;
			push_key(&state, partition->topic->name);
			pushJsonbValue(&state, WJB_BEGIN_OBJECT, NULL);
		}
		if (offsets[i] >= 0)
			push_int64(&state, psprintf("%d", partition->id), offsets[i]);
	}
	if (topic >= 0)
		pushJsonbValue(&state, WJB_END_OBJECT, NULL);
	if (lanes)
		push_lanes(&state, reader);
	if (evidence)
		push_evidence(&state, reader, evidence);
	return JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_OBJECT, NULL));
}

Position *
kafka_position_make(KafkaReader *reader, const int64 *offsets, const KafkaEvidence *evidence)
{
	return position_build(reader, offsets, evidence, reader->options->pattern != NULL);
}

Position *
kafka_position_show(KafkaReader *reader, const int64 *offsets)
{
	return position_build(reader, offsets, NULL, kafka_is_nested(reader));
}

KafkaEvidence *
kafka_position_evidence(KafkaReader *reader, Position *position)
{
	KafkaEvidence *evidence = palloc(sizeof(KafkaEvidence) * reader->ntopics);
	JsonbContainer *seen = position && JB_ROOT_IS_OBJECT(position) ? member_object(&position->root, SEEN_KEY) : NULL;

	for (int i = 0; i < reader->ntopics; i++)
	{
		JsonbContainer *object = member_object(seen, reader->topics[i]->name);

		evidence[i] = (KafkaEvidence){.offset = -1};
		if (!object)
			continue;
		evidence[i].partition = (int32) member_int64(reader, object, "partition");
		evidence[i].offset = member_int64(reader, object, "offset");
		evidence[i].timestamp_ms = member_int64(reader, object, "timestamp");
	}
	return evidence;
}

static JsonbParseState *
place_begin(KafkaPartition *partition)
{
	JsonbParseState *state = NULL;

	pushJsonbValue(&state, WJB_BEGIN_OBJECT, NULL);
	push_text(&state, "topic", partition->topic->name);
	push_int64(&state, "partition", partition->id);
	return state;
}

static char *
bytes_to_hex(const void *bytes, size_t len)
{
	char *hex = palloc(len * 2 + 3);

	hex[0] = '\\';
	hex[1] = 'x';
	hex[2 + hex_encode(bytes, len, hex + 2)] = '\0';
	return hex;
}

/* Where a message is, for dead letters: topic, partition, offset, and its key as bytea would show it. */
Jsonb *
kafka_message_position(KafkaPartition *partition, const rd_kafka_message_t *message)
{
	JsonbParseState *state = place_begin(partition);

	push_int64(&state, "offset", message->offset);
	if (message->key)
		push_text(&state, "key", bytes_to_hex(message->key, message->key_len));
	return JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_OBJECT, NULL));
}

/* A range that is gone, for the event kept of it. */
Jsonb *
kafka_loss_position(KafkaPartition *partition, int64 from, int64 to)
{
	JsonbParseState *state = place_begin(partition);

	push_int64(&state, "lost_from", from);
	push_int64(&state, "lost_to", to);
	push_int64(&state, "count", Max(to - from, 0));
	return JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_OBJECT, NULL));
}
