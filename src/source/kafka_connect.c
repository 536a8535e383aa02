/*
 * kafka_connect.c: the reader's client, its partitions, and questions to the broker about offsets.
 *
 * Options → client → metadata → one KafkaPartition each. Questions run through kafka_client_call: bounded,
 * interruptible, and gone with the process. Danger: run() of a call happens in another thread; it sees malloc'ed
 * memory only.
 */
#include "source/kafka.h"

#include "util/clock.h"
#include "utils/builtins.h"
#include "utils/memutils.h"

/* Memory for what the fetchers have ahead: shared by the partitions. */
#define AHEAD_KBYTES (64 * 1024)
#define AHEAD_MESSAGES 200000
#define FEW_PARTITIONS 8
/* For each partition, of a reader that only looks for what is new. */
#define SCOUT_MESSAGES "100"
#define SCOUT_KBYTES "64"
#define SCOUT_FETCH "16384"

/* ---- client ---- */

/* Before the handle goes: everything that hangs on it. No error may be raised here. */
static void
reader_release(void *arg)
{
	KafkaReader *reader = arg;

	for (int i = 0; i < reader->npartitions; i++)
	{
		KafkaPartition *partition = reader->partitions[i];

		kafka_window_clear(reader, partition);
		if (partition->queue)
			rd_kafka_queue_destroy(partition->queue);
		partition->queue = NULL;
		partition->messages = NULL;
		partition->room = 0;
		partition->started = false;
	}
	for (int i = 0; i < reader->ntopics; i++)
	{
		if (reader->topics[i]->handle)
			rd_kafka_topic_destroy(reader->topics[i]->handle);
		reader->topics[i]->handle = NULL;
		reader->topics[i]->verified = false;
	}
	/* Scans that stand on a message own it now; it must not outlive the handle. */
	while (!dlist_is_empty(&reader->scans))
	{
		KafkaScan *scan = dlist_container(KafkaScan, node, dlist_pop_head_node(&reader->scans));

		scan->linked = false;
		if (scan->message && scan->owned)
			rd_kafka_message_destroy(scan->message);
		scan->message = NULL;
		scan->owned = false;
	}
	reader->client = NULL;
}

static void
client_open(KafkaReader *reader, int partitions)
{
	char messages[32], kbytes[32], fetch[32];
	/*
	 * Brokers answer a waiting fetch as soon as data comes; but what else they are asked over that connection waits behind it: a fetch of
	 * partitions that are at their end holds up those that have drained their queue in the meantime.
	 */
	KafkaSetting defaults[] = {{"fetch.wait.max.ms", "10"},
							   {"queued.min.messages", messages},
							   {"queued.max.messages.kbytes", kbytes},
							   {"fetch.message.max.bytes", fetch},
							   {"reconnect.backoff.max.ms", "2000"},
							   {NULL, NULL}};
	KafkaSetting fixed[] = {
		{"enable.auto.commit", "false"},
		{"enable.auto.offset.store", "false"},
		{"auto.offset.reset", "error"},
		{"enable.partition.eof", "true"},
		{"allow.auto.create.topics", "false"},
		{"isolation.level", reader->options->read_committed ? "read_committed" : "read_uncommitted"},
		{NULL, NULL}};
	MemoryContext old;
	char value[32];
	size_t len = sizeof(value);

	snprintf(messages, sizeof(messages), "%d", Max(AHEAD_MESSAGES / partitions, 1000));
	snprintf(kbytes, sizeof(kbytes), "%d", Max(AHEAD_KBYTES / partitions, 1024));
	snprintf(fetch, sizeof(fetch), "%d", Max(AHEAD_KBYTES / partitions, 1024) * 256);
	if (reader->base.scouts)
	{
		strcpy(messages, SCOUT_MESSAGES);
		strcpy(kbytes, SCOUT_KBYTES);
		strcpy(fetch, SCOUT_FETCH);
	}
	reader->sized_for = partitions;
	reader->client_context =
		AllocSetContextCreate(reader->base.context, "stream_ext kafka client", ALLOCSET_DEFAULT_SIZES);
	old = MemoryContextSwitchTo(reader->client_context);
	reader->client = kafka_client_open(KAFKA_CONSUMER, psprintf("source %s", reader->base.def->name), defaults,
									   reader->options->properties, fixed);
	kafka_client_on_close(reader->client, reader_release, reader);
	MemoryContextSwitchTo(old);

	/* What the user may have set instead. */
	reader->queue_messages = atoi(messages);
	if (rd_kafka_conf_get(rd_kafka_conf(kafka_client_handle(reader->client)), "queued.min.messages", value, &len) ==
		RD_KAFKA_CONF_OK)
		reader->queue_messages = atoi(value);
}

void
kafka_connect_only(KafkaReader *reader)
{
	client_open(reader, FEW_PARTITIONS);
}

void
kafka_disconnect(KafkaReader *reader)
{
	reader->had_partitions = reader->had_partitions || reader->npartitions > 0;
	if (reader->client)
	{
		kafka_client_close(reader->client);
		MemoryContextDelete(reader->client_context);
	}
	reader->client = NULL;
	reader->client_context = NULL;
	reader->npartitions = 0;
	if (reader->options->pattern)
		reader->ntopics = 0; /* found again by their names */
	reader->refreshed_us = 0;
}

void
kafka_connect(KafkaReader *reader)
{
	if (!reader->client)
	{
		client_open(reader, FEW_PARTITIONS);
		kafka_refresh_partitions(reader, true);
		if (reader->npartitions > reader->sized_for)
		{
			/* More than thought: again, with shares small enough for all. Nothing has been fetched yet. */
			int partitions = reader->npartitions;

			kafka_disconnect(reader);
			client_open(reader, partitions);
			kafka_refresh_partitions(reader, true);
		}
	}
	kafka_client_poll(reader->client);
}

/* ---- topics and partitions ---- */

KafkaTopic *
kafka_topic_add(KafkaReader *reader, const char *name)
{
	MemoryContext old = MemoryContextSwitchTo(reader->base.context);
	KafkaTopic *topic = palloc0(sizeof(KafkaTopic));

	topic->name = pstrdup(name);
	topic->number = reader->ntopics;
	topic->lane_number = -1;
	topic->name_datum = CStringGetTextDatum(name);
	if (reader->topics)
		reader->topics = repalloc(reader->topics, sizeof(KafkaTopic *) * (reader->ntopics + 1));
	else
		reader->topics = palloc(sizeof(KafkaTopic *));
	reader->topics[reader->ntopics++] = topic;
	MemoryContextSwitchTo(old);
	return topic;
}

int
kafka_partition_lane(KafkaReader *reader, KafkaPartition *partition)
{
	if (!kafka_is_nested(reader))
		return partition->id;
	return Max(partition->topic->lane_number, 0) * KAFKA_LANES_PER_TOPIC + partition->id;
}

static void
topic_open(KafkaReader *reader, KafkaTopic *topic)
{
	if (topic->handle)
		return;
	topic->handle = rd_kafka_topic_new(kafka_client_handle(reader->client), topic->name, NULL);
	if (!topic->handle)
		ereport(ERROR, errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				errmsg("source %s cannot use topic \"%s\"", reader->base.def->name, topic->name),
				errdetail("%s.", rd_kafka_err2str(rd_kafka_last_error())));
}

static KafkaPartition *
partition_make(KafkaReader *reader, KafkaTopic *topic, int32 id)
{
	KafkaPartition *partition = MemoryContextAllocZero(reader->client_context, sizeof(KafkaPartition));

	partition->topic = topic;
	partition->id = id;
	partition->eof = partition->low = -1;
	partition->planned = KAFKA_NOT_FOUND;
	partition->queue = rd_kafka_queue_new(kafka_client_handle(reader->client));
	kafka_client_watch(reader->client, partition->queue);
	return partition;
}

static KafkaPartition *
partition_lookup(KafkaReader *reader, KafkaTopic *topic, int32 id)
{
	for (int i = 0; i < reader->npartitions; i++)
		if (reader->partitions[i]->topic == topic && reader->partitions[i]->id == id)
			return reader->partitions[i];
	return NULL;
}

static bool
partitions_are_gone(KafkaReader *reader, const int *counts)
{
	for (int i = 0; i < reader->npartitions; i++)
		if (reader->partitions[i]->id >= counts[reader->partitions[i]->topic->number])
			return true;
	return false;
}

/* Topics in the order their rows are read: as listed, or by name. */
static KafkaTopic **
topics_in_order(KafkaReader *reader)
{
	KafkaTopic **topics = palloc(sizeof(KafkaTopic *) * Max(reader->ntopics, 1));

	for (int i = 0; i < reader->ntopics; i++)
	{
		int at = i;

		for (; reader->options->pattern && at > 0 && strcmp(topics[at - 1]->name, reader->topics[i]->name) > 0; at--)
			topics[at] = topics[at - 1];
		topics[at] = reader->topics[i];
	}
	return topics;
}

static int
count_partitions(KafkaReader *reader, const int *counts)
{
	int total = 0;

	for (int i = 0; i < reader->ntopics; i++)
	{
		if (kafka_is_nested(reader) && counts[i] > KAFKA_LANES_PER_TOPIC)
			ereport(ERROR, errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					errmsg("topic \"%s\" of source %s has %d partitions", reader->topics[i]->name,
						   reader->base.def->name, counts[i]),
					errdetail("A source of several topics reads at most %d partitions of each.", KAFKA_LANES_PER_TOPIC),
					errhint("Make a source of its own for that topic and use UNION ALL."));
		total += counts[i];
	}
	return total;
}

bool
kafka_refresh_partitions(KafkaReader *reader, bool force)
{
	int64 now = clock_monotonic_us();
	int *counts;
	KafkaTopic **topics;
	KafkaPartition **partitions;
	int total, n = 0;

	if (!force && reader->refreshed_us && now - reader->refreshed_us < KAFKA_LOOK_AGAIN_MS * INT64CONST(1000))
		return false;
	counts = kafka_ask_partitions(reader);
	total = count_partitions(reader, counts);
	if (partitions_are_gone(reader, counts))
	{
		/* Another topic of the same name. Nothing of the old one is worth keeping; positions will show what is lost. */
		kafka_disconnect(reader);
		kafka_connect(reader);
		return true;
	}
	reader->refreshed_us = now;
	if (total == reader->npartitions)
		return false;
	topics = topics_in_order(reader);
	partitions = MemoryContextAllocZero(reader->client_context, sizeof(KafkaPartition *) * Max(total, 1));
	for (int i = 0; i < reader->ntopics; i++)
		for (int32 id = 0; id < counts[topics[i]->number]; id++)
		{
			KafkaPartition *known = partition_lookup(reader, topics[i], id);

			topic_open(reader, topics[i]);
			partitions[n++] = known ? known : partition_make(reader, topics[i], id);
		}
	reader->partitions = partitions;
	reader->npartitions = n;
	return true;
}

/* ---- offsets ---- */

typedef struct OffsetsCall
{
	KafkaCall base;
	rd_kafka_topic_partition_list_t *list;
	rd_kafka_resp_err_t error;
} OffsetsCall;

static void
offsets_run(KafkaCall *base, rd_kafka_t *rk, int timeout_ms)
{
	OffsetsCall *call = (OffsetsCall *) base;

	call->error = rd_kafka_offsets_for_times(rk, call->list, timeout_ms);
}

static void
offsets_destroy(KafkaCall *base)
{
	OffsetsCall *call = (OffsetsCall *) base;

	rd_kafka_topic_partition_list_destroy(call->list);
	free(call);
}

static rd_kafka_resp_err_t
list_offsets_once(KafkaReader *reader, int64 which, int64 *offsets, int timeout_ms)
{
	OffsetsCall *call = kafka_malloc(sizeof(OffsetsCall));
	rd_kafka_resp_err_t error;

	call->base.run = offsets_run;
	call->base.destroy = offsets_destroy;
	call->list = rd_kafka_topic_partition_list_new(reader->npartitions);
	for (int i = 0; i < reader->npartitions; i++)
		rd_kafka_topic_partition_list_add(call->list, reader->partitions[i]->topic->name, reader->partitions[i]->id)
			->offset = which;
	if (!kafka_client_call(reader->client, &call->base, timeout_ms))
		return RD_KAFKA_RESP_ERR__TIMED_OUT;
	error = call->error;
	for (int i = 0; i < reader->npartitions && !error; i++)
	{
		error = call->list->elems[i].err;
		offsets[i] = call->list->elems[i].offset;
	}
	kafka_call_release(&call->base);
	return error;
}

void
kafka_list_offsets(KafkaReader *reader, int64 which, int64 *offsets)
{
	int64 until = clock_monotonic_us() + KAFKA_CALL_MS * INT64CONST(1000);

	if (reader->npartitions == 0)
		return;
	for (;;)
	{
		int64 left = Max((until - clock_monotonic_us()) / 1000, 1);
		rd_kafka_resp_err_t error = list_offsets_once(reader, which, offsets, (int) left);

		if (!error)
			return;
		if (clock_monotonic_us() >= until)
			kafka_report_no_answer(reader, error);
		if (!kafka_error_is_transient(error))
			ereport(ERROR, errcode(kafka_sqlstate(error)),
					errmsg("source %s cannot ask its topic for offsets", reader->base.def->name),
					errdetail("%s.", rd_kafka_err2str(error)));
		kafka_pause(reader);
	}
}
