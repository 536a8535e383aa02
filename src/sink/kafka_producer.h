/*
 * kafka_producer.h: a producer and its batches. Idempotent: no message twice by a retry of librdkafka's own. With an identity also
 * transactional: a batch is in the topic as a whole or not at all, and the producer knows which batch was the last.
 */
#ifndef STREAM_SINK_KAFKA_PRODUCER_H
#define STREAM_SINK_KAFKA_PRODUCER_H

#include "sink/kafka_message.h"

typedef struct ProducerConfig
{
	const char *owner;		/* names the sink in messages: 'the Kafka sink of query "q"' */
	const char *topic;		/* of messages that name none; its partition 0 keeps the mark of the last batch */
	List *properties;		/* DefElem: of server, user mapping, sink; later ones win */
	const char *identity;	/* transactional; NULL: not */
} ProducerConfig;

typedef struct KafkaProducer KafkaProducer;

/*
 * A producer with nothing on its way: the present one, unless its batch failed or the config has changed. NULL: none yet; a worker keeps one over
 * plans, elsewhere it dies with CurrentMemoryContext. Waits for the brokers when transactional.
 */
extern KafkaProducer *kafka_producer_get(KafkaProducer *present, const ProducerConfig *config);

/* Was this batch sent and committed before? 55000 when another range of the source went out under the same id. */
extern bool kafka_producer_has_sent(KafkaProducer *producer, const BatchInfo *batch);
extern void kafka_producer_send(KafkaProducer *producer, KafkaMessage *message); /* waits while the queue is full */
/* All messages since the last commit are acknowledged by all in-sync replicas, or it is an error: 08006 when trying again may help. */
extern void kafka_producer_commit(KafkaProducer *producer, const BatchInfo *batch);

#endif
