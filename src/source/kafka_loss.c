/*
 * kafka_loss.c: what to say, and keep, when the topic no longer has what the query has to read. With
 * fail_on_data_loss (the default) nothing is read and the position stays; without, the loss is a warning and a dead
 * letter of reason 'lost' in the batch's own transaction.
 */
#include "source/kafka.h"

#include "metadata/dead_letter.h"

static void
keep_event(KafkaReader *reader, KafkaPartition *partition, int64 from, int64 to, SourceBatch *batch,
		   const char *message)
{
	if (batch)
		dead_letter_add(batch->info, reader->base.def->name, "lost", kafka_loss_position(partition, from, to), NULL, 0,
						message);
}

void
kafka_report_loss(KafkaReader *reader, KafkaPartition *partition, int64 from, int64 to, SourceBatch *batch)
{
	bool fail = reader->options->fail_on_data_loss;
	char *message = psprintf("%lld messages [%lld,%lld) of topic \"%s\" partition %d are gone", (long long) (to - from),
							 (long long) from, (long long) to, partition->topic->name, partition->id);

	if (!fail)
		keep_event(reader, partition, from, to, batch, message);
	ereport(
		fail ? ERROR : WARNING, errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
		errmsg("source %s: %s", reader->base.def->name, message),
		errdetail("They were deleted (retention, or records deleted by hand) before the query read them; its position "
				  "is %lld.",
				  (long long) from),
		fail ? errhint("Set the source's option fail_on_data_loss to false to go on without them, or reset the query.")
			 : 0);
}

void
kafka_report_reset(KafkaReader *reader, KafkaPartition *partition, int64 position, int64 end, SourceBatch *batch)
{
	bool fail = reader->options->fail_on_data_loss;
	char *message = psprintf("topic \"%s\" partition %d ends at offset %lld, before the query's position %lld",
							 partition->topic->name, partition->id, (long long) end, (long long) position);

	if (!fail)
		keep_event(reader, partition, position, end, batch, message);
	ereport(fail ? ERROR : WARNING, errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			errmsg("source %s: %s", reader->base.def->name, message),
			errdetail("The topic seems to have been deleted and created again."),
			fail ? errhint("Reset the query, or set the source's option fail_on_data_loss to false to read the new "
						   "topic from its start.")
				 : 0);
}

/* Did the fetcher run into the partition's end of memory? */
bool
kafka_fetcher_out_of_range(KafkaPartition *partition)
{
	return partition->error == RD_KAFKA_RESP_ERR__AUTO_OFFSET_RESET ||
		   partition->error == RD_KAFKA_RESP_ERR_OFFSET_OUT_OF_RANGE;
}

void
kafka_check_fetcher(KafkaReader *reader, KafkaPartition *partition)
{
	rd_kafka_resp_err_t error = partition->error;

	if (!error || kafka_fetcher_out_of_range(partition))
		return;
	partition->error = RD_KAFKA_RESP_ERR_NO_ERROR;
	switch (error)
	{
		case RD_KAFKA_RESP_ERR__TRANSPORT:
		case RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN:
		case RD_KAFKA_RESP_ERR__TIMED_OUT:
		case RD_KAFKA_RESP_ERR__RESOLVE:
		case RD_KAFKA_RESP_ERR_LEADER_NOT_AVAILABLE:
		case RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION:
		case RD_KAFKA_RESP_ERR_REQUEST_TIMED_OUT:
			return; /* librdkafka tries again by itself */
		case RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC:
		case RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION:
		case RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART:
			reader->refreshed_us = 0;
			ereport(ERROR, errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					errmsg("source %s: topic \"%s\" partition %d does not exist any more", reader->base.def->name,
						   partition->topic->name, partition->id),
					errdetail("%s. The query's position is %lld.", partition->error_text, (long long) partition->next),
					errhint("If the topic was deleted, create it again and reset the query."));
			break;
		default:
			ereport(ERROR, errcode(kafka_sqlstate(error)),
					errmsg("source %s cannot read topic \"%s\" partition %d at offset %lld", reader->base.def->name,
						   partition->topic->name, partition->id, (long long) partition->next),
					errdetail("%s.", partition->error_text));
	}
}
