/*
 * kafka_window.c: messages between librdkafka's queues and the scans.
 *
 * One fetcher and one queue per partition → the partition's window (pointers only; bytes stay in librdkafka's
 * buffers). A small batch stays in the window whole, so a second scan or a rewind finds it there; a big one streams
 * through, and is fetched again if need be. Danger: a row handed out points into its message. Whoever drops messages
 * must leave the one a scan stands on.
 */
#include "source/kafka.h"

#include "util/clock.h"
#include "utils/memutils.h"

#define PULL_CHUNK 1024
#define SEEK_MS 2000
#define POKE_US 3000
#define POKE_BYTES 16384 /* far below any bound that is worth setting */

/* The window lets go of a message: destroyed, unless a scan stands on it and takes it over. */
static void
message_drop(KafkaReader *reader, rd_kafka_message_t *message)
{
	dlist_iter iter;

	dlist_foreach(iter, &reader->scans)
	{
		KafkaScan *scan = dlist_container(KafkaScan, node, iter.cur);

		if (scan->message == message)
		{
			scan->owned = true;
			return;
		}
	}
	rd_kafka_message_destroy(message);
}

/* The scan moves on. The message dies with it if the window has let it go; another scan may still stand on it. */
void
kafka_scan_release_message(KafkaScan *scan)
{
	rd_kafka_message_t *message = scan->message;
	bool owned = scan->owned;

	scan->message = NULL;
	scan->owned = false;
	if (message && owned)
		message_drop(scan->reader, message);
}

void
kafka_window_clear(KafkaReader *reader, KafkaPartition *partition)
{
	for (int i = 0; i < partition->count; i++)
		message_drop(reader, partition->messages[partition->head + i]);
	partition->head = partition->count = 0;
	partition->start = partition->next; /* what was here will not come again by itself */
	partition->bytes = 0;
	partition->taken = 0;
	partition->generation++;
}

int
kafka_window_room(KafkaReader *reader, KafkaPartition *partition)
{
	return Max((reader->base.scouts ? KAFKA_SCOUT_MESSAGES : KAFKA_PULL_MESSAGES) - partition->count, 0);
}

static rd_kafka_resp_err_t
fetcher_start(KafkaPartition *partition, int64 offset)
{
	if (rd_kafka_consume_start_queue(partition->topic->handle, partition->id, offset, partition->queue) != 0)
		return rd_kafka_last_error();
	return RD_KAFKA_RESP_ERR_NO_ERROR;
}

/* Sends the fetcher elsewhere; one that has given up (offset out of range) is started again. */
static rd_kafka_resp_err_t
fetcher_move(KafkaPartition *partition, int64 offset)
{
	rd_kafka_resp_err_t error = rd_kafka_seek(partition->topic->handle, partition->id, offset, SEEK_MS);

	if (error != RD_KAFKA_RESP_ERR__STATE)
		return error;
	if (rd_kafka_consume_stop(partition->topic->handle, partition->id) != 0)
		return rd_kafka_last_error();
	return fetcher_start(partition, offset);
}

/* What the fetcher had brought before is never seen again: that is what waiting for it is for. */
void
kafka_window_seek(KafkaReader *reader, KafkaPartition *partition, int64 offset)
{
	rd_kafka_resp_err_t error;

	kafka_window_clear(reader, partition);
	partition->strayed = partition->started;
	error = partition->started ? fetcher_move(partition, offset) : fetcher_start(partition, offset);
	if (error)
		ereport(ERROR, errcode(kafka_sqlstate(error)),
				errmsg("source %s cannot read topic \"%s\" partition %d from offset %lld", reader->base.def->name,
					   partition->topic->name, partition->id, (long long) offset),
				errdetail("%s.", rd_kafka_err2str(error)));
	partition->started = true;
	partition->start = partition->next = offset;
	partition->eof = -1;
	partition->full = false;
	partition->error = RD_KAFKA_RESP_ERR_NO_ERROR;
}

static void
window_make_room(KafkaReader *reader, KafkaPartition *partition)
{
	if (partition->head + partition->count < partition->room)
		return;
	if (partition->head > partition->room / 2)
	{
		memmove(partition->messages, partition->messages + partition->head,
				partition->count * sizeof(rd_kafka_message_t *));
		partition->head = 0;
		return;
	}
	partition->room = Max(partition->room * 2, PULL_CHUNK);
	if (partition->messages)
		partition->messages = repalloc_huge(partition->messages, partition->room * sizeof(rd_kafka_message_t *));
	else
		partition->messages =
			MemoryContextAllocHuge(reader->client_context, partition->room * sizeof(rd_kafka_message_t *));
}

static void
window_take(KafkaReader *reader, KafkaPartition *partition, rd_kafka_message_t *message)
{
	if (message->err == RD_KAFKA_RESP_ERR__PARTITION_EOF)
	{
		/*
		 * Nothing below here is still to come: what is missing are holes (compaction, aborted transactions, their
		 * markers).
		 */
		partition->eof = message->offset;
		partition->next = Max(partition->next, message->offset);
	}
	else if (message->err)
	{
		partition->error = message->err;
		partition->strayed = true;
		strlcpy(partition->error_text, rd_kafka_message_errstr(message), sizeof(partition->error_text));
	}
	else if (message->offset >= partition->next)
	{
		window_make_room(reader, partition);
		partition->messages[partition->head + partition->count++] = message;
		partition->next = message->offset + 1;
		partition->bytes += message->len + message->key_len;
		return;
	}
	rd_kafka_message_destroy(message);
}

/* Only so much at once can have stopped it; where messages trickle, asking would only stand in the way of the next fetch. */
static bool
fetcher_may_rest(KafkaReader *reader, KafkaPartition *partition)
{
	return (partition->arrived_bytes >= POKE_BYTES || partition->arrived >= reader->queue_messages / 8) &&
		   rd_kafka_queue_length(partition->queue) < reader->queue_messages / 2;
}

/*
 * A fetcher that met its bound sleeps up to a second before it looks again whether there is room (librdkafka before
 * 2.3). Any request to its broker wakes it; this one is sent and not waited for.
 */
static void
fetcher_wake(KafkaReader *reader, KafkaPartition *partition)
{
	rd_kafka_topic_partition_list_t *list;
	int64 now = clock_monotonic_us();

	if (now - reader->poked_us < POKE_US)
		return;
	reader->poked_us = now;
	partition->arrived = partition->arrived_bytes = 0;
	list = rd_kafka_topic_partition_list_new(1);
	rd_kafka_topic_partition_list_add(list, partition->topic->name, partition->id)->offset = RD_KAFKA_OFFSET_END;
	rd_kafka_offsets_for_times(kafka_client_handle(reader->client), list, 0);
	rd_kafka_topic_partition_list_destroy(list);
}

bool
kafka_window_pull(KafkaReader *reader, KafkaPartition *partition, int max, int wait_ms)
{
	rd_kafka_message_t *chunk[PULL_CHUNK];
	int64 count = partition->count, bytes = partition->bytes;
	int total = 0;
	ssize_t n, wanted;

	partition->full = false;
	do
	{
		wanted = Min(PULL_CHUNK, max - total);
		/* Never wait for many: librdkafka would wait until all of them are there. */
		n = rd_kafka_consume_batch_queue(partition->queue, 0, chunk, wanted);
		if (n == 0 && total == 0 && wait_ms > 0 &&
			rd_kafka_consume_batch_queue(partition->queue, wait_ms, chunk, 1) == 1)
			n = wanted = 1;
		for (ssize_t i = 0; i < n; i++)
			window_take(reader, partition, chunk[i]);
		total += Max(n, 0);
	} while (n == wanted && total < max);
	partition->full = n == wanted;
	partition->arrived += partition->count - count;
	partition->arrived_bytes += partition->bytes - bytes;
	if (total > 0 && fetcher_may_rest(reader, partition))
		fetcher_wake(reader, partition);
	return total > 0;
}

/*
 * An end of the partition counts for a message in the position of newer librdkafka (seen with 2.8): one above it says nothing. Should there be a marker,
 * the end is told again behind it.
 */
void
kafka_window_pass_markers(KafkaReader *reader, KafkaPartition *partition)
{
	rd_kafka_topic_partition_list_t *list;

	if (partition->strayed || partition->full)
		return;
	list = rd_kafka_topic_partition_list_new(1);
	rd_kafka_topic_partition_list_add(list, partition->topic->name, partition->id);
	if (rd_kafka_position(kafka_client_handle(reader->client), list) == RD_KAFKA_RESP_ERR_NO_ERROR &&
		list->elems[0].offset > partition->eof + 1)
		partition->next = Max(partition->next, list->elems[0].offset);
	rd_kafka_topic_partition_list_destroy(list);
}

void
kafka_window_trim(KafkaReader *reader, KafkaPartition *partition, int64 offset)
{
	while (partition->count > 0 && partition->messages[partition->head]->offset < offset)
	{
		rd_kafka_message_t *message = partition->messages[partition->head];

		partition->bytes -= message->len + message->key_len;
		partition->head++;
		partition->count--;
		partition->taken++;
		message_drop(reader, message);
	}
	partition->start = Max(partition->start, Min(offset, partition->next));
}

int
kafka_window_find(KafkaPartition *partition, int64 offset)
{
	int low = partition->head, high = partition->head + partition->count;

	while (low < high)
	{
		int middle = low + (high - low) / 2;

		if (partition->messages[middle]->offset < offset)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

int
kafka_window_count(KafkaPartition *partition, int64 from, int64 to)
{
	return Max(0, kafka_window_find(partition, to) - kafka_window_find(partition, from));
}
