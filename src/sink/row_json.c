/*
 * row_json.c: rows as records and as JSON text, one at a time, in memory that is reset for each.
 */
#include "sink/row_json.h"

#include "access/htup_details.h"
#include "fmgr.h"
#include "funcapi.h"
#include "utils/fmgrprotos.h"
#include "utils/memutils.h"

RowJson *
row_json_make(TupleDesc desc)
{
	RowJson *row = palloc(sizeof(RowJson));

	row->desc = BlessTupleDesc(CreateTupleDescCopy(desc));
	row->context = AllocSetContextCreate(CurrentMemoryContext, "stream_ext sink row", ALLOCSET_DEFAULT_SIZES);
	return row;
}

Datum
row_json_record(RowJson *row, TupleTableSlot *slot)
{
	MemoryContext old;
	Datum record;

	MemoryContextReset(row->context);
	old = MemoryContextSwitchTo(row->context);
	slot_getallattrs(slot);
	record = HeapTupleGetDatum(heap_form_tuple(row->desc, slot->tts_values, slot->tts_isnull));
	MemoryContextSwitchTo(old);
	return record;
}

Datum
row_json_text(RowJson *row, TupleTableSlot *slot)
{
	Datum record = row_json_record(row, slot);
	MemoryContext old = MemoryContextSwitchTo(row->context);
	Datum text = DirectFunctionCall1(row_to_json, record);

	MemoryContextSwitchTo(old);
	return text;
}
