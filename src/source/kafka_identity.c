/*
 * kafka_identity.c: is this still the topic we have been reading? A topic deleted and created again under its name,
 * once longer than our position, looks like the old one; librdkafka before 2.2 gives no topic id.
 *
 * A position carries, per topic, one message that was read: its partition, offset and timestamp. When a reader
 * starts, that message is fetched again and compared. Danger: a missing message proves nothing (retention,
 * compaction); only another one in its place does.
 */
#include "source/kafka.h"

#include "miscadmin.h"
#include "util/clock.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#define VERIFY_MS 3000
#define VERIFY_SLICE_MS 100
#define AWAIT_SLICES 10

static bool
message_time(const rd_kafka_message_t *message, int64 *ms)
{
	rd_kafka_timestamp_type_t type;

	*ms = rd_kafka_message_timestamp(message, &type);
	return type != RD_KAFKA_TIMESTAMP_NOT_AVAILABLE && *ms >= 0;
}

static bool
evidence_take(KafkaPartition *partition, int index, KafkaEvidence *evidence)
{
	const rd_kafka_message_t *message;
	int64 ms;

	if (index < partition->head || index >= partition->head + partition->count)
		return false;
	message = partition->messages[index];
	if (!message_time(message, &ms))
		return false;
	evidence[partition->topic->number] =
		(KafkaEvidence){.partition = partition->id, .offset = message->offset, .timestamp_ms = ms};
	return true;
}

/*
 * The first message of a range that has not arrived yet. It is about to be read, so waiting for it now costs nothing.
 */
static void
evidence_await(KafkaReader *reader, KafkaPartition *partition, int64 from, int64 end, KafkaEvidence *evidence)
{
	for (int i = 0; i < AWAIT_SLICES && partition->count == 0 && partition->next < end && !partition->error; i++)
	{
		CHECK_FOR_INTERRUPTS();
		kafka_window_pull(reader, partition, 1, VERIFY_SLICE_MS);
	}
	if (partition->count > 0 && partition->messages[partition->head]->offset < end)
		evidence_take(partition, kafka_window_find(partition, from), evidence);
}

/* Of the range: the last message at hand of each topic; else what was known before; else its first message. */
KafkaEvidence *
kafka_evidence_collect(KafkaReader *reader, const int64 *from, const int64 *end, const KafkaEvidence *before)
{
	KafkaEvidence *evidence = palloc(sizeof(KafkaEvidence) * reader->ntopics);

	memcpy(evidence, before, sizeof(KafkaEvidence) * reader->ntopics);
	for (int i = 0; i < reader->npartitions; i++)
		evidence_take(reader->partitions[i], kafka_window_find(reader->partitions[i], end[i]) - 1, evidence);
	for (int i = 0; i < reader->npartitions; i++)
	{
		KafkaPartition *partition = reader->partitions[i];

		if (evidence[partition->topic->number].offset < 0 && end[i] > from[i] && partition->started &&
			from[i] >= partition->start)
			evidence_await(reader, partition, from[i], end[i], evidence);
	}
	return evidence;
}

static KafkaPartition *
evidence_partition(KafkaReader *reader, int topic, const KafkaEvidence *evidence)
{
	for (int i = 0; i < reader->npartitions; i++)
		if (reader->partitions[i]->topic->number == topic && reader->partitions[i]->id == evidence->partition)
			return reader->partitions[i];
	return NULL;
}

/* Fetches the message again. True: another one is in its place, of the time *found_ms. */
static bool
message_differs(KafkaReader *reader, KafkaPartition *partition, const KafkaEvidence *evidence, int64 *found_ms)
{
	int64 until = clock_monotonic_us() + VERIFY_MS * INT64CONST(1000);

	kafka_window_seek(reader, partition, evidence->offset);
	while (clock_monotonic_us() < until)
	{
		CHECK_FOR_INTERRUPTS();
		kafka_window_pull(reader, partition, 1, VERIFY_SLICE_MS);
		if (partition->count > 0)
		{
			const rd_kafka_message_t *message = partition->messages[partition->head];

			return message->offset == evidence->offset && message_time(message, found_ms) &&
				   *found_ms != evidence->timestamp_ms;
		}
		if (partition->next > evidence->offset || kafka_fetcher_out_of_range(partition))
			break;
		partition->error = RD_KAFKA_RESP_ERR_NO_ERROR; /* a leader not known yet, and the like */
	}
	partition->error =
		RD_KAFKA_RESP_ERR_NO_ERROR; /* an offset that is not there proves nothing, and whoever reads next seeks anew */
	return false;
}

static const char *
time_text(int64 ms)
{
	return timestamptz_to_str(ms * 1000 - (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * USECS_PER_DAY);
}

/*
 * Checks a topic once per reader. False: it is another one (tolerated; raises the error otherwise). low: starts of
 * the partitions.
 */
bool
kafka_verify_topic(KafkaReader *reader, int topic, const KafkaEvidence *evidence, const int64 *low)
{
	KafkaPartition *partition = evidence_partition(reader, topic, evidence);
	bool fail = reader->options->fail_on_data_loss;
	int64 found_ms;
	char *expected;

	if (reader->topics[topic]->verified)
		return true;
	reader->topics[topic]->verified = true;
	if (evidence->offset < 0 || !partition)
		return true;
	for (int i = 0; i < reader->npartitions; i++)
		if (reader->partitions[i] == partition && low[i] > evidence->offset)
			return true;
	if (!message_differs(reader, partition, evidence, &found_ms))
		return true;
	reader->topics[topic]->verified = !fail;
	expected = pstrdup(time_text(evidence->timestamp_ms));
	ereport(fail ? ERROR : WARNING, errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			errmsg("source %s: topic \"%s\" is not the one the query has been reading", reader->base.def->name,
				   reader->topics[topic]->name),
			errdetail("The message at offset %lld of partition %d is of %s; the one read there was of %s. The topic "
					  "seems to have been "
					  "deleted and created again.",
					  (long long) evidence->offset, evidence->partition, time_text(found_ms), expected),
			fail ? errhint("Reset the query, or set the source's option fail_on_data_loss to false to read the new "
						   "topic from its start.")
				 : 0);
	return false;
}
