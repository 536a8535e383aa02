/*
 * kafka_plan.c: what the next batch reads.
 *
 * Position → is it still there (asked when a fetcher starts or complains) → how far it could go: what has arrived,
 * when that is all there is and no question need be asked; else by the broker's offsets → limits → range. Danger: a
 * range once logged must give the same messages for ever; whatever shortens it later (retention, a new topic of the
 * same name) is data loss and is said so.
 */
#include "source/kafka.h"

#include <math.h>

#include "util/clock.h"
#include "util/failpoint.h"
#include "utils/builtins.h"

#define BATCH_MESSAGES 1000000 /* in a batch when the query sets no limit */
#define MESSAGE_BYTES 1024	   /* until some have been seen */
#define ASK_PAUSE_MS 200

typedef struct Plan
{
	KafkaReader *reader;
	int64 *from, *end, *ceiling; /* ceiling NULL: none */
	int64 *high;				 /* as asked in this step; NULL: not asked */
	KafkaEvidence *evidence;	 /* of from, per topic */
	bool restart; /* a topic was made again: its partitions go back to their start, nothing else happens */
} Plan;

static void
plan_ask_high(Plan *plan)
{
	if (plan->high)
		return;
	plan->high = kafka_offsets_alloc(plan->reader);
	kafka_list_offsets(plan->reader, RD_KAFKA_OFFSET_END, plan->high);
}

/* Does a partition's log end before our position? After a leader change that passes; waits a little for it. */
static bool
plan_is_behind_us(Plan *plan)
{
	for (int i = 0; i < plan->reader->npartitions; i++)
		if (plan->high[i] < plan->from[i])
			return true;
	return false;
}

static void
plan_await_end(Plan *plan)
{
	KafkaReader *reader = plan->reader;
	int64 until = clock_monotonic_us() + KAFKA_REGRESS_MS * INT64CONST(1000);

	while (plan_is_behind_us(plan) && clock_monotonic_us() < until)
	{
		kafka_client_wait(reader->client, ASK_PAUSE_MS);
		kafka_client_drain_socket(reader->client);
		kafka_list_offsets(reader, RD_KAFKA_OFFSET_END, plan->high);
	}
	kafka_client_kick(reader->client);
}

/*
 * Another topic of the same name, and that is tolerated: a batch of its own takes the position back to where the new
 * one starts.
 */
static void
plan_restart_topic(Plan *plan, int topic, const int64 *low)
{
	KafkaReader *reader = plan->reader;

	if (!plan->restart)
		memcpy(plan->end, plan->from, sizeof(int64) * reader->npartitions);
	plan->restart = true;
	plan->evidence[topic].offset = -1;
	for (int i = 0; i < reader->npartitions; i++)
		if (reader->partitions[i]->topic->number == topic)
		{
			plan->end[i] = Min(low[i], plan->from[i]);
			kafka_window_seek(reader, reader->partitions[i], plan->end[i]);
		}
}

static void
plan_verify_topics(Plan *plan, const int64 *low)
{
	for (int topic = 0; topic < plan->reader->ntopics; topic++)
		if (!kafka_verify_topic(plan->reader, topic, &plan->evidence[topic], low))
			plan_restart_topic(plan, topic, low);
}

/*
 * Is what we are about to read still there? Asked when a partition's fetcher starts, and when one complains; settles
 * where partitions that are new begin. Tolerated losses are reported by the scan, in the batch's transaction.
 */
static void
plan_check_range(Plan *plan)
{
	KafkaReader *reader = plan->reader;
	int64 *low = kafka_offsets_alloc(reader);
	bool *made_again = palloc0(sizeof(bool) * reader->ntopics);

	kafka_list_offsets(reader, RD_KAFKA_OFFSET_BEGINNING, low);
	plan_ask_high(plan);
	for (int i = 0; i < reader->npartitions; i++)
		if (plan->from[i] == KAFKA_NOT_FOUND)
			plan->from[i] = low[i];
	plan_await_end(plan);
	for (int i = 0; i < reader->npartitions; i++)
	{
		KafkaPartition *partition = reader->partitions[i];
		bool fail = reader->options->fail_on_data_loss;

		if (plan->high[i] < plan->from[i] && fail)
			kafka_report_reset(reader, partition, plan->from[i], plan->high[i], NULL);
		if (plan->high[i] < plan->from[i])
			made_again[partition->topic->number] = true;
		else if (low[i] > plan->from[i] && fail)
			kafka_report_loss(reader, partition, plan->from[i], low[i], NULL);
		partition->error = RD_KAFKA_RESP_ERR_NO_ERROR;
		partition->checked = true;
		partition->low = low[i];
	}
	for (int topic = 0; topic < reader->ntopics; topic++)
		if (made_again[topic])
			plan_restart_topic(plan, topic, low);
	plan_verify_topics(plan, low);
}

static bool
plan_needs_check(Plan *plan)
{
	for (int i = 0; i < plan->reader->npartitions; i++)
	{
		KafkaPartition *partition = plan->reader->partitions[i];

		if (plan->from[i] == KAFKA_NOT_FOUND || !partition->checked || kafka_fetcher_out_of_range(partition))
			return true;
	}
	return false;
}

/* Windows begin at the position, and hold what has arrived. */
static void
plan_pull(Plan *plan)
{
	KafkaReader *reader = plan->reader;

	kafka_client_drain_socket(reader->client);
	for (int i = 0; i < reader->npartitions; i++)
	{
		KafkaPartition *partition = reader->partitions[i];
		int64 from = Max(plan->from[i], partition->low); /* below: lost, as the scan will say */

		if (plan->high && plan->high[i] < from)
			continue; /* the topic was made again */
		if (!partition->started || from < partition->start || from > partition->next)
			kafka_window_seek(reader, partition, from);
		else
			kafka_window_trim(reader, partition, from);
		kafka_window_pull(reader, partition, kafka_window_room(reader, partition), 0);
		kafka_check_fetcher(reader, partition);
		FAILPOINT("pulled");
	}
}

/* Everything there is has arrived: the fetcher has been at the end, as far as the broker's last answer to it goes. */
static bool
partition_is_caught_up(KafkaReader *reader, KafkaPartition *partition)
{
	int64_t low, high;

	if (partition->full || !partition->started)
		return false;
	if (partition->eof >= 0 && partition->eof == partition->next)
		return true;
	if (rd_kafka_get_watermark_offsets(kafka_client_handle(reader->client), partition->topic->name, partition->id, &low,
									   &high))
		return false;
	if (partition->next < high)
		kafka_window_pass_markers(reader, partition);
	return high >= 0 && partition->next >= high;
}

static bool
plan_is_caught_up(Plan *plan)
{
	for (int i = 0; i < plan->reader->npartitions; i++)
		if (!partition_is_caught_up(plan->reader, plan->reader->partitions[i]))
			return false;
	return true;
}

static int64
plan_backlog(Plan *plan)
{
	int64 total = 0;

	for (int i = 0; i < plan->reader->npartitions; i++)
		total += Max(plan->end[i] - plan->from[i], 0);
	return total;
}

/* How far each partition could be read. */
static void
plan_ends(Plan *plan)
{
	KafkaReader *reader = plan->reader;
	bool caught_up = !plan->ceiling && plan_is_caught_up(plan);

	if (!plan->ceiling && !caught_up)
	{
		plan_ask_high(plan);
		if (plan_is_behind_us(plan))
			plan_check_range(plan);
		if (plan->restart)
			return;
	}
	for (int i = 0; i < reader->npartitions; i++)
	{
		int64 next = reader->partitions[i]->next;

		if (plan->ceiling)
			plan->end[i] = plan->ceiling[i] == KAFKA_NOT_FOUND ? plan->from[i] : plan->ceiling[i];
		else if (caught_up)
			/* Holes behind the last message are not worth a batch of their own, but ride along. */
			plan->end[i] = Max(plan->from[i], next);
		else
			plan->end[i] = plan->high[i];
		if (plan->ceiling && plan->end[i] < plan->from[i] && !(plan->high && plan->high[i] < plan->from[i]))
			plan->end[i] = plan->from[i]; /* fixed before we got here */
	}
}

/* Only holes behind the position everywhere: nothing to run a batch for. */
static bool
plan_has_messages(Plan *plan)
{
	for (int i = 0; i < plan->reader->npartitions; i++)
	{
		KafkaPartition *partition = plan->reader->partitions[i];

		if (plan->end[i] < plan->from[i] || plan->end[i] > partition->next)
			return true; /* made again; or not here yet */
		if (plan->end[i] > plan->from[i] &&
			(partition->start > plan->from[i] || kafka_window_count(partition, plan->from[i], plan->end[i])))
			return true;
	}
	return false;
}

static int64
average_message_bytes(KafkaReader *reader)
{
	int64 bytes = 0, count = 0;

	for (int i = 0; i < reader->npartitions; i++)
	{
		bytes += reader->partitions[i]->bytes;
		count += reader->partitions[i]->count;
	}
	if (count > 0)
		reader->message_bytes = Max(bytes / count, 1);
	return reader->message_bytes > 0 ? reader->message_bytes : MESSAGE_BYTES;
}

/* Shares by backlog: below one message rounded up, so that nobody starves; else down. */
static void
plan_limit(Plan *plan, const ReadLimit *limit)
{
	int64 total = plan_backlog(plan);
	int64 max = limit->max_rows > 0 ? limit->max_rows : (limit->everything ? PG_INT64_MAX : BATCH_MESSAGES);

	if (limit->max_bytes > 0)
		max = Min(max, Max(limit->max_bytes / average_message_bytes(plan->reader), 1));
	if (total <= max)
		return;
	for (int i = 0; i < plan->reader->npartitions; i++)
	{
		int64 backlog = plan->end[i] - plan->from[i];
		double share = (double) backlog / total * max;

		if (backlog > 0)
			plan->end[i] = plan->from[i] + (int64) (share < 1 ? 1 : floor(share));
	}
}

/* Messages in the range: counted where they are here, else by offsets (holes count). */
static int64
plan_rows(Plan *plan)
{
	int64 rows = 0;

	for (int i = 0; i < plan->reader->npartitions; i++)
	{
		KafkaPartition *partition = plan->reader->partitions[i];

		if (plan->end[i] <= plan->from[i])
			continue;
		if (plan->end[i] <= partition->next && plan->from[i] >= partition->start)
			rows += kafka_window_count(partition, plan->from[i], plan->end[i]);
		else
			rows += plan->end[i] - plan->from[i];
	}
	return rows;
}

/* Does the partition hold messages behind the range? */
static bool
plan_leaves_messages(Plan *plan, int i)
{
	KafkaPartition *partition = plan->reader->partitions[i];

	if (kafka_window_count(partition, plan->end[i], PG_INT64_MAX) > 0)
		return true;
	if (partition_is_caught_up(plan->reader, partition))
		return false;
	return (plan->high ? plan->high[i] : PG_INT64_MAX) > plan->end[i];
}

/* The ends of the partitions as last heard of; nobody is asked. */
static Position *
plan_latest(Plan *plan, int64 *rows_left)
{
	KafkaReader *reader = plan->reader;
	int64 *latest = kafka_offsets_alloc(reader);

	for (int i = 0; i < reader->npartitions; i++)
	{
		KafkaPartition *partition = reader->partitions[i];
		int64_t low, high;

		latest[i] = plan->end[i];
		if (!plan_leaves_messages(plan, i))
			continue; /* holes, at most */
		if (plan->high)
			latest[i] = Max(latest[i], plan->high[i]);
		else if (partition->started && !rd_kafka_get_watermark_offsets(kafka_client_handle(reader->client), partition->topic->name,
																	   partition->id, &low, &high))
			latest[i] = Max(latest[i], high);
		*rows_left += latest[i] - plan->end[i];
	}
	return kafka_position_show(reader, latest);
}

/* No range, but what there is. */
static SourceAdvance
plan_nothing(Plan *plan)
{
	SourceAdvance nothing = {.rows = 0, .rows_waiting = 0};

	memcpy(plan->end, plan->from, sizeof(int64) * plan->reader->npartitions);
	nothing.latest = plan_latest(plan, &nothing.rows_left);
	return nothing;
}

static SourceAdvance
plan_result(Plan *plan, int64 waiting)
{
	KafkaReader *reader = plan->reader;
	SourceAdvance advance = {.rows = plan_rows(plan), .rows_waiting = waiting};
	JsonbParseState *state = NULL;
	int behind = 0;

	pushJsonbValue(&state, WJB_BEGIN_ARRAY, NULL);
	for (int i = 0; i < reader->npartitions; i++)
	{
		JsonbValue lane = {.type = jbvNumeric};

		reader->partitions[i]->planned = plan->end[i];
		if (plan->end[i] < plan->from[i])
			plan->evidence[reader->partitions[i]->topic->number].offset = -1; /* what was read is not of this topic */
		if (!plan_leaves_messages(plan, i))
			continue;
		behind++;
		lane.val.numeric = int64_to_numeric(kafka_partition_lane(reader, reader->partitions[i]));
		pushJsonbValue(&state, WJB_ELEM, &lane);
	}
	advance.end =
		kafka_position_make(reader, plan->end, kafka_evidence_collect(reader, plan->from, plan->end, plan->evidence));
	advance.more = behind > 0;
	advance.latest = plan_latest(plan, &advance.rows_left);
	if (behind > 0)
		advance.behind = JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_ARRAY, NULL));
	return advance;
}

SourceAdvance
kafka_advance(SourceReader *base, Position *from, Position *ceiling, const ReadLimit *limit)
{
	KafkaReader *reader = (KafkaReader *) base;
	SourceAdvance nothing = {.rows = 0, .rows_waiting = 0};
	Plan plan = {.reader = reader};
	int64 waiting;

	kafka_connect(reader);
	kafka_refresh_partitions(reader, false);
	if (reader->npartitions == 0)
		return nothing;
	plan.from = kafka_position_read(reader, from);
	plan.end = kafka_offsets_alloc(reader);
	plan.ceiling = ceiling ? kafka_position_read(reader, ceiling) : NULL;
	plan.evidence = kafka_position_evidence(reader, from);

	if (plan_needs_check(&plan))
		plan_check_range(&plan);
	plan_pull(&plan);
	if (plan_needs_check(&plan))
		plan_check_range(&plan);
	if (plan.restart)
		return plan_result(&plan, -1);
	plan_ends(&plan);
	if (plan.restart)
		return plan_result(&plan, -1);
	if (plan_backlog(&plan) == 0 && !plan.ceiling && !plan.high && (!reader->watched || limit->be_sure))
	{
		/* Nobody would wake us: make sure. */
		plan_ask_high(&plan);
		for (int i = 0; i < reader->npartitions; i++)
			plan.end[i] = Max(plan.high[i], plan.end[i]);
	}
	for (int i = 0; i < reader->npartitions; i++)
		reader->partitions[i]->planned = plan.from[i];
	if ((!plan.ceiling && !plan_has_messages(&plan)) || memcmp(plan.from, plan.end, sizeof(int64) * reader->npartitions) == 0)
		return plan_nothing(&plan);
	waiting = plan_backlog(&plan);
	plan_limit(&plan, limit);
	/*
	 * Partitions are looked at one after the other: what came to the first in the meantime may have been sent before what the range takes of the last.
	 * It waits for the next batch, and must hold the watermark until then.
	 */
	if (!plan.ceiling && reader->npartitions > 1)
		plan_pull(&plan);
	return plan_result(&plan, waiting);
}
