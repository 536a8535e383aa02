/*
 * latency.c: from producing a message to seeing its row. Sends numbered messages at a steady rate and asks the database, over and over,
 * what the highest number visible is; a message's latency ends when an answer covers it.
 * bench_latency SERVERS TOPIC RATE SECONDS CONNINFO QUERY prints milliseconds: p50 p99 p99.9 max. The topic has one partition, so order holds.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <libpq-fe.h>
#include <librdkafka/rdkafka.h>

#define WARM_UP 0.2	 /* share of the messages that do not count */
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
		rd_kafka_conf_set(conf, "linger.ms", "0", error, sizeof(error)) || rd_kafka_conf_set(conf, "log_level", "3", error, sizeof(error)))
		die("settings", error);
	producer = rd_kafka_new(RD_KAFKA_PRODUCER, conf, error, sizeof(error));
	if (!producer)
		die("no producer", error);
	return producer;
}

static void
send_message(rd_kafka_t *producer, const char *topic, long number)
{
	char value[256];
	struct timespec t;
	struct tm tm;
	char stamp[32];
	int len;

	clock_gettime(CLOCK_REALTIME, &t);
	strftime(stamp, sizeof(stamp), "%Y-%m-%dT%H:%M:%S", gmtime_r(&t.tv_sec, &tm));
	len = snprintf(value, sizeof(value), "{\"store_id\": \"store-%04ld\", \"amount\": %ld.25, \"ts\": \"%s.%06ldZ\", \"seq\": %ld}", number % 100,
				   number % 1000, stamp, t.tv_nsec / 1000, number);
	if (rd_kafka_producev(producer, RD_KAFKA_V_TOPIC(topic), RD_KAFKA_V_PARTITION(0), RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY),
						  RD_KAFKA_V_VALUE(value, len), RD_KAFKA_V_END))
		die("produce", rd_kafka_err2str(rd_kafka_last_error()));
	rd_kafka_poll(producer, 0);
}

static long
highest_visible(PGconn *connection)
{
	PGresult *result = PQexecPrepared(connection, "visible", 0, NULL, NULL, NULL, 0);
	long highest;

	if (PQresultStatus(result) != PGRES_TUPLES_OK)
		die("query", PQerrorMessage(connection));
	highest = PQgetisnull(result, 0, 0) ? -1 : atol(PQgetvalue(result, 0, 0));
	PQclear(result);
	return highest;
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
	long count, produced = 0, visible = -1, skipped;

	if (argc != 7)
		die("usage", "bench_latency SERVERS TOPIC RATE SECONDS CONNINFO QUERY");
	rate = atof(argv[3]);
	count = (long) (rate * atof(argv[4]));
	sent = malloc(sizeof(double) * count);
	latency = malloc(sizeof(double) * count);
	connection = PQconnectdb(argv[5]);
	if (PQstatus(connection) != CONNECTION_OK)
		die("connect", PQerrorMessage(connection));
	prepared = PQprepare(connection, "visible", argv[6], 0, NULL);
	if (PQresultStatus(prepared) != PGRES_COMMAND_OK)
		die("query", PQerrorMessage(connection));
	PQclear(prepared);
	producer = open_producer(argv[1]);

	begin = now();
	while (visible < count - 1)
	{
		struct timespec pause = {0, 300000};
		long highest;

		for (; produced < count && now() >= begin + produced / rate; produced++)
		{
			sent[produced] = now();
			send_message(producer, argv[2], produced);
		}
		highest = highest_visible(connection);
		for (; visible < highest && visible < count - 1; visible++)
			latency[visible + 1] = now() - sent[visible + 1];
		if (now() > begin + count / rate + GIVE_UP)
			die("gave up", "not all messages became visible");
		nanosleep(&pause, NULL);
	}
	skipped = (long) (count * WARM_UP);
	qsort(latency + skipped, count - skipped, sizeof(double), by_value);
	count -= skipped;
	latency += skipped;
	printf("%.2f %.2f %.2f %.2f\n", latency[count / 2] * 1e3, latency[count * 99 / 100] * 1e3, latency[count * 999 / 1000] * 1e3,
		   latency[count - 1] * 1e3);
	PQfinish(connection);
	rd_kafka_flush(producer, 1000);
	rd_kafka_destroy(producer);
	return 0;
}
