/*
 * kafka_scan.c: one pass over [from, to) of every partition, in an order the range alone decides, so that a replay
 * sees the same rows in the same order: by (partition, offset); a range longer than ROUND_OFFSETS goes in rounds, so
 * that all fetchers stay busy.
 *
 * Window → message → kafka_decode → slot. What the window does not hold yet is waited for: with interrupts, within
 * KAFKA_STALL_MS. Danger: offsets may be missing for good (compaction, transactions); the end of a range is known
 * only by a message behind it or by the fetcher's word that it has been there.
 */
#include "source/kafka.h"

#include "miscadmin.h"
#include "util/clock.h"
#include "utils/memutils.h"

#define PULL_MESSAGES 1024
#define KEEP_MESSAGES 16384 /* of what has been read already, per partition */
#define KEEP_BYTES (4 * 1024 * 1024)
#define LOOK_AHEAD 4	   /* messages */
#define WAIT_SLICE_MS 1000
#define WAIT_FIRST_MS 10   /* deaf to interrupts, but woken by nothing else than the partition wanted */
#define ROUND_OFFSETS 4096 /* part of the order: a batch replayed by another version must give the same */

static void
scan_unlink(void *arg)
{
	KafkaScan *scan = arg;

	if (!scan->linked)
		return;
	kafka_scan_release_message(scan);
	dlist_delete(&scan->node);
	scan->linked = false;
}

static void
scan_link(KafkaScan *scan)
{
	if (!scan->linked)
		dlist_push_tail(&scan->reader->scans, &scan->node);
	scan->linked = true;
}

/* A batch run again after a crash was not planned in this process: its topics have not been looked at yet. */
static void
scan_verify_topics(KafkaReader *reader, Position *from)
{
	KafkaEvidence *evidence = kafka_position_evidence(reader, from);
	int64 *low = NULL;

	for (int topic = 0; topic < reader->ntopics; topic++)
	{
		if (reader->topics[topic]->verified || evidence[topic].offset < 0)
			continue;
		if (!low)
		{
			low = palloc(sizeof(int64) * reader->npartitions);
			kafka_list_offsets(reader, RD_KAFKA_OFFSET_BEGINNING, low);
		}
		(void) kafka_verify_topic(reader, topic, &evidence[topic], low);
	}
}

/* Several processes may share a range: each has every so many'th partition of it. */
static bool
scan_is_own(SourceScan *base, int rank)
{
	return !base->batch || base->batch->shares == 0 || rank % base->batch->shares == base->batch->share;
}

/*
 * The range, per partition. No start: the earliest there is. A position ahead of the range's end was taken from a
 * topic that has been made again since: all of the new one is the range, and that is an event.
 */
static void
scan_resolve_range(KafkaScan *scan, SourceScan *base)
{
	KafkaReader *reader = scan->reader;
	int64 *earliest = NULL;
	int rank = 0;

	scan->from = kafka_position_read(reader, base->from);
	scan->to = kafka_position_read(reader, base->to);
	if (!base->to)
		kafka_list_offsets(reader, RD_KAFKA_OFFSET_END, scan->to);
	if (base->from)
		scan_verify_topics(reader, base->from);
	scan->ranks = palloc0(sizeof(int) * Max(reader->npartitions, 1));
	for (int i = 0; i < reader->npartitions; i++)
	{
		KafkaPartition *partition = reader->partitions[i];

		scan->ranks[i] = rank;
		rank += scan->to[i] != KAFKA_NOT_FOUND;
		if (scan->to[i] == KAFKA_NOT_FOUND || !scan_is_own(base, scan->ranks[i]))
			scan->to[i] = scan->from[i] = 0;
		if (scan->from[i] >= 0 && scan->from[i] <= scan->to[i])
			continue;
		if (!earliest)
		{
			earliest = palloc(sizeof(int64) * reader->npartitions);
			kafka_list_offsets(reader, RD_KAFKA_OFFSET_BEGINNING, earliest);
		}
		if (scan->from[i] > scan->to[i])
			kafka_report_reset(reader, partition, scan->from[i], scan->to[i], base->observer ? base->batch : NULL);
		scan->from[i] = Min(earliest[i], scan->to[i]);
	}
}

/* The window is there, or its fetcher is sent there. */
static void
scan_place(KafkaReader *reader, KafkaPartition *partition, int64 offset)
{
	if (!partition->started || offset < partition->start || offset > partition->next)
		kafka_window_seek(reader, partition, offset);
}

static bool
scan_is_alone(KafkaScan *scan)
{
	dlist_iter iter;

	dlist_foreach(iter, &scan->reader->scans)
	{
		if (dlist_container(KafkaScan, node, iter.cur) != scan)
			return false;
	}
	return true;
}

static void
scan_start(KafkaScan *scan)
{
	/*
	 * Fetchers that come to their end in the first round go all at once: one sent off later would wait until the broker has answered
	 * those at their ends. The others go when they are wanted: what comes too early is cold when its turn comes.
	 */
	for (int i = 0; scan_is_alone(scan) && i < scan->npartitions; i++)
	{
		if (scan->from[i] < scan->to[i] && scan->to[i] - scan->from[i] <= ROUND_OFFSETS)
			scan_place(scan->reader, scan->reader->partitions[i], scan->from[i]);
	}
	memcpy(scan->next, scan->from, sizeof(int64) * scan->npartitions);
	scan->round = ROUND_OFFSETS;
	scan->current = 0;
	scan->cursor = scan->npartitions > 0 ? scan->from[0] : 0;
	scan->generation = -1;
}

/*
 * To the next partition with something left in this round, or the first of the next round. False: all have been read.
 */
static bool
scan_advance(KafkaScan *scan)
{
	scan->next[scan->current] = scan->cursor;
	scan->generation = -1;
	for (;;)
	{
		bool left = false;

		while (++scan->current < scan->npartitions)
			if (scan->next[scan->current] < scan->to[scan->current])
			{
				scan->cursor = scan->next[scan->current];
				return true;
			}
		for (int i = 0; i < scan->npartitions; i++)
			left = left || scan->next[i] < scan->to[i];
		if (!left)
			return false;
		scan->round += ROUND_OFFSETS;
		scan->current = -1;
	}
}

void
kafka_scan_begin(SourceScan *base)
{
	KafkaReader *reader = (KafkaReader *) base->reader;
	KafkaScan *scan = palloc0(sizeof(KafkaScan));

	kafka_connect(reader);
	scan->reader = reader;
	base->state = scan;
	scan_resolve_range(scan, base);
	scan->npartitions = reader->npartitions;
	scan->next = palloc(sizeof(int64) * Max(scan->npartitions, 1));
	scan->decode = kafka_decode_open(base);
	scan_start(scan);
	scan->callback.func = scan_unlink;
	scan->callback.arg = scan;
	MemoryContextRegisterResetCallback(base->context, &scan->callback);
	scan_link(scan);
}

/* The fetcher says its offset is not there. What lies below the partition's start now is lost. */
static void
scan_skip_gap(KafkaScan *scan, SourceScan *base, KafkaPartition *partition, int64 to)
{
	KafkaReader *reader = scan->reader;
	int64 *offsets = palloc(sizeof(int64) * reader->npartitions);
	int slot = scan->current;
	int64 low;

	partition->error = RD_KAFKA_RESP_ERR_NO_ERROR;
	kafka_list_offsets(reader, RD_KAFKA_OFFSET_BEGINNING, offsets);
	low = offsets[slot];
	kafka_list_offsets(reader, RD_KAFKA_OFFSET_END, offsets);
	if (offsets[slot] < scan->cursor)
	{
		/* Shrunk under us. Without tolerance an error; with it, the rest of this range is gone. */
		kafka_report_reset(reader, partition, scan->cursor, offsets[slot], base->observer ? base->batch : NULL);
		scan->cursor = to;
		return;
	}
	if (low > scan->cursor)
	{
		kafka_report_loss(reader, partition, scan->cursor, Min(low, to), base->observer ? base->batch : NULL);
		scan->cursor = Min(low, to);
	}
	kafka_window_seek(reader, partition, scan->cursor);
	pfree(offsets);
}

/* What came before the socket was emptied would wake nobody. */
static bool
scan_pull_drained(KafkaScan *scan, KafkaPartition *partition)
{
	kafka_client_drain_socket(scan->reader->client);
	scan->drained = true;
	return kafka_window_pull(scan->reader, partition, PULL_MESSAGES, 0);
}

/* Nothing of the partition is here: let go of what has been read, take what has come, or wait for it. */
static void
scan_fetch(KafkaScan *scan, SourceScan *base, KafkaPartition *partition, int64 to)
{
	KafkaReader *reader = scan->reader;
	int64 until = 0;

	if (partition->count > KEEP_MESSAGES || partition->bytes > KEEP_BYTES)
		kafka_window_trim(reader, partition, scan->cursor);
	for (;;)
	{
		CHECK_FOR_INTERRUPTS();
		/* An error may have come while others looked. Its fetcher has stopped: nothing will follow it. */
		if (partition->error || kafka_window_pull(reader, partition, PULL_MESSAGES, WAIT_FIRST_MS) || scan_pull_drained(scan, partition))
		{
			if (kafka_fetcher_out_of_range(partition))
				scan_skip_gap(scan, base, partition, scan->to[scan->current]);
			kafka_check_fetcher(reader, partition);
			return;
		}
		kafka_window_pass_markers(reader, partition);
		if (partition->next >= to)
			return;
		if (until == 0)
			until = clock_monotonic_us() + KAFKA_STALL_MS * INT64CONST(1000);
		else if (clock_monotonic_us() > until)
		{
			const char *complaint = kafka_client_complaint(reader->client, NULL);

			ereport(ERROR, errcode(ERRCODE_CONNECTION_FAILURE),
					errmsg("source %s gets no messages of topic \"%s\" partition %d", reader->base.def->name,
						   partition->topic->name, partition->id),
					errdetail("Waited %d s for offset %lld of the range up to %lld.%s%s", KAFKA_STALL_MS / 1000,
							  (long long) scan->cursor, (long long) to, *complaint ? " Last trouble: " : "",
							  complaint));
		}
		kafka_client_poll(reader->client);
		kafka_client_wait(reader->client, WAIT_SLICE_MS);
	}
}

/* Bytes another processor wrote: asked for while the rows before them are decoded. */
static inline void
scan_look_ahead(KafkaPartition *partition, int index)
{
	if (index + LOOK_AHEAD < partition->head + partition->count)
	{
		const char *payload = partition->messages[index + LOOK_AHEAD]->payload;

		__builtin_prefetch(payload);
		__builtin_prefetch(payload + 64);
	}
}

/*
 * Index in the window of the next message at or above the cursor; found by number while the window stays, else by
 * search.
 */
static int
scan_locate(KafkaScan *scan, KafkaPartition *partition)
{
	int index;

	if (scan->generation == partition->generation && scan->sequence >= partition->taken)
		return partition->head + (int) (scan->sequence - partition->taken);
	index = kafka_window_find(partition, scan->cursor);
	scan->generation = partition->generation;
	scan->sequence = partition->taken + (index - partition->head);
	return index;
}

/* The next message of the range; NULL at its end. */
static rd_kafka_message_t *
scan_message(KafkaScan *scan, SourceScan *base)
{
	KafkaReader *reader = scan->reader;

	while (scan->current < scan->npartitions)
	{
		KafkaPartition *partition = reader->partitions[scan->current];
		int64 to = Min(scan->to[scan->current], scan->from[scan->current] + scan->round);
		int index;

		if (scan->cursor < to)
		{
			scan_place(reader, partition, scan->cursor);
			index = scan_locate(scan, partition);
			if (index < partition->head + partition->count)
			{
				rd_kafka_message_t *message = partition->messages[index];

				scan_look_ahead(partition, index);
				if (message->offset < to)
				{
					scan->cursor = message->offset + 1;
					scan->sequence++;
					return message;
				}
				scan->cursor = to;
			}
			else if (partition->next >= to)
				scan->cursor = to;
			else
				scan_fetch(scan, base, partition, to);
			continue;
		}
		if (!scan_advance(scan))
			scan->current = scan->npartitions;
	}
	return NULL;
}

bool
kafka_scan_next(SourceScan *base, TupleTableSlot *slot)
{
	KafkaScan *scan = base->state;

	if (!scan->linked)
		ereport(ERROR, errcode(ERRCODE_CONNECTION_FAILURE),
				errmsg("source %s was closed during a scan", base->reader->def->name));
	for (;;)
	{
		KafkaPartition *partition;

		if (scan->message)
			kafka_scan_release_message(scan);
		scan->message = scan_message(scan, base);
		if (!scan->message)
			return false;
		partition = scan->reader->partitions[scan->current];
		if (base->batch && base->observer)
			base->batch->bytes += scan->message->len;
		base->lane = kafka_partition_lane(scan->reader, partition);
		base->order = (uint64) (scan->round / ROUND_OFFSETS) << 32 | scan->ranks[scan->current];
		if (kafka_decode_row(scan->decode, base, partition, scan->message, slot))
			return true;
		MemoryContextReset(base->row_context);
	}
}

void
kafka_scan_rewind(SourceScan *base)
{
	KafkaScan *scan = base->state;

	kafka_scan_release_message(scan);
	scan_start(scan);
}

void
kafka_scan_end(SourceScan *base)
{
	KafkaScan *scan = base->state;

	/* Waiting has emptied the socket; whoever waits next must look at the other partitions once. */
	if (scan->linked && scan->drained && scan->reader->client)
		kafka_client_kick(scan->reader->client);
	scan_unlink(scan);
}
