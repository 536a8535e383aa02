/*
 * log.c: the console sink: every row a line of the server log, as JSON, with the query's name and the batch.
 * The log is no part of the transaction: a batch that is run again is logged again.
 */
#include "sink/sink.h"

#include "sink/row_json.h"
#include "utils/builtins.h"
#include "utils/memutils.h"

typedef struct LogSink
{
	Sink base;
	RowJson *row;
} LogSink;

static void
to_log_create(SinkDef *def, SinkShape *shape)
{
	sink_refuse_options(def);
}

static Sink *
to_log_open(SinkDef *def, SinkShape *shape)
{
	LogSink *sink = (LogSink *) sink_make(sizeof(LogSink), &log_sink, def, shape);

	sink->row = row_json_make(shape->desc);
	return &sink->base;
}

static void
to_log_receive(Sink *base, TupleTableSlot *slot)
{
	LogSink *sink = (LogSink *) base;
	Datum json = row_json_text(sink->row, slot);
	MemoryContext old = MemoryContextSwitchTo(sink->row->context);

	ereport(LOG, (errmsg("query \"%s\", batch " INT64_FORMAT ": %s", base->def->query_name, base->batch->batch_id, TextDatumGetCString(json)),
				  errhidestmt(true), errhidecontext(true)));
	MemoryContextSwitchTo(old);
	base->rows++;
}

static char *
to_log_describe(SinkDef *def)
{
	return pstrdup("server log");
}

const SinkOps log_sink = {
	.kind = "log",
	.in_database = false,
	.in_pieces = sink_always_in_pieces,
	.create = to_log_create,
	.open = to_log_open,
	.receive = to_log_receive,
	.describe = to_log_describe,
};
