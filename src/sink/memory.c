/*
 * memory.c: the memory sink, for tests: rows as JSON in a table of the extension, read with stream.memory(query).
 * Same transaction as the commit entry: exactly once. In complete mode each batch replaces what is there.
 */
#include "sink/sink.h"

#include "metadata/memory_row.h"
#include "sink/row_json.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/memutils.h"

typedef struct MemorySink
{
	Sink base;
	RowJson *row;
} MemorySink;

static void
to_memory_create(SinkDef *def, SinkShape *shape)
{
	sink_refuse_options(def);
}

static Sink *
to_memory_open(SinkDef *def, SinkShape *shape)
{
	MemorySink *sink = (MemorySink *) sink_make(sizeof(MemorySink), &memory_sink, def, shape);

	sink->row = row_json_make(shape->desc);
	return &sink->base;
}

static void
to_memory_begin(Sink *base, const BatchInfo *batch)
{
	if (base->shape->mode == OUTPUT_COMPLETE)
		memory_rows_delete(batch->query_id, 0);
}

static void
to_memory_receive(Sink *base, TupleTableSlot *slot)
{
	MemorySink *sink = (MemorySink *) base;
	Datum json = row_json_text(sink->row, slot);
	MemoryContext old = MemoryContextSwitchTo(sink->row->context);
	Datum row = DirectFunctionCall1(jsonb_in, CStringGetDatum(TextDatumGetCString(json)));

	memory_row_add(base->batch->query_id, base->batch->batch_id, base->batch->rows_before + base->rows++, DatumGetJsonbP(row));
	MemoryContextSwitchTo(old);
}

static char *
to_memory_describe(SinkDef *def)
{
	return pstrdup("memory");
}

const SinkOps memory_sink = {
	.kind = "memory",
	.in_database = true,
	.in_pieces = sink_always_in_pieces,
	.create = to_memory_create,
	.open = to_memory_open,
	.begin = to_memory_begin,
	.receive = to_memory_receive,
	.describe = to_memory_describe,
};
