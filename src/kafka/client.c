/*
 * client.c: life and death of Kafka handles inside a Postgres process.
 *
 * Options → rd_kafka_conf (conf.c) → handle; events → log lines and the last complaint; requests → helper threads; end →
 * bounded destruction. Danger: librdkafka's threads and ours run beside Postgres. They must not take signals,
 * allocate by palloc, report errors, or touch a latch; all they do is write a byte into a pipe. What they share with
 * the process is malloc'ed and counted.
 */
#include "postgres.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <librdkafka/rdkafka.h>

#include "kafka/client.h"
#include "kafka/conf.h"
#include "lib/ilist.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/fd.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "util/clock.h"
#include "utils/memutils.h"

#define CLOSE_WAIT_MS 3000 /* for a handle that is closed */
#define EXIT_WAIT_MS 500   /* for all of them when the process ends */
#define DESCRIPTORS 4	   /* of the two pipes */

/* What threads share with the process; whoever lets go last destroys it. */
typedef struct SharedHandle
{
	rd_kafka_t *rk;
	int references;
	int wake[2]; /* written by librdkafka */
	int done[2]; /* written by helper threads; its end tells that the handle is gone */
} SharedHandle;

struct KafkaClient
{
	dlist_node node; /* in open_clients */
	SharedHandle *shared;
	rd_kafka_queue_t *main_queue;
	void (*release)(void *arg);
	void *release_arg;
	void (*report)(void *arg, rd_kafka_event_t *event);
	void *report_arg;
	KafkaCall *call; /* being waited for, or forgotten by an error */
	MemoryContextCallback callback;
	rd_kafka_resp_err_t complaint_code;
	char complaint[512];
};

static dlist_head open_clients = DLIST_STATIC_INIT(open_clients);
static bool exit_registered = false;
static bool latch_taken = false; /* a wait of ours reset the latch: somebody else may have meant it */

/* ---- in any thread ---- */

static void
shared_release(SharedHandle *shared)
{
	if (__atomic_sub_fetch(&shared->references, 1, __ATOMIC_ACQ_REL) > 0)
		return;
	rd_kafka_destroy_flags(shared->rk, RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE);
	for (int i = 0; i < 2; i++)
	{
		close(shared->wake[i]);
		close(shared->done[i]);
	}
	free(shared);
}

void
kafka_call_release(KafkaCall *call)
{
	if (__atomic_sub_fetch(&call->references, 1, __ATOMIC_ACQ_REL) == 0)
		call->destroy(call);
}

static void *
destroyer_main(void *arg)
{
	shared_release(arg);
	return NULL;
}

static void *
caller_main(void *arg)
{
	KafkaCall *call = arg;
	SharedHandle *shared = call->shared;

	call->run(call, shared->rk, call->timeout_ms);
	__atomic_store_n(&call->done, 1, __ATOMIC_RELEASE);
	(void) !write(shared->done[1], "c", 1);
	kafka_call_release(call);
	shared_release(shared);
	return NULL;
}

/* ---- in the process ---- */

static bool
thread_start(void *(*main)(void *), void *arg)
{
	pthread_t thread;
	pthread_attr_t attributes;
	sigset_t all, before;
	int error;

	sigfillset(&all);
	pthread_attr_init(&attributes);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	error = pthread_create(&thread, &attributes, main, arg);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attributes);
	return error == 0;
}

static bool
pipe_drain(int fd)
{
	char bytes[256];
	ssize_t n;
	bool any = false;

	while ((n = read(fd, bytes, sizeof(bytes))) > 0)
		any = true;
	return any || n == 0;
}

/*
 * Lets go of everything. The handle itself is destroyed by a thread: with a broker away that can take long, and we
 * wait only so long. Runs while a transaction aborts or the process ends, so nothing here may raise an error.
 */
static void
client_release(KafkaClient *client, int wait_ms)
{
	SharedHandle *shared = client->shared;
	int64 until = clock_monotonic_us() + wait_ms * INT64CONST(1000);
	int watch;

	if (!shared)
		return;
	client->shared = NULL;
	dlist_delete(&client->node);
	if (client->release)
		client->release(client->release_arg);
	if (client->call)
		kafka_call_release(client->call);
	client->call = NULL;
	rd_kafka_queue_destroy(client->main_queue);
	for (int i = 0; i < DESCRIPTORS; i++)
		ReleaseExternalFD();

	watch = dup(shared->done[0]);
	if (!thread_start(destroyer_main, shared))
		shared_release(shared);
	while (watch >= 0)
	{
		struct pollfd fd = {.fd = watch, .events = POLLIN};
		int64 left = (until - clock_monotonic_us()) / 1000;
		char byte;

		/* End of file: the last writer is gone, and the handle with it. */
		if (left <= 0 || (poll(&fd, 1, (int) left) > 0 && read(watch, &byte, 1) == 0))
			break;
	}
	if (watch >= 0)
		close(watch);
}

static void
client_context_gone(void *arg)
{
	client_release(arg, CLOSE_WAIT_MS);
}

static void
clients_at_exit(int code, Datum arg)
{
	dlist_mutable_iter iter;

	dlist_foreach_modify(iter, &open_clients)
		client_release(dlist_container(KafkaClient, node, iter.cur), EXIT_WAIT_MS);
}

static SharedHandle *
shared_create(void)
{
	SharedHandle *shared = calloc(1, sizeof(SharedHandle));
	int error;

	if (shared && pipe2(shared->wake, O_NONBLOCK | O_CLOEXEC) == 0)
	{
		if (pipe2(shared->done, O_NONBLOCK | O_CLOEXEC) == 0)
		{
			shared->references = 1;
			return shared;
		}
		error = errno;
		close(shared->wake[0]);
		close(shared->wake[1]);
		errno = error;
	}
	error = errno;
	free(shared);
	errno = error;
	return NULL;
}

KafkaClient *
kafka_client_open(KafkaRole role, const char *owner, const KafkaSetting *defaults, List *options,
				  const KafkaSetting *fixed)
{
	rd_kafka_conf_t *conf = kafka_conf_build(role, owner, defaults, options, fixed);
	KafkaClient *client = palloc0(sizeof(KafkaClient));
	SharedHandle *shared = shared_create();
	sigset_t all, before;
	char error[512];

	if (!shared)
	{
		rd_kafka_conf_destroy(conf);
		ereport(ERROR, errcode_for_file_access(),
				errmsg("could not make a pipe for the Kafka client of %s: %m", owner));
	}
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	shared->rk =
		rd_kafka_new(role == KAFKA_PRODUCER ? RD_KAFKA_PRODUCER : RD_KAFKA_CONSUMER, conf, error, sizeof(error));
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (!shared->rk)
	{
		rd_kafka_conf_destroy(conf);
		for (int i = 0; i < 2; i++)
		{
			close(shared->wake[i]);
			close(shared->done[i]);
		}
		free(shared);
		ereport(ERROR, errcode(ERRCODE_FDW_UNABLE_TO_ESTABLISH_CONNECTION),
				errmsg("could not make a Kafka client for %s", owner), errdetail("%s.", error),
				strstr(error, "sasl.username")
					? errhint("Put them into a user mapping of role \"%s\" (CREATE USER MAPPING).",
							  GetUserNameFromId(GetUserId(), false))
				: strstr(error, "kerberos") ? errhint("Set \"sasl.mechanisms\" of the server to PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512.")
											: 0);
	}
	for (int i = 0; i < DESCRIPTORS; i++)
		ReserveExternalFD();
	client->shared = shared;
	client->callback.func = client_context_gone;
	client->callback.arg = client;
	MemoryContextRegisterResetCallback(CurrentMemoryContext, &client->callback);
	dlist_push_tail(&open_clients, &client->node);
	if (!exit_registered)
		before_shmem_exit(clients_at_exit, 0);
	exit_registered = true;

	rd_kafka_set_log_queue(shared->rk, NULL);
	client->main_queue = rd_kafka_queue_get_main(shared->rk);
	return client;
}

void
kafka_client_close(KafkaClient *client)
{
	client_release(client, CLOSE_WAIT_MS);
}

void
kafka_client_on_close(KafkaClient *client, void (*release)(void *arg), void *arg)
{
	client->release = release;
	client->release_arg = arg;
}

void
kafka_client_on_report(KafkaClient *client, void (*report)(void *arg, rd_kafka_event_t *event), void *arg)
{
	client->report = report;
	client->report_arg = arg;
}

rd_kafka_t *
kafka_client_handle(KafkaClient *client)
{
	return client->shared->rk;
}

pgsocket
kafka_client_socket(KafkaClient *client)
{
	rd_kafka_queue_io_event_enable(client->main_queue, client->shared->wake[1], "m", 1);
	return client->shared->wake[0];
}

void
kafka_client_watch(KafkaClient *client, rd_kafka_queue_t *queue)
{
	rd_kafka_queue_io_event_enable(queue, client->shared->wake[1], "q", 1);
}

void
kafka_client_drain_socket(KafkaClient *client)
{
	pipe_drain(client->shared->wake[0]);
}

/* Waits for a pipe, our latch or the time; the latch is reset and interrupts are served. */
static void
wait_readable(int fd, long timeout_ms)
{
	int events = WaitLatchOrSocket(MyLatch, WL_LATCH_SET | WL_SOCKET_READABLE | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, fd,
								   timeout_ms, PG_WAIT_EXTENSION);

	if (events & WL_LATCH_SET)
	{
		ResetLatch(MyLatch);
		latch_taken = true;
	}
	CHECK_FOR_INTERRUPTS();
}

static void
latch_give_back(void)
{
	if (latch_taken)
		SetLatch(MyLatch);
	latch_taken = false;
}

void
kafka_client_kick(KafkaClient *client)
{
	(void) !write(client->shared->wake[1], "k", 1);
	latch_give_back();
}

void
kafka_client_wait(KafkaClient *client, long timeout_ms)
{
	wait_readable(client->shared->wake[0], timeout_ms);
}

/*
 * Keeps the complaint that explains most: refused credentials or certificates until a request succeeds; that all
 * brokers are down is only what follows from something else.
 */
static void
client_complain(KafkaClient *client, rd_kafka_resp_err_t code, const char *text)
{
	ereport(DEBUG1, errmsg_internal("Kafka client: %s", text));
	if (code == RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN && client->complaint[0])
		return;
	if (kafka_sqlstate(client->complaint_code) == ERRCODE_INVALID_AUTHORIZATION_SPECIFICATION &&
		kafka_sqlstate(code) != ERRCODE_INVALID_AUTHORIZATION_SPECIFICATION)
		return;
	client->complaint_code = code;
	strlcpy(client->complaint, text, sizeof(client->complaint));
}

void
kafka_client_poll(KafkaClient *client)
{
	rd_kafka_event_t *event;

	while ((event = rd_kafka_queue_poll(client->main_queue, 0)))
	{
		const char *facility, *text;
		int level;

		switch (rd_kafka_event_type(event))
		{
			case RD_KAFKA_EVENT_ERROR:
				client_complain(client, rd_kafka_event_error(event), rd_kafka_event_error_string(event));
				break;
			case RD_KAFKA_EVENT_LOG:
				if (rd_kafka_event_log(event, &facility, &text, &level) == 0)
					ereport(DEBUG1, errmsg_internal("Kafka client: %s: %s", facility, text));
				break;
			case RD_KAFKA_EVENT_DR:
				if (client->report)
					client->report(client->report_arg, event);
				break;
			default:
				break;
		}
		rd_kafka_event_destroy(event);
	}
}

const char *
kafka_client_complaint(KafkaClient *client, int *code)
{
	kafka_client_poll(client);
	if (code)
		*code = client->complaint_code;
	return client->complaint;
}

void
kafka_client_forget_complaint(KafkaClient *client)
{
	client->complaint_code = RD_KAFKA_RESP_ERR_NO_ERROR;
	client->complaint[0] = '\0';
}

bool
kafka_client_call(KafkaClient *client, KafkaCall *call, int timeout_ms)
{
	SharedHandle *shared = client->shared;
	int64 until = clock_monotonic_us() + (timeout_ms + 100) * INT64CONST(1000);

	if (client->call)
		kafka_call_release(client->call); /* an error left it behind */
	call->shared = shared;
	call->timeout_ms = timeout_ms;
	call->references = 2;
	call->done = 0;
	client->call = call;
	__atomic_add_fetch(&shared->references, 1, __ATOMIC_ACQ_REL);
	if (!thread_start(caller_main, call))
	{
		__atomic_sub_fetch(&shared->references, 1, __ATOMIC_ACQ_REL);
		call->references = 1;
		ereport(ERROR, errcode(ERRCODE_INSUFFICIENT_RESOURCES), errmsg("could not start a thread for a Kafka request"));
	}
	for (;;)
	{
		int64 left = (until - clock_monotonic_us()) / 1000;

		pipe_drain(shared->done[0]);
		if (__atomic_load_n(&call->done, __ATOMIC_ACQUIRE))
		{
			client->call = NULL;
			latch_give_back();
			return true;
		}
		if (left <= 0)
			break;
		wait_readable(shared->done[0], (long) left);
	}
	latch_give_back();
	client->call = NULL;
	kafka_call_release(call);
	return false;
}
