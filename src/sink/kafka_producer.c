/*
 * kafka_producer.c: messages of a batch → acknowledged by the brokers, before the batch commits.
 *
 * Transactional: messages and a mark are one Kafka transaction. The mark is a committed offset, batch id + 1, of a consumer group that is
 * named after query and incarnation: reading it back tells whether a batch went through, whatever died in between. Order of commits: Kafka, then
 * Postgres; a batch that Kafka has and Postgres has not comes again with the same id, and is not sent again.
 * Danger: a producer whose batch failed has messages on their way; it must not be used again, only thrown away.
 */
#include "sink/kafka_producer.h"

#include "access/xact.h"
#include "kafka/client.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "storage/ipc.h"
#include "util/clock.h"
#include "util/compat.h"
#include "util/failpoint.h"
#include "utils/memutils.h"

#define DELIVERY_MS 30000 /* a message not acknowledged by then is lost, and the batch with it */
#define CALL_MS 30000
#define ABORT_MS 1000 /* for telling the brokers that a transaction is off */
#define EXIT_ABORT_MS 200
#define POLL_EVERY 256

struct KafkaProducer
{
	MemoryContext context;
	ProducerConfig config;
	KafkaClient *client;
	rd_kafka_t *rk;		 /* the client's */
	bool busy;			 /* messages on their way, or a transaction open */
	bool in_transaction;
	int64 messages;		 /* in this batch */
	int64 failed;
	rd_kafka_resp_err_t error; /* of the first that failed */
	int64 last_batch;	 /* transactional: newest the brokers have, -1: none */
	uint64 last_range;
};

static KafkaProducer *kept = NULL; /* in workers */

/* ---- life ---- */

static void
delivery_report(void *arg, rd_kafka_event_t *event)
{
	KafkaProducer *producer = arg;
	const rd_kafka_message_t *message;

	while ((message = rd_kafka_event_message_next(event)))
		if (message->err && producer->failed++ == 0)
			producer->error = message->err;
}

/* The handle goes: an open transaction would hold up readers until it times out. */
static void
producer_release(void *arg)
{
	KafkaProducer *producer = arg;

	if (producer->in_transaction)
	{
		rd_kafka_error_t *error = rd_kafka_abort_transaction(producer->rk, proc_exit_inprogress ? EXIT_ABORT_MS : ABORT_MS);

		if (error)
			rd_kafka_error_destroy(error);
	}
	producer->in_transaction = false;
}

static KafkaProducer *
producer_make(const ProducerConfig *config)
{
	MemoryContext context = AllocSetContextCreate(IsBackgroundWorker ? TopMemoryContext : CurrentMemoryContext, "stream_ext kafka producer",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	KafkaProducer *producer = palloc0(sizeof(KafkaProducer));

	producer->context = context;
	producer->config.owner = pstrdup(config->owner);
	producer->config.topic = pstrdup(config->topic);
	producer->config.properties = copyObject(config->properties);
	producer->config.identity = config->identity ? pstrdup(config->identity) : NULL;
	MemoryContextSwitchTo(old);
	return producer;
}

static void
producer_connect(KafkaProducer *producer)
{
	/* A batch's messages come all at once and are waited for: company comes by itself while the first are on their way. */
	static const KafkaSetting defaults[] = {{"linger.ms", "0"},
											{"partitioner", "murmur2_random"}, /* as Kafka's own clients: the same key, the same partition */
											{"queue.buffering.max.kbytes", "65536"},
											{"reconnect.backoff.max.ms", "2000"},
											{"transaction.timeout.ms", "300000"},
											{NULL, NULL}};
	KafkaSetting fixed[] = {{"enable.idempotence", "true"},
							{"message.timeout.ms", CppAsString2(DELIVERY_MS)},
							{producer->config.identity ? "transactional.id" : NULL, producer->config.identity},
							{NULL, NULL}};
	MemoryContext old = MemoryContextSwitchTo(producer->context);

	producer->client = kafka_client_open(KAFKA_PRODUCER, producer->config.owner, defaults, producer->config.properties, fixed);
	producer->rk = kafka_client_handle(producer->client);
	kafka_client_on_close(producer->client, producer_release, producer);
	kafka_client_on_report(producer->client, delivery_report, producer);
	(void) kafka_client_socket(producer->client);
	MemoryContextSwitchTo(old);
}

static bool
text_equal(const char *a, const char *b)
{
	return a == b || (a && b && strcmp(a, b) == 0);
}

static bool
config_equal(const ProducerConfig *a, const ProducerConfig *b)
{
	return strcmp(a->owner, b->owner) == 0 && strcmp(a->topic, b->topic) == 0 && text_equal(a->identity, b->identity) &&
		   equal(a->properties, b->properties);
}

/* ---- trouble ---- */

static void
report_error(KafkaProducer *producer, rd_kafka_resp_err_t code, const char *text)
{
	int complained;
	const char *complaint = kafka_client_complaint(producer->client, &complained);
	bool refused = kafka_sqlstate(complained) == ERRCODE_INVALID_AUTHORIZATION_SPECIFICATION; /* else it looks like no answer */
	int sqlstate = kafka_sqlstate(refused ? complained : code);

	if (code == RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE)
		sqlstate = ERRCODE_PROGRAM_LIMIT_EXCEEDED;
	else if (code == RD_KAFKA_RESP_ERR__FENCED || code == RD_KAFKA_RESP_ERR_PRODUCER_FENCED || code == RD_KAFKA_RESP_ERR_INVALID_PRODUCER_EPOCH)
		sqlstate = ERRCODE_OBJECT_IN_USE;
	ereport(ERROR, (errcode(sqlstate), errmsg("%s could not write to topic \"%s\"", producer->config.owner, producer->config.topic),
					errdetail("%s.%s%s", text, *complaint ? " Last trouble: " : "", complaint),
					code == RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE
						? errhint("Raise \"message.max.bytes\" on the server's options and \"max.message.bytes\" of the topic, or write smaller rows.")
						: kafka_complaint_hint(complaint)));
}

static void
report_failed(KafkaProducer *producer)
{
	report_error(producer, producer->error,
				 psprintf(INT64_FORMAT " of " INT64_FORMAT " messages failed, the first: %s", producer->failed, producer->messages,
						  rd_kafka_err2str(producer->error)));
}

/* ---- requests of transactions, each in a thread ---- */

typedef struct TransactionCall
{
	KafkaCall base;
	rd_kafka_topic_partition_list_t *offsets; /* NULL: init_transactions; else committed with it (producer) or asked for (consumer) */
	char *group;
	bool ask;
	rd_kafka_resp_err_t code;
	char text[256];
} TransactionCall;

static void
call_failed(TransactionCall *call, rd_kafka_error_t *error)
{
	call->code = rd_kafka_error_code(error);
	snprintf(call->text, sizeof(call->text), "%s", rd_kafka_error_string(error));
	rd_kafka_error_destroy(error);
}

static void
transaction_run(KafkaCall *base, rd_kafka_t *rk, int timeout_ms)
{
	TransactionCall *call = (TransactionCall *) base;
	rd_kafka_error_t *error = NULL;

	if (call->ask)
	{
		call->code = rd_kafka_committed(rk, call->offsets, timeout_ms);
		if (!call->code)
			call->code = call->offsets->elems[0].err;
		snprintf(call->text, sizeof(call->text), "%s", rd_kafka_err2str(call->code));
		return;
	}
	if (call->offsets == NULL)
		error = rd_kafka_init_transactions(rk, timeout_ms);
	else
	{
		rd_kafka_consumer_group_metadata_t *group = rd_kafka_consumer_group_metadata_new(call->group);

		error = rd_kafka_send_offsets_to_transaction(rk, call->offsets, group, timeout_ms);
		rd_kafka_consumer_group_metadata_destroy(group);
		if (!error)
			error = rd_kafka_commit_transaction(rk, timeout_ms);
	}
	if (error)
		call_failed(call, error);
}

static void
transaction_destroy(KafkaCall *base)
{
	TransactionCall *call = (TransactionCall *) base;

	if (call->offsets)
		rd_kafka_topic_partition_list_destroy(call->offsets);
	free(call->group);
	free(call);
}

/* The mark: partition 0 of the topic, as an offset of a group with the producer's identity for a name. */
static TransactionCall *
call_make(KafkaProducer *producer, bool with_mark)
{
	TransactionCall *call = calloc(1, sizeof(TransactionCall));

	if (call && with_mark && (call->group = strdup(producer->config.identity)) != NULL)
	{
		call->offsets = rd_kafka_topic_partition_list_new(1);
		rd_kafka_topic_partition_list_add(call->offsets, producer->config.topic, 0);
	}
	if (call == NULL || (with_mark && call->group == NULL))
	{
		free(call);
		ereport(ERROR, (errcode(ERRCODE_OUT_OF_MEMORY), errmsg("out of memory")));
	}
	call->base.run = transaction_run;
	call->base.destroy = transaction_destroy;
	return call;
}

/* Runs it; on return it went well, and is the caller's to release. */
static void
call_run(KafkaProducer *producer, KafkaClient *client, TransactionCall *call)
{
	rd_kafka_resp_err_t code;
	char *text;

	if (!kafka_client_call(client, &call->base, CALL_MS))
		report_error(producer, RD_KAFKA_RESP_ERR__TIMED_OUT, "No answer from the brokers");
	if (!call->code)
		return;
	code = call->code;
	text = pstrdup(call->text);
	kafka_call_release(&call->base);
	report_error(producer, code, text);
}

/* Ends what an earlier producer of this identity has left open, and keeps that one from ever writing again. */
static void
transactions_begin(KafkaProducer *producer)
{
	TransactionCall *call = call_make(producer, false);

	call_run(producer, producer->client, call);
	kafka_call_release(&call->base);
}

/* "batch/range": what the mark says besides the number. */
static char *
mark_text(int64 batch_id, uint64 range)
{
	return psprintf(INT64_FORMAT "/" UINT64_FORMAT, batch_id, range);
}

static void
mark_read(KafkaProducer *producer)
{
	KafkaSetting fixed[] = {{"group.id", producer->config.identity}, {"enable.auto.commit", "false"}, {"isolation.level", "read_committed"}, {NULL, NULL}};
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "stream_ext kafka mark", ALLOCSET_SMALL_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	KafkaClient *client = kafka_client_open(KAFKA_CONSUMER, producer->config.owner, NULL, producer->config.properties, fixed);
	TransactionCall *call = call_make(producer, true);
	rd_kafka_topic_partition_t *mark;

	call->ask = true;
	call_run(producer, client, call);
	mark = &call->offsets->elems[0];
	producer->last_batch = mark->offset > 0 ? mark->offset - 1 : -1;
	producer->last_range = 0;
	if (mark->metadata_size > 0)
	{
		char *text = pnstrdup(mark->metadata, mark->metadata_size);

		(void) sscanf(text, "%*d/" UINT64_FORMAT, &producer->last_range);
	}
	kafka_call_release(&call->base);
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
}

/* ---- batches ---- */

/* A worker's batch failed: its transaction should not be open while the worker waits to try again. */
static void
kept_abort(XactEvent event, void *arg)
{
	KafkaProducer *producer = kept;

	if (event != XACT_EVENT_ABORT || producer == NULL || !producer->busy)
		return;
	kept = NULL;
	MemoryContextDelete(producer->context);
}

static void
keep(KafkaProducer *producer)
{
	static bool registered = false;

	if (!registered)
		RegisterXactCallback(kept_abort, NULL);
	registered = true;
	kept = producer;
}

KafkaProducer *
kafka_producer_get(KafkaProducer *present, const ProducerConfig *config)
{
	KafkaProducer *producer = IsBackgroundWorker ? kept : present;

	if (producer && !producer->busy && config_equal(&producer->config, config))
		return producer;
	if (producer)
		MemoryContextDelete(producer->context);
	kept = NULL;
	producer = producer_make(config);
	producer->busy = true; /* until it is ready */
	if (IsBackgroundWorker)
		keep(producer);
	producer_connect(producer);
	if (config->identity)
	{
		transactions_begin(producer);
		mark_read(producer);
	}
	producer->busy = false;
	return producer;
}

bool
kafka_producer_has_sent(KafkaProducer *producer, const BatchInfo *batch)
{
	if (producer->config.identity == NULL || batch->batch_id > producer->last_batch)
		return false;
	if (batch->batch_id == producer->last_batch && producer->last_range != 0 && producer->last_range != batch->range)
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("topic \"%s\" has another batch " INT64_FORMAT " of query \"%s\" already", producer->config.topic, batch->batch_id,
							   batch->query_name),
						errdetail("It was sent for another range of the sources, as when this database was restored to an earlier time."),
						errhint("Start afresh with stream.reset_query: everything is then sent again, under a new incarnation.")));
	return true;
}

/* Serves reports for at most so long; interrupts are served too. */
static void
producer_wait(KafkaProducer *producer, long timeout_ms)
{
	kafka_client_wait(producer->client, timeout_ms);
	kafka_client_drain_socket(producer->client);
	kafka_client_poll(producer->client);
	if (producer->failed > 0)
		report_failed(producer);
}

static rd_kafka_resp_err_t
produce(KafkaProducer *producer, KafkaMessage *message)
{
	rd_kafka_vu_t vus[] = {
		{.vtype = RD_KAFKA_VTYPE_TOPIC, .u.cstr = message->topic ? message->topic : producer->config.topic},
		{.vtype = RD_KAFKA_VTYPE_PARTITION, .u.i32 = message->partition},
		{.vtype = RD_KAFKA_VTYPE_MSGFLAGS, .u.i = RD_KAFKA_MSG_F_COPY},
		{.vtype = RD_KAFKA_VTYPE_VALUE, .u.mem = {.ptr = unconstify(void *, message->value), .size = message->value_size}},
		{.vtype = RD_KAFKA_VTYPE_KEY, .u.mem = {.ptr = unconstify(void *, message->key), .size = message->key_size}},
		{.vtype = RD_KAFKA_VTYPE_HEADERS, .u.headers = message->headers},
	};
	rd_kafka_error_t *error = rd_kafka_produceva(producer->rk, vus, lengthof(vus));
	rd_kafka_resp_err_t code = RD_KAFKA_RESP_ERR_NO_ERROR;

	if (error == NULL)
		message->headers = NULL;
	else
	{
		code = rd_kafka_error_code(error);
		rd_kafka_error_destroy(error);
	}
	return code;
}

static void
transaction_open(KafkaProducer *producer)
{
	rd_kafka_error_t *error = rd_kafka_begin_transaction(producer->rk);
	rd_kafka_resp_err_t code;
	char *text;

	if (error == NULL)
	{
		producer->in_transaction = true;
		return;
	}
	code = rd_kafka_error_code(error);
	text = pstrdup(rd_kafka_error_string(error));
	rd_kafka_error_destroy(error);
	report_error(producer, code, text);
}

void
kafka_producer_send(KafkaProducer *producer, KafkaMessage *message)
{
	rd_kafka_resp_err_t code;
	bool waited = false;

	producer->busy = true;
	if (producer->config.identity && !producer->in_transaction)
		transaction_open(producer);
	/* A message that is not acknowledged in time fails, and with it this loop. */
	while ((code = produce(producer, message)) == RD_KAFKA_RESP_ERR__QUEUE_FULL)
	{
		producer_wait(producer, 100);
		waited = true;
	}
	if (waited)
		kafka_client_kick(producer->client);
	if (code)
		report_error(producer, code, rd_kafka_err2str(code));
	if (++producer->messages % POLL_EVERY == 0)
		kafka_client_poll(producer->client);
	if (producer->failed > 0)
		report_failed(producer);
}

/* Every message is acknowledged, or reported as failed by librdkafka's own clock; ours is there in case that stops. */
static void
producer_flush(KafkaProducer *producer)
{
	int64 until = clock_monotonic_us() + (DELIVERY_MS + 5000) * INT64CONST(1000);

	kafka_client_poll(producer->client);
	while (rd_kafka_outq_len(producer->rk) > 0)
	{
		if (clock_monotonic_us() > until)
			report_error(producer, RD_KAFKA_RESP_ERR__TIMED_OUT, psprintf("%d messages are not acknowledged", rd_kafka_outq_len(producer->rk)));
		producer_wait(producer, 100);
	}
	kafka_client_kick(producer->client);
	if (producer->failed > 0)
		report_failed(producer);
}

static void
transaction_commit(KafkaProducer *producer, const BatchInfo *batch)
{
	TransactionCall *call = call_make(producer, true);
	rd_kafka_topic_partition_t *mark = &call->offsets->elems[0];
	char *text = mark_text(batch->batch_id, batch->range);

	mark->offset = batch->batch_id + 1;
	mark->metadata = strdup(text);
	mark->metadata_size = mark->metadata ? strlen(text) : 0;
	call_run(producer, producer->client, call);
	kafka_call_release(&call->base);
	producer->in_transaction = false;
	producer->last_batch = batch->batch_id;
	producer->last_range = batch->range;
}

void
kafka_producer_commit(KafkaProducer *producer, const BatchInfo *batch)
{
	if (producer->messages > 0)
		producer_flush(producer);
	FAILPOINT("acknowledged");
	if (producer->in_transaction)
		transaction_commit(producer, batch);
	kafka_client_forget_complaint(producer->client);
	producer->messages = 0;
	producer->busy = false;
}
