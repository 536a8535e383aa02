/*
 * client.h: Kafka handles as Postgres wants them: made with signals blocked, destroyed with their memory context or
 * at exit within a bound, and never blocking the process: requests run in a thread of their own while the process
 * waits on its latch.
 */
#ifndef STREAM_KAFKA_CLIENT_H
#define STREAM_KAFKA_CLIENT_H

#include "postgres.h"
#include "kafka/property.h"
#include "nodes/pg_list.h"
#include "port.h"

struct rd_kafka_s;
struct rd_kafka_queue_s;
struct rd_kafka_op_s;

typedef enum KafkaRole
{
	KAFKA_CONSUMER,
	KAFKA_PRODUCER
} KafkaRole;

typedef struct KafkaSetting
{
	const char *name;
	const char *value;
} KafkaSetting;

typedef struct KafkaClient KafkaClient;

/*
 * Opens a handle from FDW options (lists of DefElem: server, user mapping, table or sink; later lists win; names that
 * are no properties are skipped) over defaults and below fixed settings (arrays ended by {NULL}). owner names the
 * source or sink in errors. The client lives until kafka_client_close, the end of CurrentMemoryContext, or the end of
 * the process.
 */
extern KafkaClient *kafka_client_open(KafkaRole role, const char *owner, const KafkaSetting *defaults, List *options,
									  const KafkaSetting *fixed);
extern void kafka_client_close(KafkaClient *client);
/* Called before the handle goes, however it goes: give back messages, queues and topics. The client itself is closed already. */
extern void kafka_client_on_close(KafkaClient *client, void (*release)(void *arg), void *arg);
/* Producers: called by kafka_client_poll with each event that tells of delivered or lost messages. No error may be raised there. */
extern void kafka_client_on_report(KafkaClient *client, void (*report)(void *arg, struct rd_kafka_op_s *event), void *arg);
extern struct rd_kafka_s *kafka_client_handle(KafkaClient *client);

/* The pipe: readable when a watched queue, or the handle itself, has something. Drain it before looking, never after. */
extern pgsocket kafka_client_socket(KafkaClient *client);
extern void kafka_client_watch(KafkaClient *client, struct rd_kafka_queue_s *queue);
extern void kafka_client_drain_socket(KafkaClient *client);
/* Waits for the pipe at most so long; interrupts and the postmaster's death are served. */
extern void kafka_client_wait(KafkaClient *client, long timeout_ms);
/* After waiting and draining: makes the pipe readable and gives the latch back, so whoever waits next looks around. */
extern void kafka_client_kick(KafkaClient *client);

/* Serves log lines and errors of the handle; to be called now and then. */
extern void kafka_client_poll(KafkaClient *client);
/* What the handle complained about last, for errdetail; "" when nothing. Never holds a secret. */
extern const char *kafka_client_complaint(KafkaClient *client, int *code);
extern void kafka_client_forget_complaint(KafkaClient *client); /* a request has succeeded */

/*
 * A request that may block. Filled by the caller with malloc'ed memory only, run in a thread; run() may use nothing
 * of Postgres. kafka_client_call returns true when it is done within the time (read the results, then
 * kafka_call_release), false if it is not (the thread keeps its share; the caller just forgets the call). Interrupts
 * are served while waiting.
 */
typedef struct KafkaCall
{
	void (*run)(struct KafkaCall *call, struct rd_kafka_s *handle, int timeout_ms);
	void (*destroy)(struct KafkaCall *call); /* frees it, results included */
	/* private */
	struct SharedHandle *shared;
	int timeout_ms;
	int references;
	int done;
} KafkaCall;

extern bool kafka_client_call(KafkaClient *client, KafkaCall *call, int timeout_ms);
extern void kafka_call_release(KafkaCall *call);

/* ---- error.c ---- */

/* For use inside ereport: the errhint that belongs to a complaint, if there is one. */
extern int kafka_complaint_hint(const char *complaint);

/* SQLSTATE for a librdkafka error code: away 08006, credentials 28000, no right 42501, no topic 42704, … */
extern int kafka_sqlstate(int code);

#endif
