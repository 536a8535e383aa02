/*
 * broker_admin.c: commands of stream_broker that change the cluster: topics, partitions, records, transactions. The real broker by requests,
 * the mock by calls. Danger: made for tests.
 */
#include <poll.h>

#include "broker.h"

/* Until everybody, our producer included, knows that many partitions. */
static void
await_partitions(const char *topic, int partitions)
{
	for (int i = 0; i < 100 && partition_count(topic) < partitions; i++)
		poll(NULL, 0, 100);
}

static void
report_admin(rd_kafka_event_t *event,
			 const rd_kafka_topic_result_t *const *(*topics)(const rd_kafka_event_t *, size_t *), const char *topic,
			 int partitions)
{
	size_t n = 0;
	const rd_kafka_topic_result_t *const *results;

	if (!event || rd_kafka_event_error(event))
		reply("error %s", event ? rd_kafka_event_error_string(event) : "timeout");
	else if (topics && (results = topics(event, &n)) && n > 0 && rd_kafka_topic_result_error(results[0]))
		reply("error %s", rd_kafka_topic_result_error_string(results[0]));
	else
	{
		await_partitions(topic, partitions);
		reply("ok");
	}
	if (event)
		rd_kafka_event_destroy(event);
}

static const rd_kafka_topic_result_t *const *
create_results(const rd_kafka_event_t *event, size_t *n)
{
	return rd_kafka_CreateTopics_result_topics(rd_kafka_event_CreateTopics_result((rd_kafka_event_t *) event), n);
}

static const rd_kafka_topic_result_t *const *
delete_results(const rd_kafka_event_t *event, size_t *n)
{
	return rd_kafka_DeleteTopics_result_topics(rd_kafka_event_DeleteTopics_result((rd_kafka_event_t *) event), n);
}

static const rd_kafka_topic_result_t *const *
partition_results(const rd_kafka_event_t *event, size_t *n)
{
	return rd_kafka_CreatePartitions_result_topics(rd_kafka_event_CreatePartitions_result((rd_kafka_event_t *) event),
												   n);
}

void
command_create(const char *topic, int partitions)
{
	char error[256];
	rd_kafka_NewTopic_t *request;
	rd_kafka_queue_t *queue;

	if (cluster)
	{
		rd_kafka_resp_err_t code = rd_kafka_mock_topic_create(cluster, topic, partitions, 1);

		if (code)
			reply("error %s", rd_kafka_err2str(code));
		else
			reply("ok");
		return;
	}
	request = rd_kafka_NewTopic_new(topic, partitions, 1, error, sizeof(error));
	if (!request)
	{
		reply("error %s", error);
		return;
	}
	queue = rd_kafka_queue_new(producer);
	rd_kafka_CreateTopics(producer, &request, 1, NULL, queue);
	report_admin(rd_kafka_queue_poll(queue, WAIT_MS), create_results, topic, partitions);
	rd_kafka_NewTopic_destroy(request);
	rd_kafka_queue_destroy(queue);
}

void
command_delete(const char *topic)
{
	rd_kafka_DeleteTopic_t *request = rd_kafka_DeleteTopic_new(topic);
	rd_kafka_queue_t *queue = rd_kafka_queue_new(producer);

	rd_kafka_DeleteTopics(producer, &request, 1, NULL, queue);
	report_admin(rd_kafka_queue_poll(queue, WAIT_MS), delete_results, topic, 0);
	rd_kafka_DeleteTopic_destroy(request);
	rd_kafka_queue_destroy(queue);
}

void
command_partitions(const char *topic, int total)
{
	char error[256];
	rd_kafka_NewPartitions_t *request = rd_kafka_NewPartitions_new(topic, total, error, sizeof(error));
	rd_kafka_queue_t *queue;

	if (!request)
	{
		reply("error %s", error);
		return;
	}
	queue = rd_kafka_queue_new(producer);
	rd_kafka_CreatePartitions(producer, &request, 1, NULL, queue);
	report_admin(rd_kafka_queue_poll(queue, WAIT_MS), partition_results, topic, total);
	rd_kafka_NewPartitions_destroy(request);
	rd_kafka_queue_destroy(queue);
}

void
command_trim(const char *topic, int partition, int64_t offset)
{
	rd_kafka_topic_partition_list_t *before = rd_kafka_topic_partition_list_new(1);
	rd_kafka_DeleteRecords_t *request;
	rd_kafka_queue_t *queue = rd_kafka_queue_new(producer);

	rd_kafka_topic_partition_list_add(before, topic, partition)->offset = offset;
	request = rd_kafka_DeleteRecords_new(before);
	rd_kafka_DeleteRecords(producer, &request, 1, NULL, queue);
	report_admin(rd_kafka_queue_poll(queue, WAIT_MS), NULL, topic, 0);
	rd_kafka_DeleteRecords_destroy(request);
	rd_kafka_topic_partition_list_destroy(before);
	rd_kafka_queue_destroy(queue);
}

void
command_offsets(const char *topic, int partition)
{
	int64_t low, high;
	rd_kafka_resp_err_t error = rd_kafka_query_watermark_offsets(producer, topic, partition, &low, &high, WAIT_MS);

	if (error)
		reply("error %s", rd_kafka_err2str(error));
	else
		reply("ok %lld %lld", (long long) low, (long long) high);
}

/* Waits until the cluster answers and has a broker. */
void
command_ready(void)
{
	double until = now_seconds(CLOCK_MONOTONIC) + 60;

	do
	{
		const struct rd_kafka_metadata *metadata;

		if (rd_kafka_metadata(producer, 1, NULL, &metadata, 1000) == RD_KAFKA_RESP_ERR_NO_ERROR)
		{
			int brokers = metadata->broker_cnt;

			rd_kafka_metadata_destroy(metadata);
			if (brokers > 0)
			{
				reply("ok");
				return;
			}
		}
		poll(NULL, 0, 100);
	} while (now_seconds(CLOCK_MONOTONIC) < until);
	reply("error no broker answers");
}

/* ---- transactions ---- */

static void
report_error(rd_kafka_error_t *error)
{
	if (error)
		reply("error %s", rd_kafka_error_string(error));
	else
		reply("ok");
	if (error)
		rd_kafka_error_destroy(error);
}

void
command_begin(const char *id)
{
	const char *settings[] = {"bootstrap.servers", servers, "transactional.id", id, "log_level", "2", NULL};
	rd_kafka_error_t *error;

	if (transactional)
		rd_kafka_destroy(transactional);
	transactional = make_handle(settings);
	error = rd_kafka_init_transactions(transactional, WAIT_MS);
	report_error(error ? error : rd_kafka_begin_transaction(transactional));
}

void
command_end(bool commit)
{
	rd_kafka_error_t *error;

	if (!transactional)
	{
		reply("error no transaction");
		return;
	}
	error = commit ? rd_kafka_commit_transaction(transactional, WAIT_MS)
				   : rd_kafka_abort_transaction(transactional, WAIT_MS);
	undelivered = 0;
	rd_kafka_destroy(transactional);
	transactional = NULL;
	report_error(error);
}
