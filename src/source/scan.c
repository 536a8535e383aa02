/*
 * scan.c: one pass over a range of a source. The first scan of a batch observes (counts, event time, bad rows); whatever the plan does with it,
 * every row of the range is observed exactly once.
 */
#include "source/source.h"

#include "executor/executor.h"
#include "util/operation.h"
#include "utils/memutils.h"

SourceScan *
source_scan_open(SourceReader *reader, SourceBatch *batch, Bitmapset *needed)
{
	SourceScan *scan = palloc0(sizeof(SourceScan));

	scan->reader = reader;
	scan->batch = batch;
	scan->context = CurrentMemoryContext;
	scan->row_context = AllocSetContextCreate(CurrentMemoryContext, "stream_ext row", ALLOCSET_DEFAULT_SIZES);
	scan->needed = needed;
	if (batch)
	{
		scan->remote = batch->remote;
		scan->from = batch->from;
		scan->to = batch->to;
		scan->observer = !batch->observer_taken;
		batch->observer_taken = true;
		if (scan->observer && needed != NULL && reader->def->event_time > 0)
			scan->needed = bms_add_member(bms_copy(needed), reader->def->event_time);
		scan->range_done = batch->to == NULL;
		scan->done = scan->range_done && batch->letters == NIL;
		if (scan->done && scan->observer)
			batch->observed_all = true;
	}
	return scan;
}

static bool
range_next(SourceScan *scan, TupleTableSlot *slot)
{
	const SourceOps *ops = scan->reader->ops;
	MemoryContext old;

	if (!scan->started)
	{
		old = MemoryContextSwitchTo(scan->context);
		if (scan->remote && !scan->remote->begin(scan))
			scan->remote = NULL;
		if (!scan->remote)
			ops->scan_begin(scan);
		scan->started = true;
		MemoryContextSwitchTo(old);
	}
	if (scan->remote)
	{
		scan->range_done = !scan->remote->next(scan, slot);
		return !scan->range_done;
	}
	/* Small rows share a block, and go together. */
	if (scan->row_context->mem_allocated > ALLOCSET_DEFAULT_INITSIZE)
		MemoryContextReset(scan->row_context);
	old = MemoryContextSwitchTo(scan->row_context);
	scan->range_done = !ops->scan_next(scan, slot);
	MemoryContextSwitchTo(old);
	return !scan->range_done;
}

/* Early ones are shown more often: where rows are slow, they count. */
static bool
is_worth_showing(int64 rows)
{
	return rows % OPERATION_ROWS == 0 || (rows < OPERATION_ROWS && (rows & (rows - 1)) == 0);
}

/* Behind the range: dead letters that come again. */
static bool
letters_next(SourceScan *scan, TupleTableSlot *slot)
{
	bool found = false;

	while (!found && scan->batch && scan->next_letter < list_length(scan->batch->letters))
	{
		MemoryContext old;

		scan->letter = list_nth(scan->batch->letters, scan->next_letter++);
		MemoryContextReset(scan->row_context);
		old = MemoryContextSwitchTo(scan->row_context);
		memset(slot->tts_isnull, true, slot->tts_tupleDescriptor->natts * sizeof(bool));
		found = scan->reader->ops->scan_again(scan, scan->letter, slot);
		MemoryContextSwitchTo(old);
	}
	if (!found)
		scan->letter = NULL;
	return found;
}

bool
source_scan_next(SourceScan *scan, TupleTableSlot *slot)
{
	bool found;

	ExecClearTuple(slot);
	if (scan->done)
		return false;
	found = !scan->range_done && range_next(scan, slot);
	if (!found && !letters_next(scan, slot))
	{
		scan->done = true;
		if (scan->observer)
			scan->batch->observed_all = true;
		return false;
	}
	if (scan->observer && (!scan->remote || scan->letter))
	{
		source_observe(scan, slot);
		if (is_worth_showing(scan->batch->rows))
			source_show_progress(scan->batch);
	}
	ExecStoreVirtualTuple(slot);
	return true;
}

/* The observing scan of a batch reads on to the end of its range, so that everything has been seen once. */
static void
scan_drain(SourceScan *scan)
{
	if (scan->observer && !scan->done)
	{
		TupleTableSlot *slot = MakeSingleTupleTableSlot(scan->reader->def->desc, &TTSOpsVirtual);

		while (source_scan_next(scan, slot))
			;
		ExecDropSingleTupleTableSlot(slot);
	}
}

void
source_scan_rewind(SourceScan *scan)
{
	if (!scan->started && scan->next_letter == 0)
		return;
	scan_drain(scan);
	scan->observer = false;
	scan->letter = NULL;
	scan->next_letter = 0;
	scan->range_done = scan->batch && scan->batch->to == NULL;
	scan->done = scan->range_done && scan->batch->letters == NIL;
	if (scan->started && scan->remote)
		scan->remote->rewind(scan);
	else if (scan->started)
		scan->reader->ops->scan_rewind(scan);
}

void
source_scan_close(SourceScan *scan)
{
	scan_drain(scan);
	if (scan->started && scan->remote)
		scan->remote->end(scan);
	else if (scan->started)
		scan->reader->ops->scan_end(scan);
	MemoryContextDelete(scan->row_context);
}

void
source_drain(SourceBatch *batch)
{
	SourceScan *scan;

	if (batch->observed_all || (batch->to == NULL && batch->letters == NIL))
		return;
	scan = source_scan_open(batch->reader, batch, bms_make_singleton(0));
	scan->observer = true;
	source_scan_close(scan);
}
