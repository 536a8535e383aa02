/*
 * kafka_connect.c: the reader's client, its topics and partitions, and questions to the broker.
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
#define RETRY_PAUSE_MS 100

/* ---- what topics there are ---- */

typedef struct MetadataCall
{
	KafkaCall base;
	int ntopics;
	rd_kafka_topic_t **topics; /* the thread's own */
	int *counts;			   /* partitions, or -1 */
	rd_kafka_resp_err_t *errors;
} MetadataCall;

static void
metadata_run(KafkaCall *base, rd_kafka_t *rk, int timeout_ms)
{
	MetadataCall *call = (MetadataCall *) base;

	for (int i = 0; i < call->ntopics; i++)
	{
		const struct rd_kafka_metadata *metadata;

		call->counts[i] = -1;
		call->errors[i] = rd_kafka_metadata(rk, 0, call->topics[i], &metadata, timeout_ms);
		if (call->errors[i])
			continue;
		if (metadata->topic_cnt == 1)
		{
			call->errors[i] = metadata->topics[0].err;
			call->counts[i] = metadata->topics[0].partition_cnt;
		}
		rd_kafka_metadata_destroy(metadata);
	}
	for (int i = 0; i < call->ntopics; i++)
		rd_kafka_topic_destroy(call->topics[i]);
	call->ntopics = 0;
}

static void
metadata_destroy(KafkaCall *base)
{
	MetadataCall *call = (MetadataCall *) base;

	free(call->topics);
	free(call->counts);
	free(call->errors);
	free(call);
}

static void *
malloc_or_fail(size_t size)
{
	void *memory = calloc(1, size);

	if (!memory)
		ereport(ERROR, errcode(ERRCODE_OUT_OF_MEMORY), errmsg("out of memory"));
	return memory;
}

static MetadataCall *
metadata_prepare(KafkaReader *reader)
{
	int n = reader->options->ntopics;
	MetadataCall *call = malloc_or_fail(sizeof(MetadataCall));

	call->base.run = metadata_run;
	call->base.destroy = metadata_destroy;
	call->topics = malloc_or_fail(sizeof(*call->topics) * n);
	call->counts = malloc_or_fail(sizeof(*call->counts) * n);
	call->errors = malloc_or_fail(sizeof(*call->errors) * n);
	for (int i = 0; i < n; i++)
		call->topics[i] = rd_kafka_topic_new(kafka_client_handle(reader->client), reader->topics[i].name, NULL);
	call->ntopics = n;
	return call;
}

static void
report_no_answer(KafkaReader *reader, rd_kafka_resp_err_t error)
{
	int code;
	const char *complaint = kafka_client_complaint(reader->client, &code);
	bool refused = kafka_sqlstate(code) == ERRCODE_INVALID_AUTHORIZATION_SPECIFICATION;

	ereport(ERROR, errcode(kafka_sqlstate(refused ? code : error)),
			errmsg("source %s gets no answer from its Kafka brokers", reader->base.def->name),
			errdetail("%s.%s%s", rd_kafka_err2str(error), *complaint ? " Last trouble: " : "", complaint));
}

static bool
error_is_transient(rd_kafka_resp_err_t error)
{
	switch (error)
	{
		case RD_KAFKA_RESP_ERR__TRANSPORT:
		case RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN:
		case RD_KAFKA_RESP_ERR__TIMED_OUT:
		case RD_KAFKA_RESP_ERR__TIMED_OUT_QUEUE:
		case RD_KAFKA_RESP_ERR__WAIT_COORD:
		case RD_KAFKA_RESP_ERR_LEADER_NOT_AVAILABLE:
		case RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION:
		case RD_KAFKA_RESP_ERR_BROKER_NOT_AVAILABLE:
		case RD_KAFKA_RESP_ERR_REPLICA_NOT_AVAILABLE:
		case RD_KAFKA_RESP_ERR_NETWORK_EXCEPTION:
		case RD_KAFKA_RESP_ERR_REQUEST_TIMED_OUT:
		case RD_KAFKA_RESP_ERR_FENCED_LEADER_EPOCH:
		case RD_KAFKA_RESP_ERR_UNKNOWN_LEADER_EPOCH:
		case RD_KAFKA_RESP_ERR_OFFSET_NOT_AVAILABLE:
		case RD_KAFKA_RESP_ERR_KAFKA_STORAGE_ERROR:
			return true;
		default:
			return false;
	}
}

/* A pause between two questions, with interrupts served. */
static void
pause_ms(KafkaReader *reader, long ms)
{
	kafka_client_wait(reader->client, ms);
	kafka_client_kick(reader->client);
}

/* Partition counts per topic into counts[]; retries what passes by itself within the bound. */
static void
metadata_ask(KafkaReader *reader, int *counts)
{
	int64 until = clock_monotonic_us() + KAFKA_CALL_MS * INT64CONST(1000);
	int n = reader->options->ntopics;

	for (;;)
	{
		MetadataCall *call = metadata_prepare(reader);
		int64 left = Max((until - clock_monotonic_us()) / 1000, 1);
		rd_kafka_resp_err_t error = RD_KAFKA_RESP_ERR_NO_ERROR;
		int topic = 0;

		if (!kafka_client_call(reader->client, &call->base, (int) left))
			report_no_answer(reader, RD_KAFKA_RESP_ERR__TIMED_OUT);
		memcpy(counts, call->counts, sizeof(int) * n);
		for (int i = 0; i < n && !error; i++)
			if ((error = call->errors[i]))
				topic = i;
		kafka_call_release(&call->base);
		if (!error)
		{
			kafka_client_forget_complaint(reader->client);
			return;
		}
		if (!error_is_transient(error) && error != RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART)
			ereport(ERROR, errcode(kafka_sqlstate(error)),
					errmsg("source %s cannot use topic \"%s\"", reader->base.def->name, reader->topics[topic].name),
					errdetail("%s.", rd_kafka_err2str(error)));
		/* A topic just made is unknown for a moment; a deleted one for ever. */
		if (clock_monotonic_us() + KAFKA_REGRESS_MS * INT64CONST(1000) > until &&
			error == RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART)
		{
			if (reader->npartitions > 0 || reader->had_partitions)
				ereport(ERROR, errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("topic \"%s\" of source %s does not exist any more", reader->topics[topic].name,
							   reader->base.def->name),
						errhint("Create it again and reset the query."));
			ereport(
				ERROR, errcode(ERRCODE_UNDEFINED_OBJECT),
				errmsg("topic \"%s\" of source %s does not exist", reader->topics[topic].name, reader->base.def->name),
				errhint("Create the topic, or correct the source's option topic."));
		}
		if (clock_monotonic_us() >= until)
			report_no_answer(reader, error);
		pause_ms(reader, RETRY_PAUSE_MS);
	}
}

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
	for (int i = 0; reader->topics && i < reader->options->ntopics; i++)
	{
		if (reader->topics[i].handle)
			rd_kafka_topic_destroy(reader->topics[i].handle);
		reader->topics[i].handle = NULL;
		reader->topics[i].verified = false;
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
	reader->sized_for = partitions;
	reader->client_context =
		AllocSetContextCreate(reader->base.context, "stream_ext kafka client", ALLOCSET_DEFAULT_SIZES);
	old = MemoryContextSwitchTo(reader->client_context);
	reader->client = kafka_client_open(KAFKA_CONSUMER, psprintf("source %s", reader->base.def->name), defaults,
									   reader->options->properties, fixed);
	kafka_client_on_close(reader->client, reader_release, reader);
	MemoryContextSwitchTo(old);

	/* What the user may have set instead. */
	reader->queue_messages = AHEAD_MESSAGES / partitions;
	if (rd_kafka_conf_get(rd_kafka_conf(kafka_client_handle(reader->client)), "queued.min.messages", value, &len) ==
		RD_KAFKA_CONF_OK)
		reader->queue_messages = atoi(value);
	for (int i = 0; i < reader->options->ntopics; i++)
	{
		KafkaTopic *topic = &reader->topics[i];

		topic->handle = rd_kafka_topic_new(kafka_client_handle(reader->client), topic->name, NULL);
		if (!topic->handle)
			ereport(ERROR, errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					errmsg("source %s cannot use topic \"%s\"", reader->base.def->name, topic->name),
					errdetail("%s.", rd_kafka_err2str(rd_kafka_last_error())));
	}
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

/* ---- partitions ---- */

static KafkaPartition *
partition_make(KafkaReader *reader, int topic, int32 id)
{
	KafkaPartition *partition = MemoryContextAllocZero(reader->client_context, sizeof(KafkaPartition));

	partition->topic = &reader->topics[topic];
	partition->id = id;
	/* Lanes are what the log calls partitions: stable numbers, the partition's own when there is one topic. */
	partition->lane = topic * KAFKA_LANES_PER_TOPIC + id;
	partition->eof = partition->low = -1;
	partition->planned = KAFKA_NOT_FOUND;
	partition->queue = rd_kafka_queue_new(kafka_client_handle(reader->client));
	kafka_client_watch(reader->client, partition->queue);
	return partition;
}

static KafkaPartition *
partition_lookup(KafkaReader *reader, int topic, int32 id)
{
	for (int i = 0; i < reader->npartitions; i++)
		if (reader->partitions[i]->topic->number == topic && reader->partitions[i]->id == id)
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

bool
kafka_refresh_partitions(KafkaReader *reader, bool force)
{
	int64 now = clock_monotonic_us();
	int ntopics = reader->options->ntopics;
	int *counts = palloc(sizeof(int) * ntopics);
	KafkaPartition **partitions;
	int total = 0, n = 0;

	if (!force && reader->refreshed_us && now - reader->refreshed_us < KAFKA_LOOK_AGAIN_MS * INT64CONST(1000))
		return false;
	metadata_ask(reader, counts);
	for (int i = 0; i < ntopics; i++)
	{
		if (ntopics > 1 && counts[i] > KAFKA_LANES_PER_TOPIC)
			ereport(ERROR, errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					errmsg("topic \"%s\" of source %s has %d partitions", reader->topics[i].name,
						   reader->base.def->name, counts[i]),
					errdetail("A source of several topics reads at most %d partitions of each.", KAFKA_LANES_PER_TOPIC),
					errhint("Make a source of its own for that topic and use UNION ALL."));
		total += counts[i];
	}
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
	partitions = MemoryContextAllocZero(reader->client_context, sizeof(KafkaPartition *) * Max(total, 1));
	for (int i = 0; i < ntopics; i++)
		for (int32 id = 0; id < counts[i]; id++)
		{
			KafkaPartition *known = partition_lookup(reader, i, id);

			partitions[n++] = known ? known : partition_make(reader, i, id);
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
	OffsetsCall *call = malloc_or_fail(sizeof(OffsetsCall));
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
			report_no_answer(reader, error);
		if (!error_is_transient(error))
			ereport(ERROR, errcode(kafka_sqlstate(error)),
					errmsg("source %s cannot ask its topic for offsets", reader->base.def->name),
					errdetail("%s.", rd_kafka_err2str(error)));
		pause_ms(reader, RETRY_PAUSE_MS);
	}
}
