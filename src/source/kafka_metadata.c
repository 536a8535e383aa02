/*
 * kafka_metadata.c: what topics and partitions there are: each topic of a list asked for by itself, or all names
 * matched against a pattern. Danger: run() of a call happens in another thread; it sees malloc'ed memory only.
 */
#include "source/kafka.h"

#include "catalog/pg_collation.h"
#include "util/clock.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"

#define RETRY_PAUSE_MS 100

bool
kafka_is_nested(KafkaReader *reader)
{
	return reader->options->pattern || reader->options->ntopics > 1;
}

/* ---- calls ---- */

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

void *
kafka_malloc(size_t size)
{
	void *memory = calloc(1, size);

	if (!memory)
		ereport(ERROR, errcode(ERRCODE_OUT_OF_MEMORY), errmsg("out of memory"));
	return memory;
}

static MetadataCall *
metadata_prepare(KafkaReader *reader)
{
	int n = reader->ntopics;
	MetadataCall *call = kafka_malloc(sizeof(MetadataCall));

	call->base.run = metadata_run;
	call->base.destroy = metadata_destroy;
	call->topics = kafka_malloc(sizeof(*call->topics) * n);
	call->counts = kafka_malloc(sizeof(*call->counts) * n);
	call->errors = kafka_malloc(sizeof(*call->errors) * n);
	for (int i = 0; i < n; i++)
		call->topics[i] = rd_kafka_topic_new(kafka_client_handle(reader->client), reader->topics[i]->name, NULL);
	call->ntopics = n;
	return call;
}

void
kafka_report_no_answer(KafkaReader *reader, rd_kafka_resp_err_t error)
{
	int code;
	const char *complaint = kafka_client_complaint(reader->client, &code);
	bool refused = kafka_sqlstate(code) == ERRCODE_INVALID_AUTHORIZATION_SPECIFICATION;

	ereport(ERROR, errcode(kafka_sqlstate(refused ? code : error)),
			errmsg("source %s gets no answer from its Kafka brokers", reader->base.def->name),
			errdetail("%s.%s%s", rd_kafka_err2str(error), *complaint ? " Last trouble: " : "", complaint),
			kafka_complaint_hint(complaint));
}

bool
kafka_error_is_transient(rd_kafka_resp_err_t error)
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
void
kafka_pause(KafkaReader *reader)
{
	kafka_client_wait(reader->client, RETRY_PAUSE_MS);
	kafka_client_kick(reader->client);
}

/* Partition counts per topic into counts[]; retries what passes by itself within the bound. */
static void
metadata_ask(KafkaReader *reader, int *counts)
{
	int64 until = clock_monotonic_us() + KAFKA_CALL_MS * INT64CONST(1000);
	int n = reader->ntopics;

	for (;;)
	{
		MetadataCall *call = metadata_prepare(reader);
		int64 left = Max((until - clock_monotonic_us()) / 1000, 1);
		rd_kafka_resp_err_t error = RD_KAFKA_RESP_ERR_NO_ERROR;
		int topic = 0;

		if (!kafka_client_call(reader->client, &call->base, (int) left))
			kafka_report_no_answer(reader, RD_KAFKA_RESP_ERR__TIMED_OUT);
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
		if (!kafka_error_is_transient(error) && error != RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART)
			ereport(ERROR, errcode(kafka_sqlstate(error)),
					errmsg("source %s cannot use topic \"%s\"", reader->base.def->name, reader->topics[topic]->name),
					errdetail("%s.", rd_kafka_err2str(error)));
		/* A topic just made is unknown for a moment; a deleted one for ever. */
		if (clock_monotonic_us() + KAFKA_REGRESS_MS * INT64CONST(1000) > until &&
			error == RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART)
		{
			if (reader->npartitions > 0 || reader->had_partitions)
				ereport(ERROR, errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("topic \"%s\" of source %s does not exist any more", reader->topics[topic]->name,
							   reader->base.def->name),
						errhint("Create it again and reset the query."));
			reader->topics[topic]->awaited = true;
			ereport(
				ERROR, errcode(ERRCODE_FDW_TABLE_NOT_FOUND),
				errmsg("topic \"%s\" of source %s does not exist", reader->topics[topic]->name, reader->base.def->name),
				errdetail("A running query waits for it."),
				errhint("Create the topic, or correct the source's option topic."));
		}
		if (clock_monotonic_us() >= until)
			kafka_report_no_answer(reader, error);
		kafka_pause(reader);
	}
}

/* ---- a pattern of names ---- */

typedef struct NamesCall
{
	KafkaCall base;
	int n;
	char **names;
	int *counts; /* partitions; -1: the broker does not know for the moment */
	rd_kafka_resp_err_t error;
} NamesCall;

static void
names_run(KafkaCall *base, rd_kafka_t *rk, int timeout_ms)
{
	NamesCall *call = (NamesCall *) base;
	const struct rd_kafka_metadata *metadata;

	call->error = rd_kafka_metadata(rk, 1, NULL, &metadata, timeout_ms);
	if (call->error)
		return;
	call->names = calloc(metadata->topic_cnt + 1, sizeof(char *));
	call->counts = calloc(metadata->topic_cnt + 1, sizeof(int));
	for (int i = 0; call->names && call->counts && i < metadata->topic_cnt; i++)
	{
		if (!(call->names[i] = strdup(metadata->topics[i].topic)))
			break;
		call->counts[i] = metadata->topics[i].err ? -1 : metadata->topics[i].partition_cnt;
		call->n++;
	}
	rd_kafka_metadata_destroy(metadata);
}

static void
names_destroy(KafkaCall *base)
{
	NamesCall *call = (NamesCall *) base;

	for (int i = 0; i < call->n; i++)
		free(call->names[i]);
	free(call->names);
	free(call->counts);
	free(call);
}

static NamesCall *
names_ask(KafkaReader *reader)
{
	int64 until = clock_monotonic_us() + KAFKA_CALL_MS * INT64CONST(1000);

	for (;;)
	{
		NamesCall *call = kafka_malloc(sizeof(NamesCall));
		rd_kafka_resp_err_t error;

		call->base.run = names_run;
		call->base.destroy = names_destroy;
		if (!kafka_client_call(reader->client, &call->base, (int) Max((until - clock_monotonic_us()) / 1000, 1)))
			kafka_report_no_answer(reader, RD_KAFKA_RESP_ERR__TIMED_OUT);
		error = call->error;
		if (!error)
		{
			kafka_client_forget_complaint(reader->client);
			return call;
		}
		kafka_call_release(&call->base);
		if (!kafka_error_is_transient(error) || clock_monotonic_us() >= until)
			kafka_report_no_answer(reader, error);
		kafka_pause(reader);
	}
}

static KafkaTopic *
topic_by_name(KafkaReader *reader, const char *name)
{
	for (int i = 0; i < reader->ntopics; i++)
		if (strcmp(reader->topics[i]->name, name) == 0)
			return reader->topics[i];
	return NULL;
}

/* Whole names match; Kafka's own topics never do. */
bool
kafka_topic_matches(const char *pattern, const char *name)
{
	char *whole = psprintf("^(?:%s)$", pattern);

	if (strncmp(name, "__", 2) == 0)
		return false;
	return DatumGetBool(
		DirectFunctionCall2Coll(textregexeq, C_COLLATION_OID, CStringGetTextDatum(name), CStringGetTextDatum(whole)));
}

static int
known_partitions(KafkaReader *reader, KafkaTopic *topic)
{
	int n = 0;

	for (int i = 0; i < reader->npartitions; i++)
		n += reader->partitions[i]->topic == topic;
	return n;
}

/* The names stay the call's until it is released, also when matching raises an error: the next call releases it. */
static int *
pattern_ask(KafkaReader *reader)
{
	NamesCall *call = names_ask(reader);
	int *counts = palloc0(sizeof(int) * (reader->ntopics + call->n + 1));

	for (int i = 0; i < call->n; i++)
	{
		KafkaTopic *topic;

		if (!kafka_topic_matches(reader->options->pattern, call->names[i]))
			continue;
		topic = topic_by_name(reader, call->names[i]);
		if (!topic)
			topic = kafka_topic_add(reader, call->names[i]);
		counts[topic->number] = call->counts[i] >= 0 ? call->counts[i] : known_partitions(reader, topic);
	}
	kafka_call_release(&call->base);
	return counts;
}

int *
kafka_ask_partitions(KafkaReader *reader)
{
	int *counts;

	if (reader->options->pattern)
		return pattern_ask(reader);
	counts = palloc(sizeof(int) * reader->ntopics);
	metadata_ask(reader, counts);
	return counts;
}

/* ---- a query that is being made ---- */

static char *
absent_topic(KafkaReader *reader)
{
	MetadataCall *call = metadata_prepare(reader);
	char *absent = NULL;

	if (!kafka_client_call(reader->client, &call->base, KAFKA_GLANCE_MS))
		return NULL;
	for (int i = 0; i < reader->ntopics && !absent; i++)
		if (call->errors[i] == RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART)
			absent = psprintf("topic \"%s\"", reader->topics[i]->name);
	kafka_call_release(&call->base);
	return absent;
}

static char *
absent_pattern(KafkaReader *reader)
{
	NamesCall *call = kafka_malloc(sizeof(NamesCall));
	bool found = false;

	call->base.run = names_run;
	call->base.destroy = names_destroy;
	if (!kafka_client_call(reader->client, &call->base, KAFKA_GLANCE_MS))
		return NULL;
	for (int i = 0; i < call->n && !found; i++)
		found = kafka_topic_matches(reader->options->pattern, call->names[i]);
	found = found || call->error;
	kafka_call_release(&call->base);
	return found ? NULL : psprintf("a topic that matches \"%s\"", reader->options->pattern);
}

char *
kafka_ask_absent(KafkaReader *reader)
{
	return reader->options->pattern ? absent_pattern(reader) : absent_topic(reader);
}
