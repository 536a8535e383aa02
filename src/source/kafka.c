/*
 * kafka.c: Kafka topics as a source: its life, where a query starts, what wakes it. Options, planning and scans are
 * in files of their own. Positions come from the offset log and go nowhere else; no consumer group is involved.
 */
#include "source/kafka.h"

#include "util/clock.h"
#include "utils/builtins.h"

/* ---- life ---- */

static SourceReader *
kafka_open(SourceDef *def)
{
	KafkaReader *reader = palloc0(sizeof(KafkaReader));
	KafkaOptions *options = def->options;

	reader->base.ops = &kafka_source;
	reader->base.def = def;
	reader->base.context = CurrentMemoryContext;
	reader->options = options;
	for (int i = 0; i < options->ntopics; i++)
		kafka_topic_add(reader, options->topics[i])->lane_number = i;
	dlist_init(&reader->scans);
	return &reader->base;
}

static void
kafka_close(SourceReader *base)
{
	kafka_disconnect((KafkaReader *) base);
}

/* Making the client tells of properties that do not fit one another, such as a key without its certificate. */
static char *
kafka_absent(SourceDef *def)
{
	KafkaReader *reader = (KafkaReader *) kafka_open(def);
	char *absent;

	kafka_connect_only(reader);
	absent = kafka_ask_absent(reader);
	kafka_disconnect(reader);
	return absent;
}

/* ---- positions ---- */

int64 *
kafka_offsets_alloc(KafkaReader *reader)
{
	return palloc(sizeof(int64) * Max(reader->npartitions, 1));
}

/* Where messages of the starting time begin; partitions without any start at their end. */
static int64 *
offsets_at_time(KafkaReader *reader, int64 ms)
{
	int64 *offsets = kafka_offsets_alloc(reader), *latest = kafka_offsets_alloc(reader);

	kafka_list_offsets(reader, RD_KAFKA_OFFSET_END, latest);
	kafka_list_offsets(reader, ms, offsets);
	for (int i = 0; i < reader->npartitions; i++)
		if (offsets[i] < 0)
			offsets[i] = latest[i];
	return offsets;
}

/* "Latest" is as of the query's first look. A topic that was not there then is read from its beginning. */
static void
offsets_of_awaited(KafkaReader *reader, int64 *offsets)
{
	int64 *earliest = kafka_offsets_alloc(reader);

	kafka_list_offsets(reader, RD_KAFKA_OFFSET_BEGINNING, earliest);
	for (int i = 0; i < reader->npartitions; i++)
		if (reader->partitions[i]->topic->awaited)
			offsets[i] = earliest[i];
}

static Position *
kafka_initial(SourceReader *base)
{
	KafkaReader *reader = (KafkaReader *) base;
	KafkaOptions *options = reader->options;
	int64 *offsets;

	kafka_connect(reader);
	kafka_refresh_partitions(reader, true);
	if (options->starting_timestamp_ms >= 0)
		return kafka_position_make(reader, offsets_at_time(reader, options->starting_timestamp_ms), NULL);
	offsets = kafka_offsets_alloc(reader);
	kafka_list_offsets(reader, options->starting_at, offsets);
	if (options->starting_at == RD_KAFKA_OFFSET_END)
		offsets_of_awaited(reader, offsets);
	if (options->starting_offsets)
	{
		int64 *wanted = kafka_starting_offsets(reader), *latest = kafka_offsets_alloc(reader);

		kafka_list_offsets(reader, RD_KAFKA_OFFSET_END, latest);
		for (int i = 0; i < reader->npartitions; i++)
			if (wanted[i] == RD_KAFKA_OFFSET_END)
				offsets[i] = latest[i];
			else if (wanted[i] != RD_KAFKA_OFFSET_BEGINNING)
				offsets[i] = wanted[i];
	}
	return kafka_position_make(reader, offsets, NULL);
}

static Position *
kafka_latest(SourceReader *base)
{
	KafkaReader *reader = (KafkaReader *) base;
	int64 *offsets;

	kafka_connect(reader);
	kafka_refresh_partitions(reader, true);
	offsets = kafka_offsets_alloc(reader);
	kafka_list_offsets(reader, RD_KAFKA_OFFSET_END, offsets);
	return kafka_position_make(reader, offsets, NULL);
}

/* ---- waking ---- */

static pgsocket
kafka_wake_socket(SourceReader *base)
{
	KafkaReader *reader = (KafkaReader *) base;

	if (!reader->client)
		return PGINVALID_SOCKET;
	reader->watched = true;
	return kafka_client_socket(reader->client);
}

static bool
kafka_has_news(SourceReader *base)
{
	KafkaReader *reader = (KafkaReader *) base;
	bool news = false;

	if (!reader->client || clock_monotonic_us() - reader->refreshed_us >= KAFKA_LOOK_AGAIN_MS * INT64CONST(1000))
		return true;
	kafka_client_drain_socket(reader->client);
	kafka_client_poll(reader->client);
	for (int i = 0; i < reader->npartitions; i++)
	{
		KafkaPartition *partition = reader->partitions[i];

		if (partition->planned == KAFKA_NOT_FOUND || !partition->started)
			return true;
		kafka_window_pull(reader, partition, kafka_window_room(reader, partition), 0);
		news = news || partition->full || partition->error ||
			   kafka_window_count(partition, partition->planned, PG_INT64_MAX) > 0;
	}
	return news;
}

/* New partitions announce themselves to nobody. */
static int
kafka_look_again_ms(SourceReader *base)
{
	return KAFKA_LOOK_AGAIN_MS;
}

const SourceOps kafka_source = {
	.kind = "kafka",
	.server = KAFKA_SERVER,
	.shares = true,
	.check_option = kafka_check_option,
	.option_names = kafka_option_names,
	.parse = kafka_parse,
	.open = kafka_open,
	.absent = kafka_absent,
	.initial = kafka_initial,
	.latest = kafka_latest,
	.advance = kafka_advance,
	.scan_begin = kafka_scan_begin,
	.scan_next = kafka_scan_next,
	.scan_rewind = kafka_scan_rewind,
	.scan_end = kafka_scan_end,
	.scan_again = kafka_decode_again,
	.wake_socket = kafka_wake_socket,
	.has_news = kafka_has_news,
	.look_again_ms = kafka_look_again_ms,
	.close = kafka_close,
};
