/*
 * latency.c: from producing a message to seeing its row. Sends numbered messages at a steady rate over a topic's partitions and either asks
 * the database, over and over, for the highest number visible of each, or reads the topic a query writes to; a message's latency ends when
 * an answer covers it, or its "seq" is read.
 * bench_latency SERVERS TOPIC PARTITIONS RATE SECONDS CONNINFO QUERY [FILE] prints milliseconds: p50 p99 p99.9 max. Message n goes to
 * partition n % PARTITIONS; QUERY gives numbers, at least the highest of each partition. With the word topic for CONNINFO, QUERY names the
 * topic; with the word nothing, messages are sent and that is all. FILE has the messages, one a line, for those made up here; they are many, so
 * they wait for company as long as Kafka's own producers do: a broker that gets them one by one takes more processor time than who reads them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <libpq-fe.h>
#include <librdkafka/rdkafka.h>

#define WARM_UP 0.2 /* share of the messages that do not count */
#define PARTS 3
#define STORES 96
#define GIVE_UP 30.0 /* seconds after the last message */

static double
now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static void
die(const char *what, const char *why)
{
	fprintf(stderr, "bench_latency: %s: %s\n", what, why);
	exit(1);
}

static rd_kafka_t *
open_producer(const char *servers, const char *linger_ms)
{
	rd_kafka_conf_t *conf = rd_kafka_conf_new();
	char error[512];
	rd_kafka_t *producer;

	if (rd_kafka_conf_set(conf, "bootstrap.servers", servers, error, sizeof(error)) ||
		rd_kafka_conf_set(conf, "linger.ms", linger_ms, error, sizeof(error)) ||
		rd_kafka_conf_set(conf, "queue.buffering.max.messages", "1000000", error, sizeof(error)) ||
		rd_kafka_conf_set(conf, "log_level", "3", error, sizeof(error)))
		die("settings", error);
	producer = rd_kafka_new(RD_KAFKA_PRODUCER, conf, error, sizeof(error));
	if (!producer)
		die("no producer", error);
	return producer;
}

/* The next line of the file, without its end, or a message made up here. */
static int
next_message(FILE *file, char *value, size_t room, long number)
{
	struct timespec t;
	struct tm tm;
	char stamp[32];

	if (file)
	{
		if (!fgets(value, room, file))
			die("messages", "the file has too few");
		return (int) strcspn(value, "\n");
	}
	clock_gettime(CLOCK_REALTIME, &t);
	strftime(stamp, sizeof(stamp), "%Y-%m-%dT%H:%M:%S", gmtime_r(&t.tv_sec, &tm));
	return snprintf(value, room,
					"{\"store_id\": \"store-%04ld\", \"amount\": %ld.25, \"ts\": \"%s.%06ldZ\", \"seq\": %ld}",
					number % STORES, number % 1000, stamp, t.tv_nsec / 1000, number);
}

static void
send_message(rd_kafka_t *producer, const char *topic, int partition, FILE *file, long number)
{
	char value[2048];
	int len = next_message(file, value, sizeof(value), number);

	if (rd_kafka_producev(producer, RD_KAFKA_V_TOPIC(topic), RD_KAFKA_V_PARTITION(partition),
						  RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY), RD_KAFKA_V_VALUE(value, len), RD_KAFKA_V_END))
		die("produce", rd_kafka_err2str(rd_kafka_last_error()));
	rd_kafka_poll(producer, 0);
}

typedef struct Watch
{
	const double *sent; /* seconds, by number */
	double *latency;	/* seconds; negative while the message is not visible */
	long count;
	long *visible; /* by partition: the next one to become visible */
	int partitions;
	PGconn *connection; /* one of these two */
	rd_kafka_t *consumer;
} Watch;

static void
open_connection(Watch *watch, const char *conninfo, const char *query)
{
	PGresult *prepared;

	watch->connection = PQconnectdb(conninfo);
	if (PQstatus(watch->connection) != CONNECTION_OK)
		die("connect", PQerrorMessage(watch->connection));
	prepared = PQprepare(watch->connection, "visible", query, 0, NULL);
	if (PQresultStatus(prepared) != PGRES_COMMAND_OK)
		die("query", PQerrorMessage(watch->connection));
	PQclear(prepared);
}

/* A broker knows a new topic a moment before it leads its partitions. */
static int64_t
end_of(rd_kafka_t *consumer, const char *topic, int partition)
{
	double until = now() + GIVE_UP;
	int64_t low, high;
	rd_kafka_resp_err_t error;

	while ((error = rd_kafka_query_watermark_offsets(consumer, topic, partition, &low, &high, 10000)) && now() < until)
		nanosleep(&(struct timespec){0, 50000000}, NULL);
	if (error)
		die(topic, rd_kafka_err2str(error));
	return high;
}

/* All partitions of the topic, from where they end now. */
static void
open_consumer(Watch *watch, const char *servers, const char *topic)
{
	const char *settings[] = {"bootstrap.servers", servers, "group.id", "bench", "fetch.wait.max.ms", "2",
							  "isolation.level", "read_committed", "log_level", "3", NULL};
	rd_kafka_conf_t *conf = rd_kafka_conf_new();
	const struct rd_kafka_metadata *metadata;
	rd_kafka_topic_partition_list_t *from = rd_kafka_topic_partition_list_new(8);
	char error[512];

	for (const char **s = settings; *s; s += 2)
		if (rd_kafka_conf_set(conf, s[0], s[1], error, sizeof(error)))
			die(s[0], error);
	watch->consumer = rd_kafka_new(RD_KAFKA_CONSUMER, conf, error, sizeof(error));
	if (!watch->consumer)
		die("no consumer", error);
	rd_kafka_poll_set_consumer(watch->consumer);
	if (rd_kafka_metadata(watch->consumer, 1, NULL, &metadata, 10000))
		die("topics", "no answer");
	for (int i = 0; i < metadata->topic_cnt; i++)
		for (int p = 0; !strcmp(metadata->topics[i].topic, topic) && p < metadata->topics[i].partition_cnt; p++)
			rd_kafka_topic_partition_list_add(from, topic, p)->offset = end_of(watch->consumer, topic, p);
	rd_kafka_metadata_destroy(metadata);
	if (from->cnt == 0 || rd_kafka_assign(watch->consumer, from))
		die(topic, "cannot be read");
	rd_kafka_topic_partition_list_destroy(from);
}

static long
cover(Watch *watch, long number, double seen)
{
	if (number < 0 || number >= watch->count || watch->latency[number] >= 0)
		return 0;
	watch->latency[number] = seen - watch->sent[number];
	return 1;
}

/* Ends the latencies of what has become visible; returns how many messages that were. */
static long
look_at_table(Watch *watch)
{
	PGresult *result = PQexecPrepared(watch->connection, "visible", 0, NULL, NULL, NULL, 0);
	double seen = now();
	long count = 0;

	if (PQresultStatus(result) != PGRES_TUPLES_OK)
		die("query", PQerrorMessage(watch->connection));
	for (int i = 0; i < PQntuples(result); i++)
	{
		long highest = PQgetisnull(result, i, 0) ? -1 : atol(PQgetvalue(result, i, 0));
		long *next = &watch->visible[highest < 0 ? 0 : highest % watch->partitions];

		for (; *next <= highest; *next += watch->partitions)
			count += cover(watch, *next, seen);
	}
	PQclear(result);
	return count;
}

static long
look_at_topic(Watch *watch)
{
	rd_kafka_message_t *message;
	long count = 0;

	while ((message = rd_kafka_consumer_poll(watch->consumer, 0)))
	{
		char text[512];
		const char *number;

		snprintf(text, sizeof(text), "%.*s", message->err ? 0 : (int) message->len, (const char *) message->payload);
		if ((number = strstr(text, "\"seq\":")))
			count += cover(watch, atol(number + strlen("\"seq\":")), now());
		rd_kafka_message_destroy(message);
	}
	return count;
}

static long
look(Watch *watch, long produced)
{
	long count = 0;

	if (watch->connection)
		return look_at_table(watch);
	if (watch->consumer)
		return look_at_topic(watch);
	for (long *next = &watch->visible[0]; *next < produced; ++*next)
		count += cover(watch, *next, now());
	return count;
}

static int
by_value(const void *a, const void *b)
{
	const double *left = a, *right = b;

	return (*left > *right) - (*left < *right);
}

/* What is usual, p50 and p99, by the median of three parts of the time: one hiccup of the machine does not count. The worst is of all of it. */
static void
print_percentiles(double *latency, long count)
{
	double p50[PARTS], p99[PARTS];
	long n = count / PARTS;

	for (int i = 0; i < PARTS; i++)
	{
		qsort(latency + i * n, n, sizeof(double), by_value);
		p50[i] = latency[i * n + n / 2];
		p99[i] = latency[i * n + n * 99 / 100];
	}
	qsort(p50, PARTS, sizeof(double), by_value);
	qsort(p99, PARTS, sizeof(double), by_value);
	qsort(latency, count, sizeof(double), by_value);
	printf("%.2f %.2f %.2f %.2f\n", p50[PARTS / 2] * 1e3, p99[PARTS / 2] * 1e3, latency[count * 999 / 1000] * 1e3,
		   latency[count - 1] * 1e3);
}

int
main(int argc, char **argv)
{
	Watch watch = {0};
	rd_kafka_t *producer;
	FILE *file = NULL;
	double rate, begin, *sent;
	long produced = 0, covered = 0, skipped;

	if ((argc != 8 && argc != 9) || (watch.partitions = atoi(argv[3])) < 1)
		die("usage", "bench_latency SERVERS TOPIC PARTITIONS RATE SECONDS CONNINFO|topic|nothing QUERY [FILE]");
	rate = atof(argv[4]);
	watch.count = (long) (rate * atof(argv[5]));
	watch.sent = sent = malloc(sizeof(double) * watch.count);
	watch.latency = malloc(sizeof(double) * watch.count);
	watch.visible = malloc(sizeof(long) * watch.partitions);
	for (long i = 0; i < watch.count; i++)
		watch.latency[i] = -1;
	for (int i = 0; i < watch.partitions; i++)
		watch.visible[i] = i;
	if (strcmp(argv[6], "topic") == 0)
		open_consumer(&watch, argv[1], argv[7]);
	else if (strcmp(argv[6], "nothing") != 0)
		open_connection(&watch, argv[6], argv[7]);
	if (argc == 9 && !(file = fopen(argv[8], "r")))
		die(argv[8], "cannot be read");
	producer = open_producer(argv[1], file ? "5" : "0");

	begin = now();
	while (covered < watch.count)
	{
		struct timespec pause = {0, 300000};

		for (; produced < watch.count && now() >= begin + produced / rate; produced++)
		{
			sent[produced] = now();
			send_message(producer, argv[2], (int) (produced % watch.partitions), file, produced);
		}
		covered += look(&watch, produced);
		if (now() > begin + watch.count / rate + GIVE_UP)
			die("gave up", "not all messages became visible");
		nanosleep(&pause, NULL);
	}
	skipped = (long) (watch.count * WARM_UP);
	if (watch.connection || watch.consumer)
		print_percentiles(watch.latency + skipped, watch.count - skipped);
	PQfinish(watch.connection);
	if (watch.consumer)
	{
		rd_kafka_consumer_close(watch.consumer);
		rd_kafka_destroy(watch.consumer);
	}
	rd_kafka_flush(producer, 1000);
	rd_kafka_destroy(producer);
	return 0;
}
