/* conf.h: the configuration of a Kafka handle. */
#ifndef STREAM_KAFKA_CONF_H
#define STREAM_KAFKA_CONF_H

#include "postgres.h"

#include <librdkafka/rdkafka.h>

#include "kafka/client.h"

/* As kafka_client_open says; the caller's to destroy until a handle is made of it. */
extern rd_kafka_conf_t *kafka_conf_build(KafkaRole role, const char *owner, const KafkaSetting *defaults, List *options, const KafkaSetting *fixed);

#endif
