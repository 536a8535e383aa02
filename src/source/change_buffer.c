/*
 * change_buffer.c: decoded rows until their batch has taken them: a tuplestore that outlives transactions and goes to disk beyond work_mem.
 * Decoder → append → POINTER_NEXT plans ranges → a pointer of each scan. Danger: positions say what is in it; a store that an error left half filled
 * is thrown away, never trusted.
 */
#include "source/change.h"

#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "util/stored_row.h"
#include "utils/memutils.h"

static void
store_end(ChangeBuffer *buffer)
{
	if (buffer->store)
		tuplestore_end(buffer->store);
	buffer->store = NULL;
	MemoryContextReset(buffer->context);
}

/* Its file goes with the reader. */
static void
buffer_release(void *arg)
{
	ChangeBuffer *buffer = arg;

	store_end(buffer);
	MemoryContextDelete(buffer->context);
}

void
change_buffer_init(ChangeReader *reader)
{
	ChangeBuffer *buffer = &reader->buffer;
	TupleDesc own = reader->table.base.def->desc;

	/* Not below the reader's: children go before callbacks are called, and since 17 a tuplestore keeps its rows in one. */
	buffer->context = AllocSetContextCreate(TopMemoryContext, "stream_ext changes", ALLOCSET_DEFAULT_SIZES);
	buffer->release.func = buffer_release;
	buffer->release.arg = buffer;
	MemoryContextRegisterResetCallback(reader->table.base.context, &buffer->release);
	buffer->desc = CreateTemplateTupleDesc(BUFFER_OWN + own->natts);
	TupleDescInitEntry(buffer->desc, BUFFER_LSN + 1, "lsn", INT8OID, -1, 0);
	TupleDescInitEntry(buffer->desc, BUFFER_ROW + 1, "row", INT8OID, -1, 0);
	TupleDescInitEntry(buffer->desc, BUFFER_ERROR + 1, "error", TEXTOID, -1, 0);
	for (int i = 0; i < own->natts; i++)
		TupleDescCopyEntry(buffer->desc, BUFFER_OWN + i + 1, own, i + 1);
	buffer->slot = MakeSingleTupleTableSlot(buffer->desc, &TTSOpsMinimalTuple);
}

/* Empty, as if everything up to there had been taken. */
void
change_buffer_reset(ChangeReader *reader, ChangePosition at)
{
	ChangeBuffer *buffer = &reader->buffer;
	MemoryContext old;

	ExecClearTuple(buffer->slot);
	store_end(buffer);
	old = MemoryContextSwitchTo(buffer->context);
	buffer->store = tuplestore_begin_heap(true, true, work_mem);
	tuplestore_set_eflags(buffer->store, EXEC_FLAG_REWIND);
	for (int i = POINTER_NEXT; i < POINTERS; i++)
		(void) tuplestore_alloc_read_pointer(buffer->store, EXEC_FLAG_REWIND);
	buffer->pointers = POINTERS;
	buffer->busy = palloc0(sizeof(bool) * POINTERS);
	MemoryContextSwitchTo(old);
	buffer->begin = buffer->next = at;
	buffer->rows = buffer->taken = 0;
	buffer->last = InvalidXLogRecPtr;
	buffer->decoded = at.lsn;
}

void
change_buffer_append(ChangeReader *reader, Datum *values, bool *nulls)
{
	ChangeBuffer *buffer = &reader->buffer;

	tuplestore_putvalues(buffer->store, buffer->desc, values, nulls);
	buffer->last = (XLogRecPtr) DatumGetInt64(values[BUFFER_LSN]);
	buffer->rows++;
}

bool
change_buffer_fetch(ChangeReader *reader, int pointer, TupleTableSlot *slot)
{
	tuplestore_select_read_pointer(reader->buffer.store, pointer);
	return stored_row_next(reader->buffer.store, slot);
}

ChangePosition
change_buffer_position(TupleTableSlot *slot)
{
	bool isnull;
	XLogRecPtr lsn = (XLogRecPtr) DatumGetInt64(slot_getattr(slot, BUFFER_LSN + 1, &isnull));

	return (ChangePosition){lsn, DatumGetInt64(slot_getattr(slot, BUFFER_ROW + 1, &isnull))};
}

void
change_buffer_skip(ChangeReader *reader, int pointer, int64 rows)
{
	tuplestore_select_read_pointer(reader->buffer.store, pointer);
	if (rows > 0)
		(void) tuplestore_skiptuples(reader->buffer.store, rows, true);
}

void
change_buffer_take_upto(ChangeReader *reader, ChangePosition to)
{
	ChangeBuffer *buffer = &reader->buffer;

	while (change_buffer_fetch(reader, POINTER_PEEK, buffer->slot) && change_position_compare(change_buffer_position(buffer->slot), to) <= 0)
		buffer->taken++;
	change_buffer_skip(reader, POINTER_NEXT, buffer->taken);
	buffer->next = to;
}

void
change_buffer_copy(ChangeReader *reader, int from, int to)
{
	tuplestore_copy_read_pointer(reader->buffer.store, from, to);
}

int
change_buffer_pointer(ChangeReader *reader)
{
	ChangeBuffer *buffer = &reader->buffer;
	int pointer = POINTERS;

	while (pointer < buffer->pointers && buffer->busy[pointer])
		pointer++;
	if (pointer == buffer->pointers)
	{
		MemoryContext old = MemoryContextSwitchTo(buffer->context);

		pointer = tuplestore_alloc_read_pointer(buffer->store, EXEC_FLAG_REWIND);
		buffer->busy = repalloc(buffer->busy, sizeof(bool) * (pointer + 1));
		buffer->pointers = pointer + 1;
		MemoryContextSwitchTo(old);
	}
	buffer->busy[pointer] = true;
	change_buffer_copy(reader, POINTER_BEGIN, pointer);
	return pointer;
}

void
change_buffer_release(ChangeReader *reader, int pointer)
{
	reader->buffer.busy[pointer] = false;
}
