/*
 * latency.c: from producing a message to seeing its row. Sends numbered messages at a steady rate over a topic's partitions and asks the
 * database, over and over, for the highest number visible of each; a message's latency ends when an answer covers it.
 * bench_latency SERVERS TOPIC PARTITIONS RATE SECONDS CONNINFO QUERY prints milliseconds: p50 p99 p99.9 max. Message n goes to partition
 * n % PARTITIONS; QUERY gives numbers, at least the highest of each partition.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <libpq-fe.h>
#include <librdkafka/rdkafka.h>

#define WARM_UP 0.2 /* share of the messages that do not count */
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
open_producer(const char *servers)
{
	rd_kafka_conf_t *conf = rd_kafka_conf_new();
	char error[512];
	rd_kafka_t *producer;

	if (rd_kafka_conf_set(conf, "bootstrap.servers", servers, error, sizeof(error)) ||
		rd_kafka_conf_set(conf, "linger.ms", "0", error, sizeof(error)) ||
		rd_kafka_conf_set(conf, "log_level", "3", error, sizeof(error)))
		die("settings", error);
	producer = rd_kafka_new(RD_KAFKA_PRODUCER, conf, error, sizeof(error));
	if (!producer)
		die("no producer", error);
	return producer;
}

static void
send_message(rd_kafka_t *producer, const char *topic, int partition, long number)
{
	char value[256];
	struct timespec t;
	struct tm tm;
	char stamp[32];
	int len;

	clock_gettime(CLOCK_REALTIME, &t);
	strftime(stamp, sizeof(stamp), "%Y-%m-%dT%H:%M:%S", gmtime_r(&t.tv_sec, &tm));
	len = snprintf(value, sizeof(value),
				   "{\"store_id\": \"store-%04ld\", \"amount\": %ld.25, \"ts\": \"%s.%06ldZ\", \"seq\": %ld}",
				   number % STORES, number % 1000, stamp, t.tv_nsec / 1000, number);
	if (rd_kafka_producev(producer, RD_KAFKA_V_TOPIC(topic), RD_KAFKA_V_PARTITION(partition),
						  RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY), RD_KAFKA_V_VALUE(value, len), RD_KAFKA_V_END))
		die("produce", rd_kafka_err2str(rd_kafka_last_error()));
	rd_kafka_poll(producer, 0);
}

/* Ends the latencies of what has become visible; returns how many messages that were. */
static long
look(PGconn *connection, int partitions, long *visible, const double *sent, double *latency)
{
	PGresult *result = PQexecPrepared(connection, "visible", 0, NULL, NULL, NULL, 0);
	double seen = now();
	long count = 0;

	if (PQresultStatus(result) != PGRES_TUPLES_OK)
		die("query", PQerrorMessage(connection));
	for (int i = 0; i < PQntuples(result); i++)
	{
		long highest = PQgetisnull(result, i, 0) ? -1 : atol(PQgetvalue(result, i, 0));
		int partition = highest < 0 ? 0 : (int) (highest % partitions);

		for (; visible[partition] <= highest; visible[partition] += partitions, count++)
			latency[visible[partition]] = seen - sent[visible[partition]];
	}
	PQclear(result);
	return count;
}

static int
by_value(const void *a, const void *b)
{
	const double *left = a, *right = b;

	return (*left > *right) - (*left < *right);
}

int
main(int argc, char **argv)
{
	PGconn *connection;
	PGresult *prepared;
	rd_kafka_t *producer;
	double rate, begin, *sent, *latency;
	long count, produced = 0, covered = 0, skipped, *visible;
	int partitions;

	if (argc != 8 || (partitions = atoi(argv[3])) < 1)
		die("usage", "bench_latency SERVERS TOPIC PARTITIONS RATE SECONDS CONNINFO QUERY");
	rate = atof(argv[4]);
	count = (long) (rate * atof(argv[5]));
	sent = malloc(sizeof(double) * count);
	latency = malloc(sizeof(double) * count);
	visible = malloc(sizeof(long) * partitions); /* the next one to become visible, by partition */
	for (int i = 0; i < partitions; i++)
		visible[i] = i;
	connection = PQconnectdb(argv[6]);
	if (PQstatus(connection) != CONNECTION_OK)
		die("connect", PQerrorMessage(connection));
	prepared = PQprepare(connection, "visible", argv[7], 0, NULL);
	if (PQresultStatus(prepared) != PGRES_COMMAND_OK)
		die("query", PQerrorMessage(connection));
	PQclear(prepared);
	producer = open_producer(argv[1]);

	begin = now();
	while (covered < count)
	{
		struct timespec pause = {0, 300000};

		for (; produced < count && now() >= begin + produced / rate; produced++)
		{
			sent[produced] = now();
			send_message(producer, argv[2], (int) (produced % partitions), produced);
		}
		covered += look(connection, partitions, visible, sent, latency);
		if (now() > begin + count / rate + GIVE_UP)
			die("gave up", "not all messages became visible");
		nanosleep(&pause, NULL);
	}
	skipped = (long) (count * WARM_UP);
	qsort(latency + skipped, count - skipped, sizeof(double), by_value);
	count -= skipped;
	latency += skipped;
	printf("%.2f %.2f %.2f %.2f\n", latency[count / 2] * 1e3, latency[count * 99 / 100] * 1e3,
		   latency[count * 999 / 1000] * 1e3, latency[count - 1] * 1e3);
	PQfinish(connection);
	rd_kafka_flush(producer, 1000);
	rd_kafka_destroy(producer);
	return 0;
}
