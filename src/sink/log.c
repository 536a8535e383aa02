/*
 * log.c: the console sink: every row a line of the server log, as JSON, with the query's name and the batch.
 * The log is no part of the transaction: a batch that is run again is logged again.
 */
#include "sink/sink.h"

#include "access/htup_details.h"
#include "funcapi.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/memutils.h"

typedef struct LogSink
{
	Sink base;
	TupleDesc desc;		/* blessed copy of the shape's */
	MemoryContext row;	/* one row's text */
} LogSink;

static void
to_log_create(SinkDef *def, SinkShape *shape)
{
}

static Sink *
to_log_open(SinkDef *def, SinkShape *shape)
{
	LogSink *sink = palloc0(sizeof(LogSink));

	sink->base.ops = &log_sink;
	sink->base.def = def;
	sink->base.shape = shape;
	sink->desc = BlessTupleDesc(CreateTupleDescCopy(shape->desc));
	sink->row = AllocSetContextCreate(CurrentMemoryContext, "stream_ext log sink row", ALLOCSET_DEFAULT_SIZES);
	return &sink->base;
}

static void
to_log_begin(Sink *base, const BatchInfo *batch)
{
	base->batch = batch;
	base->rows = 0;
}

static void
to_log_receive(Sink *base, TupleTableSlot *slot)
{
	LogSink *sink = (LogSink *) base;
	MemoryContext old;
	HeapTuple tuple;
	Datum json;

	MemoryContextReset(sink->row);
	old = MemoryContextSwitchTo(sink->row);
	slot_getallattrs(slot);
	tuple = heap_form_tuple(sink->desc, slot->tts_values, slot->tts_isnull);
	json = DirectFunctionCall1(row_to_json, HeapTupleGetDatum(tuple));
	ereport(LOG, (errmsg("query \"%s\", batch " INT64_FORMAT ": %s", base->def->query_name, base->batch->batch_id, TextDatumGetCString(json)),
				  errhidestmt(true), errhidecontext(true)));
	MemoryContextSwitchTo(old);
	base->rows++;
}

static void
to_log_finish(Sink *base)
{
}

static void
to_log_close(Sink *base)
{
	MemoryContextDelete(((LogSink *) base)->row);
}

static char *
to_log_describe(SinkDef *def)
{
	return pstrdup("server log");
}

const SinkOps log_sink = {
	.kind = "log",
	.in_database = false,
	.create = to_log_create,
	.open = to_log_open,
	.begin = to_log_begin,
	.receive = to_log_receive,
	.finish = to_log_finish,
	.close = to_log_close,
	.describe = to_log_describe,
};
