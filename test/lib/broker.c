/*
 * broker.c: a Kafka broker to test and demonstrate against, obeying one command a line from standard input.
 *
 * Without --connect it runs librdkafka's mock cluster in this process (127.0.0.1 only, 5 MB kept per partition, no deletes, no real
 * transactions); with --connect SERVERS it is a producer and administrator of a real one. Every command answers with one line,
 * "ok …" or "error …". Danger: made for tests; nothing here is fit for real traffic.
 *
 *   stream_broker [--connect SERVERS] [--keep] [TOPIC[:PARTITIONS] ...]
 *
 *   create TOPIC PARTITIONS              send TOPIC PARTITION [key=K] [ts=MS] [header=NAME:V]... [value=REST OF LINE]
 *   partitions TOPIC TOTAL               produce TOPIC PARTITION FILE [COUNT]     each line a message; partition -1: round robin
 *   delete TOPIC                         cards TOPIC RATE [COUNT=0 [SEED=1 [START_MS=0 [STEP_MS]]]]   in background
 *   trim TOPIC PARTITION OFFSET          stop                                     ends the generator
 *   hide TOPIC | show TOPIC              as if it did not exist, of the mock cluster
 *   begin ID | commit | abort            flush | offsets TOPIC PARTITION | ready | down | up | quit
 *
 * K and V are text without blanks, or hex:00ff; no key= means NULL, header=NAME without colon means a NULL value, no value= is a
 * tombstone. RATE 0 generates as fast as it can; START_MS 0 stamps the clock, else the n-th transaction is at START_MS + n * STEP_MS
 * (1000 / RATE when not given).
 */
#define _GNU_SOURCE
#include <ctype.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "broker.h"
#include "cards.h"

#define MAX_WORDS 64

static rd_kafka_t *host; /* owns the mock cluster */
rd_kafka_mock_cluster_t *cluster;
char servers[1024];
rd_kafka_t *producer;
rd_kafka_t *transactional;
long undelivered;
static char last_error[256];

typedef struct Generator
{
	bool running;
	char topic[256];
	int partitions;
	double rate;
	long count, sent;
	int64_t start_ms;
	double step_ms;
	double started;
	CardStream cards;
} Generator;

static Generator generator;

double
now_seconds(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

void
reply(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	putchar('\n');
	fflush(stdout);
}

static void
die(const char *what, const char *why)
{
	fprintf(stderr, "stream_broker: %s: %s\n", what, why);
	exit(1);
}

static void
note_undelivered(rd_kafka_resp_err_t error)
{
	if (!error)
		return;
	undelivered++;
	snprintf(last_error, sizeof(last_error), "%s", rd_kafka_err2str(error));
}

/* Delivery reports are served by rd_kafka_poll and rd_kafka_flush, so in this thread. */
static void
delivered(rd_kafka_t *rk, const rd_kafka_message_t *message, void *opaque)
{
	(void) rk;
	(void) opaque;
	note_undelivered(message->err);
}

rd_kafka_t *
make_handle(const char *const *settings)
{
	char error[512];
	rd_kafka_conf_t *conf = rd_kafka_conf_new();
	rd_kafka_t *handle;

	rd_kafka_conf_set_dr_msg_cb(conf, delivered);
	for (; *settings; settings += 2)
		if (rd_kafka_conf_set(conf, settings[0], settings[1], error, sizeof(error)))
			die(settings[0], error);
	handle = rd_kafka_new(RD_KAFKA_PRODUCER, conf, error, sizeof(error));
	if (!handle)
		die("cannot make a producer", error);
	return handle;
}

static void
open_producer(void)
{
	const char *settings[] = {"bootstrap.servers",
							  servers,
							  "linger.ms",
							  "2",
							  "queue.buffering.max.messages",
							  "1000000",
							  "batch.size",
							  "500000",
							  "enable.idempotence",
							  cluster ? "false" : "true",
							  "log_level",
							  "2",
							  NULL};

	producer = make_handle(settings);
}

/*
 * In place of the C library's, for the mock cluster: it leaves Nagle's algorithm on, as no real broker does, and its second answer in a row
 * would wait 40 ms for the acknowledgement of the first.
 */
int
accept(int fd, struct sockaddr *address, socklen_t *len)
{
	int client = accept4(fd, address, len, 0), on = 1;

	if (client >= 0)
		setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	return client;
}

static void
start_cluster(void)
{
	const char *settings[] = {"test.mock.num.brokers", "1", "log_level", "2", NULL};

	host = make_handle(settings);
	cluster = rd_kafka_handle_mock_cluster(host);
	snprintf(servers, sizeof(servers), "%s", rd_kafka_mock_cluster_bootstraps(cluster));
}

/* Waits for everything produced so far; false with last_error set when some of it was not taken. */
static bool
settle(void)
{
	rd_kafka_t *active = transactional ? transactional : producer;
	bool good;

	if (rd_kafka_flush(active, WAIT_MS) != RD_KAFKA_RESP_ERR_NO_ERROR)
	{
		snprintf(last_error, sizeof(last_error), "the broker did not take %d messages in time",
				 rd_kafka_outq_len(active));
		rd_kafka_purge(active, RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT);
		rd_kafka_flush(active, 1000);
		undelivered = 0;
		return false;
	}
	good = undelivered == 0;
	undelivered = 0;
	return good;
}

static rd_kafka_resp_err_t
put(const char *topic, int partition, const char *key, size_t key_len, const char *value, size_t value_len,
	int64_t timestamp_ms, rd_kafka_headers_t *headers)
{
	rd_kafka_t *active = transactional ? transactional : producer;

	for (;;)
	{
		rd_kafka_headers_t *copy = headers ? rd_kafka_headers_copy(headers) : NULL;
		rd_kafka_resp_err_t error;

		error = rd_kafka_producev(active, RD_KAFKA_V_TOPIC(topic), RD_KAFKA_V_PARTITION(partition),
								  RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY), RD_KAFKA_V_KEY(key, key_len),
								  RD_KAFKA_V_VALUE((void *) value, value_len), RD_KAFKA_V_TIMESTAMP(timestamp_ms),
								  RD_KAFKA_V_HEADERS(copy), RD_KAFKA_V_END);
		if (error && copy)
			rd_kafka_headers_destroy(copy);
		if (error != RD_KAFKA_RESP_ERR__QUEUE_FULL)
			return error;
		rd_kafka_poll(active, 10);
	}
}

/* hex:… → bytes in place; anything else stays. */
static size_t
decode_word(char *word)
{
	size_t n = 0;
	unsigned int byte;

	if (strncmp(word, "hex:", 4) != 0)
		return strlen(word);
	for (char *p = word + 4; sscanf(p, "%2x", &byte) == 1; p += 2)
	{
		word[n++] = (char) byte;
		if (!p[1])
			break;
	}
	return n;
}

static void
command_send(char *topic, char *rest)
{
	char *word, *key = NULL, *value = NULL, *partition = strsep(&rest, " ");
	size_t key_len = 0, value_len = 0;
	int64_t timestamp_ms = 0;
	rd_kafka_headers_t *headers = NULL;
	rd_kafka_resp_err_t error;

	while (rest && *rest)
	{
		if (strncmp(rest, "value=", 6) == 0)
		{
			value = rest + 6;
			value_len = decode_word(value);
			break;
		}
		word = strsep(&rest, " ");
		if (strncmp(word, "key=", 4) == 0)
			key_len = decode_word(key = word + 4);
		else if (strncmp(word, "ts=", 3) == 0)
			timestamp_ms = atoll(word + 3);
		else if (strncmp(word, "header=", 7) == 0)
		{
			char *colon = strchr(word + 7, ':');
			size_t len = 0;

			if (colon)
			{
				*colon++ = '\0';
				len = decode_word(colon);
			}
			if (!headers)
				headers = rd_kafka_headers_new(4);
			rd_kafka_header_add(headers, word + 7, -1, colon, len);
		}
	}
	error = partition ? put(topic, atoi(partition), key, key_len, value, value_len, timestamp_ms, headers)
					  : RD_KAFKA_RESP_ERR__INVALID_ARG;
	if (headers)
		rd_kafka_headers_destroy(headers);
	if (error)
		reply("error %s", rd_kafka_err2str(error));
	else if (!settle())
		reply("error %s", last_error);
	else
		reply("ok 1");
}

int
partition_count(const char *topic)
{
	const struct rd_kafka_metadata *metadata;
	rd_kafka_topic_t *handle = rd_kafka_topic_new(producer, topic, NULL);
	int count = 0;

	if (handle && rd_kafka_metadata(producer, 0, handle, &metadata, WAIT_MS) == RD_KAFKA_RESP_ERR_NO_ERROR)
	{
		count = metadata->topic_cnt ? metadata->topics[0].partition_cnt : 0;
		rd_kafka_metadata_destroy(metadata);
	}
	if (handle)
		rd_kafka_topic_destroy(handle);
	return count;
}

static void
command_produce(const char *topic, int partition, const char *path, long limit)
{
	FILE *file = fopen(path, "r");
	char *line = NULL;
	size_t room = 0;
	ssize_t len;
	long sent = 0;
	int partitions = partition < 0 ? partition_count(topic) : 1;

	if (!file || partitions < 1)
	{
		reply("error %s: %s", file ? topic : path, file ? "no such topic" : strerror(errno));
		if (file)
			fclose(file);
		return;
	}
	while ((limit <= 0 || sent < limit) && (len = getline(&line, &room, file)) >= 0)
	{
		rd_kafka_resp_err_t error;

		if (len > 0 && line[len - 1] == '\n')
			len--;
		error = put(topic, partition < 0 ? (int) (sent % partitions) : partition, NULL, 0, line, len, 0, NULL);
		note_undelivered(error);
		if (error)
			break;
		sent++;
	}
	free(line);
	fclose(file);
	if (!settle())
		reply("error %s", last_error);
	else
		reply("ok %ld", sent);
}

/* ---- the generator ---- */

static void
command_cards(char *topic, char **words, int n)
{
	memset(&generator, 0, sizeof(generator));
	snprintf(generator.topic, sizeof(generator.topic), "%s", topic);
	generator.partitions = partition_count(topic);
	if (generator.partitions < 1)
	{
		reply("error no topic %s", topic);
		return;
	}
	generator.rate = n > 0 ? atof(words[0]) : 100;
	generator.count = n > 1 ? atol(words[1]) : 0;
	cards_start(&generator.cards, n > 2 ? strtoull(words[2], NULL, 10) : 1);
	generator.start_ms = n > 3 ? atoll(words[3]) : 0;
	generator.step_ms = n > 4 ? atof(words[4]) : 1000 / (generator.rate > 0 ? generator.rate : 1000);
	generator.started = now_seconds(CLOCK_MONOTONIC);
	generator.running = true;
	reply("ok");
}

/* Produces what is due by now. Returns how long nothing more is due, in milliseconds. */
static int
generate(void)
{
	double elapsed = now_seconds(CLOCK_MONOTONIC) - generator.started;
	long due = generator.rate > 0 ? (long) (elapsed * generator.rate) + 1 : generator.sent + 10000;
	char buffer[512];

	if (generator.count > 0 && due > generator.count)
		due = generator.count;
	while (generator.sent < due)
	{
		double at = generator.start_ms > 0 ? generator.start_ms + generator.sent * generator.step_ms
										   : now_seconds(CLOCK_REALTIME) * 1000;
		CardTransaction card = cards_next(&generator.cards, (int64_t) at);
		int len = cards_format(&card, buffer, sizeof(buffer));

		note_undelivered(put(generator.topic, (int) (card.card % generator.partitions), card.card_id, strlen(card.card_id), buffer, len, 0, NULL));
		generator.sent++;
	}
	rd_kafka_poll(producer, 0);
	if (generator.count > 0 && generator.sent >= generator.count)
	{
		generator.running = false;
		if (settle())
			reply("done %ld", generator.sent);
		else
			reply("error %s", last_error);
	}
	return generator.rate > 0 ? (int) (1000 / generator.rate) + 1 : 0;
}

/* ---- the command loop ---- */

static bool
obey(char *line)
{
	char *rest = line, *verb = strsep(&rest, " "), *topic, *words[MAX_WORDS];
	int n = 0;

	if (strcmp(verb, "quit") == 0)
		return false;
	if (strcmp(verb, "send") == 0)
	{
		topic = strsep(&rest, " ");
		command_send(topic ? topic : "", rest);
		return true;
	}
	topic = rest ? strsep(&rest, " ") : NULL;
	while (rest && n < MAX_WORDS && (words[n] = strsep(&rest, " ")))
		if (*words[n])
			n++;

	if (strcmp(verb, "create") == 0 && n == 1)
		command_create(topic, atoi(words[0]));
	else if (strcmp(verb, "produce") == 0 && n >= 2)
		command_produce(topic, atoi(words[0]), words[1], n > 2 ? atol(words[2]) : 0);
	else if (strcmp(verb, "cards") == 0 && topic)
		command_cards(topic, words, n);
	else if (strcmp(verb, "offsets") == 0 && n == 1)
		command_offsets(topic, atoi(words[0]));
	else if (strcmp(verb, "ready") == 0)
		command_ready();
	else if (strcmp(verb, "flush") == 0)
		reply(settle() ? "ok" : "error undelivered messages");
	else if (strcmp(verb, "stop") == 0)
	{
		generator.running = false;
		reply("ok %ld", generator.sent);
	}
	else if (cluster && (strcmp(verb, "down") == 0 || strcmp(verb, "up") == 0))
	{
		if (*verb == 'd')
			rd_kafka_mock_broker_set_down(cluster, 1);
		else
			rd_kafka_mock_broker_set_up(cluster, 1);
		reply("ok");
	}
	else if (cluster && topic && (strcmp(verb, "hide") == 0 || strcmp(verb, "show") == 0))
	{
		rd_kafka_mock_topic_set_error(cluster, topic, *verb == 'h' ? RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART : RD_KAFKA_RESP_ERR_NO_ERROR);
		reply("ok");
	}
	else if (!cluster && strcmp(verb, "delete") == 0 && topic)
		command_delete(topic);
	else if (!cluster && strcmp(verb, "partitions") == 0 && n == 1)
		command_partitions(topic, atoi(words[0]));
	else if (!cluster && strcmp(verb, "trim") == 0 && n == 2)
		command_trim(topic, atoi(words[0]), atoll(words[1]));
	else if (!cluster && strcmp(verb, "begin") == 0 && topic)
		command_begin(topic);
	else if (!cluster && (strcmp(verb, "commit") == 0 || strcmp(verb, "abort") == 0))
		command_end(*verb == 'c');
	else
		reply("error unknown command, missing words, or not with this kind of broker: %s", verb);
	return true;
}

/* One line from standard input, waited for at most so long; 1 line, 0 nothing yet, -1 end. */
static int
read_line(char **line, int wait_ms)
{
	static char *buffer = NULL;
	static size_t room = 0, used = 0, taken = 0;
	char *end;

	memmove(buffer, buffer ? buffer + taken : buffer, used - taken);
	used -= taken;
	taken = 0;
	for (;;)
	{
		struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
		ssize_t n;

		if (used > 0 && (end = memchr(buffer, '\n', used)))
		{
			*end = '\0';
			*line = buffer;
			taken = end - buffer + 1;
			return 1;
		}
		if (room - used < 65536 && !(buffer = realloc(buffer, room = room * 2 + 65536)))
			die("out of memory", "line too long");
		if (poll(&in, 1, wait_ms) <= 0)
			return 0;
		n = read(STDIN_FILENO, buffer + used, room - used);
		if (n <= 0)
			return -1;
		used += n;
	}
}

int
main(int argc, char **argv)
{
	bool keep = false;
	int first = 1, status = 0;
	char *line;

	for (; first < argc && strncmp(argv[first], "--", 2) == 0; first++)
	{
		if (strcmp(argv[first], "--keep") == 0)
			keep = true; /* stay when standard input ends */
		else if (strcmp(argv[first], "--connect") == 0 && first + 1 < argc)
			snprintf(servers, sizeof(servers), "%s", argv[++first]);
		else
			die(argv[first], "unknown option");
	}
	if (!servers[0])
		start_cluster();
	open_producer();
	for (; first < argc; first++)
	{
		char *colon = strchr(argv[first], ':');

		if (colon)
			*colon++ = '\0';
		if (cluster && rd_kafka_mock_topic_create(cluster, argv[first], colon ? atoi(colon) : 1, 1))
			die(argv[first], "cannot create the topic");
	}
	reply("bootstrap %s", servers);

	while (status >= 0 || keep || generator.running)
	{
		int wait_ms = generator.running ? generate() : (status < 0 ? 1000 : -1);

		if (status < 0)
			poll(NULL, 0, wait_ms);
		else if ((status = read_line(&line, wait_ms)) > 0 && !obey(line))
			break;
	}
	settle();
	rd_kafka_destroy(producer);
	if (host)
		rd_kafka_destroy(host);
	return 0;
}
