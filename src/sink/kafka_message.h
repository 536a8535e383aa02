/* kafka_message.h: a row → a Kafka message, by the names of its columns. */
#ifndef STREAM_SINK_KAFKA_MESSAGE_H
#define STREAM_SINK_KAFKA_MESSAGE_H

#include "sink/sink.h"

#include <librdkafka/rdkafka.h>

typedef struct KafkaMessage
{
	const char *topic;	   /* NULL: the sink's */
	int32 partition;	   /* RD_KAFKA_PARTITION_UA: by the key */
	const void *key;	   /* NULL: none */
	size_t key_size;
	const void *value;	   /* NULL: a tombstone */
	size_t value_size;
	rd_kafka_headers_t *headers; /* whoever hands them on to librdkafka sets NULL here */
} KafkaMessage;

typedef struct MessageShape MessageShape;

/* Which columns are what; refuses queries whose columns make no message. In CurrentMemoryContext. */
extern MessageShape *kafka_message_shape(SinkDef *def, SinkShape *shape);
/* Valid until the next one is made. batch_id: value of the header of that name. */
extern KafkaMessage *kafka_message_make(MessageShape *shape, TupleTableSlot *slot, const char *batch_id);

#endif
