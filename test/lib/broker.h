/* broker.h: what the parts of stream_broker share; see broker.c. */
#ifndef STREAM_TEST_BROKER_H
#define STREAM_TEST_BROKER_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include <librdkafka/rdkafka.h>
#include <librdkafka/rdkafka_mock.h>

#define WAIT_MS 60000 /* a bound for machines under load */

extern rd_kafka_mock_cluster_t *cluster; /* NULL with --connect */
extern char servers[1024];
extern rd_kafka_t *producer;	  /* of ordinary messages */
extern rd_kafka_t *transactional; /* of the transaction between begin and commit or abort */
extern long undelivered;

extern void reply(const char *format, ...);
extern double now_seconds(clockid_t clock);
extern rd_kafka_t *make_handle(const char *const *settings);
extern int partition_count(const char *topic);

/* ---- broker_admin.c ---- */
extern void command_create(const char *topic, int partitions);
extern void command_delete(const char *topic);
extern void command_partitions(const char *topic, int total);
extern void command_trim(const char *topic, int partition, int64_t offset);
extern void command_offsets(const char *topic, int partition);
extern void command_ready(void);
extern void command_begin(const char *id);
extern void command_end(bool commit);

#endif
