/*
 * channel.c: the channel sink: one NOTIFY a row, the row as JSON, sent when the batch commits.
 * Postgres sends equal notifications of one transaction once: rows that are equal in every column reach listeners as one.
 */
#include "sink/sink.h"

#include "commands/async.h"
#include "sink/row_json.h"
#include "util/notify.h"
#include "utils/builtins.h"
#include "utils/memutils.h"

#define PAYLOAD_LIMIT 8000 /* NOTIFY_PAYLOAD_MAX_LENGTH is private to async.c; this is its default and documented */

typedef struct ChannelSink
{
	Sink base;
	RowJson *row;
} ChannelSink;

static void
to_channel_create(SinkDef *def, SinkShape *shape)
{
	sink_refuse_options(def);
	if (*def->target == '\0' || strlen(def->target) >= NAMEDATALEN)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("invalid channel \"%s\" of query \"%s\"", def->target, def->query_name),
						errdetail("A channel name has from 1 to %d bytes.", NAMEDATALEN - 1)));
}

static Sink *
to_channel_open(SinkDef *def, SinkShape *shape)
{
	ChannelSink *sink = (ChannelSink *) sink_make(sizeof(ChannelSink), &channel_sink, def, shape);

	sink->row = row_json_make(shape->desc);
	return &sink->base;
}

/* Found out here the cause passes by itself; found out by the commit it would be a limit like any other. */
static void
to_channel_begin(Sink *base, const BatchInfo *batch)
{
	if (notify_queue_is_full())
		ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_RESOURCES), errmsg("query \"%s\" cannot notify channel \"%s\": the queue of NOTIFY is full", base->def->query_name, base->def->target),
						errdetail("A session that listens has been in one transaction for long."),
						errhint("pg_notification_queue_usage() says how full the queue is, the server's log which process holds it.")));
}

static void
to_channel_receive(Sink *base, TupleTableSlot *slot)
{
	ChannelSink *sink = (ChannelSink *) base;
	Datum json = row_json_text(sink->row, slot);
	MemoryContext old = MemoryContextSwitchTo(sink->row->context);
	char *payload = TextDatumGetCString(json);

	if (strlen(payload) >= PAYLOAD_LIMIT)
		ereport(ERROR, (errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED), errmsg("row of query \"%s\" is too long for channel \"%s\"", base->def->query_name, base->def->target),
						errdetail("A notification takes less than %d bytes, the row has %zu as JSON.", PAYLOAD_LIMIT, strlen(payload)),
						errhint("Write the rows to a table and notify of their keys.")));
	MemoryContextSwitchTo(old);
	Async_Notify(base->def->target, payload);
	base->rows++;
}

static char *
to_channel_describe(SinkDef *def)
{
	return psprintf("channel %s", def->target);
}

const SinkOps channel_sink = {
	.kind = "channel",
	.needs_target = true,
	.in_database = true,
	.in_pieces = sink_always_in_pieces,
	.create = to_channel_create,
	.open = to_channel_open,
	.begin = to_channel_begin,
	.receive = to_channel_receive,
	.describe = to_channel_describe,
};
