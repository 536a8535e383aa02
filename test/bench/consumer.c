/*
 * consumer.c: how fast librdkafka alone hands over the messages of a topic: the limit that `make bench` divides by.
 * bench_consumer SERVERS TOPIC MESSAGES ROUNDS prints, for the median round: messages per second, processor microseconds per message.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <librdkafka/rdkafka.h>

#define AT_ONCE 10000

typedef struct Round
{
	double rate, cpu_us;
} Round;

static double
seconds(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static void
die(const char *what, const char *why)
{
	fprintf(stderr, "bench_consumer: %s: %s\n", what, why);
	exit(1);
}

static rd_kafka_t *
open_consumer(const char *servers)
{
	/* Only what a reader of big ranges would set: large fetches, no waiting for more. */
	const char *settings[] = {"bootstrap.servers",
							  servers,
							  "group.id",
							  "bench",
							  "enable.auto.commit",
							  "false",
							  "fetch.wait.max.ms",
							  "10",
							  "queued.min.messages",
							  "1000000",
							  "queued.max.messages.kbytes",
							  "262144",
							  "log_level",
							  "3",
							  NULL};
	rd_kafka_conf_t *conf = rd_kafka_conf_new();
	char error[512];
	rd_kafka_t *consumer;

	for (const char **s = settings; *s; s += 2)
		if (rd_kafka_conf_set(conf, s[0], s[1], error, sizeof(error)))
			die(s[0], error);
	consumer = rd_kafka_new(RD_KAFKA_CONSUMER, conf, error, sizeof(error));
	if (!consumer)
		die("no consumer", error);
	return consumer;
}

static int
partition_count(rd_kafka_t *consumer, rd_kafka_topic_t *topic)
{
	const struct rd_kafka_metadata *metadata;
	int count;

	if (rd_kafka_metadata(consumer, 0, topic, &metadata, 15000))
		die("no metadata", "is the broker there?");
	count = metadata->topics[0].partition_cnt;
	rd_kafka_metadata_destroy(metadata);
	return count;
}

/* From the first messages handed over to the last, so that connecting does not count. */
static Round
run_round(const char *servers, const char *name, long wanted)
{
	rd_kafka_t *consumer = open_consumer(servers);
	rd_kafka_topic_t *topic = rd_kafka_topic_new(consumer, name, NULL);
	rd_kafka_queue_t *queue = rd_kafka_queue_new(consumer);
	int partitions = partition_count(consumer, topic);
	static rd_kafka_message_t *messages[AT_ONCE];
	double begin = 0, cpu = 0;
	long seen = 0, counted = 0;
	Round round;

	for (int i = 0; i < partitions; i++)
		rd_kafka_consume_start_queue(topic, i, RD_KAFKA_OFFSET_BEGINNING, queue);
	while (seen < wanted)
	{
		ssize_t n = rd_kafka_consume_batch_queue(queue, 5, messages, AT_ONCE);

		if (n > 0 && begin > 0)
			counted += n;
		for (ssize_t i = 0; i < n; i++)
		{
			if (messages[i]->err)
				die("read", rd_kafka_message_errstr(messages[i]));
			seen++;
			rd_kafka_message_destroy(messages[i]);
		}
		if (n > 0 && begin == 0)
		{
			begin = seconds(CLOCK_MONOTONIC);
			cpu = seconds(CLOCK_PROCESS_CPUTIME_ID);
		}
	}
	round.rate = counted / (seconds(CLOCK_MONOTONIC) - begin);
	round.cpu_us = (seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu) * 1e6 / counted;
	for (int i = 0; i < partitions; i++)
		rd_kafka_consume_stop(topic, i);
	rd_kafka_topic_destroy(topic);
	rd_kafka_queue_destroy(queue);
	rd_kafka_destroy(consumer);
	return round;
}

static int
by_rate(const void *a, const void *b)
{
	const Round *left = a, *right = b;

	return (left->rate > right->rate) - (left->rate < right->rate);
}

int
main(int argc, char **argv)
{
	Round rounds[100];
	int count;

	if (argc != 5 || (count = atoi(argv[4])) < 1 || count > 100)
		die("usage", "bench_consumer SERVERS TOPIC MESSAGES ROUNDS");
	for (int i = 0; i < count; i++)
		rounds[i] = run_round(argv[1], argv[2], atol(argv[3]));
	qsort(rounds, count, sizeof(Round), by_rate);
	printf("%.0f %.2f\n", rounds[count / 2].rate, rounds[count / 2].cpu_us);
	return 0;
}
