/*
 * hop.c: GROUP BY stream.hop(ts, size, slide): rows go into panes, one each, however many windows cover them; windows are put together from panes when they
 * are emitted, by the aggregates' combine functions.
 * A row is late for the windows that have ended, as if it stood in each by itself: it counts in the others. A window that was emitted and closed is not
 * looked at again, so its panes may go on taking rows.
 */
#include "operator/hop.h"

#include "common/int.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "util/window_range.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

int64
hop_pane(int64 size, int64 slide)
{
	while (slide != 0)
	{
		int64 rest = size % slide;

		size = slide;
		slide = rest;
	}
	return size;
}

void
hop_windows_of_pane(HopOperator *op, int64 pane, int64 *first, int64 *last)
{
	if (!window_hops(pane, op->spec->size, op->spec->slide, op->spec->origin, first, last))
		ereport(ERROR, (errcode(ERRCODE_DATETIME_FIELD_OVERFLOW), errmsg("timestamp out of range"))); /* the rows in it were not */
}

/* ---- opening ---- */

static Operator *
hop_open(OperatorSpec *spec, int64 query_id, const StateProvider *provider, int64 last_batch)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "stream hop", ALLOCSET_DEFAULT_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(context);
	HopOperator *op = palloc0(sizeof(HopOperator));
	StateSchema keys;

	op->aggregate.base.context = context;
	op->spec = (HopSpec *) spec;
	op->pane = hop_pane(op->spec->size, op->spec->slide);
	aggregate_init(&op->aggregate, &hop_operator, spec, query_id, provider, last_batch);
	keys = aggregate_list_schema(&op->aggregate);
	op->range = TupleDescAttr(op->aggregate.groups->schema.keydesc, HOP_COLUMN(op))->atttypid;
	op->index = pane_index_create(&keys);
	op->key = MakeSingleTupleTableSlot(op->aggregate.groups->schema.keydesc, &TTSOpsVirtual);
	op->combined = CreateStandaloneExprContext();
	MemoryContextSwitchTo(caller);
	return &op->aggregate.base;
}

/* ---- rows ---- */

static void
hop_begin(Operator *base, const BatchInfo *batch)
{
	HopOperator *op = (HopOperator *) base;

	aggregate_check_permissions(&op->aggregate);
	base->batch = batch;
	memset(&base->metrics, 0, sizeof(base->metrics));
	pane_index_clear(op->index);
}

/* The row in its pane, or in one of its windows. */
static void
set_window(HopOperator *op, TupleTableSlot *slot, Datum window)
{
	slot->tts_values[HOP_COLUMN(op)] = window;
	slot->tts_isnull[HOP_COLUMN(op)] = false;
}

/* The pane of an instant becomes the recent one; false: no window covers it. */
static bool
find_pane(HopOperator *op, int64 at)
{
	HopSpec *spec = op->spec;
	MemoryContext caller;

	if (at >= op->recent.start && at < op->recent.end)
		return true;
	op->recent.start = op->recent.end = 0;
	if (!window_hops(at, spec->size, spec->slide, spec->origin, &op->recent.first, &op->recent.last) ||
		!window_bounds(at, op->pane, spec->origin, &op->recent.start, &op->recent.end))
		return false;
	if (op->recent.range)
		pfree(DatumGetPointer(op->recent.range));
	caller = MemoryContextSwitchTo(op->aggregate.base.context);
	op->recent.range = window_range_make(op->range, op->recent.start, op->recent.end);
	MemoryContextSwitchTo(caller);
	return true;
}

/* Counts the windows the row is late for; the first it is not late for. */
static int64
late_windows(HopOperator *op, TupleTableSlot *slot, int64 first, int64 last)
{
	MemoryContext caller = MemoryContextSwitchTo(op->aggregate.row_context);

	for (; first <= last && first + op->spec->size <= op->aggregate.base.batch->late_watermark; first += op->spec->slide)
	{
		set_window(op, slot, window_range_make(op->range, first, first + op->spec->size));
		operator_late_row(&op->aggregate.base, slot);
	}
	MemoryContextSwitchTo(caller);
	MemoryContextReset(op->aggregate.row_context);
	return first;
}

static void
hop_receive(Operator *base, int input, TupleTableSlot *slot)
{
	HopOperator *op = (HopOperator *) base;
	AggregateOperator *aggregate = &op->aggregate;
	HopSpec *spec = op->spec;
	int column = spec->start - 1;
	int64 first;
	StateEntry *entry;
	bool created;

	slot_getallattrs(slot);
	if (slot->tts_isnull[column] || !find_pane(op, DatumGetInt64(slot->tts_values[column])))
	{
		if (aggregate->closes)
			operator_late_row(base, slot);
		return;
	}
	first = op->recent.first;
	if (aggregate->closes && first + spec->size <= base->batch->late_watermark)
		first = late_windows(op, slot, first, op->recent.last);
	if (first > op->recent.last)
		return;
	set_window(op, slot, op->recent.range);
	entry = aggregate->provider->put(aggregate->groups, slot, &created);
	if (created)
	{
		entry->value = aggregate_value_create(aggregate, aggregate->provider->value_context(aggregate->groups));
		/* In append mode it is asked for whenever one of its windows ends, else only to be let go with the last. */
		if (aggregate->closes)
			aggregate->provider->set_expiry(aggregate->groups, entry,
											(base->batch->output_mode == OUTPUT_APPEND ? first : op->recent.last) + spec->size);
	}
	aggregate_value_advance(aggregate, entry->value, entry, slot);
}

/* ---- windows ---- */

void
hop_emit(HopOperator *op, PaneList *list, int64 start, Cell *cells)
{
	AggregateOperator *aggregate = &op->aggregate;
	TupleTableSlot *row;

	row = aggregate_group_row(aggregate, list->sample, cells);
	row->tts_values[HOP_COLUMN(op)] = window_range_make(op->range, start, start + op->spec->size);
	tuplestore_puttupleslot(op->out, row);
	aggregate_group_row_done(aggregate);
}

static void
collect(HopOperator *op, StateEntry *entry)
{
	TupleTableSlot *slot = op->aggregate.key_slot;
	int64 start, end;

	ExecStoreMinimalTuple(entry->key, slot, false);
	slot_getallattrs(slot);
	window_range_read(slot->tts_values[HOP_COLUMN(op)], &start, &end);
	pane_index_add(op->index, slot, start, entry);
	ExecClearTuple(slot);
}

static void
emit_changed_windows(void *arg, PaneList *list)
{
	HopOperator *op = arg;

	hop_slide(op, list, op->aggregate.closes ? op->aggregate.base.batch->late_watermark : DT_NOBEGIN);
}

/* Update: the windows that cover what this batch has changed; complete: all. */
static void
emit_windows(HopOperator *op, bool all)
{
	const StateProvider *provider = op->aggregate.provider;
	StateStore *store = op->aggregate.groups;
	StateEntry *entry;

	if (all)
		provider->scan_start(store);
	else
		provider->scan_changed(store);
	while ((entry = all ? provider->scan_next(store) : provider->scan_changed_next(store)))
		collect(op, entry);
	pane_index_walk(op->index, emit_changed_windows, op);
	pane_index_clear(op->index);
}

/* ---- the end of windows ---- */

typedef struct Round
{
	HopOperator *op;
	int64 start; /* of the windows that end now */
} Round;

/* A window that has ended: all of its panes are in the list. */
static void
emit_ended_window(void *arg, PaneList *list)
{
	Round *round = arg;
	HopOperator *op = round->op;
	AggregateOperator *aggregate = &op->aggregate;
	Cell *cells = aggregate_value_create(aggregate, op->combined->ecxt_per_tuple_memory);

	CHECK_FOR_INTERRUPTS();
	for (int i = 0; i < list->n; i++)
		aggregate_value_add(aggregate, op->combined, cells, list->panes[i].entry->value);
	hop_emit(op, list, round->start, cells);
	ReScanExprContext(op->combined);
}

static void
remove_pane(HopOperator *op, StateEntry *entry)
{
	op->aggregate.provider->remove(op->aggregate.groups, entry);
	op->aggregate.base.metrics.removed++;
}

/* Panes no window needs any more. */
static void
remove_spent(void *arg, PaneList *list)
{
	Round *round = arg;
	HopOperator *op = round->op;

	for (int i = 0; i < list->n; i++)
	{
		int64 first, last;

		hop_windows_of_pane(op, list->panes[i].start, &first, &last);
		if (last <= round->start)
			remove_pane(op, list->panes[i].entry);
	}
}

/* Panes of the windows that end at `end` into the index; they come again when the next of theirs does. */
static void
collect_ended(HopOperator *op, int64 end)
{
	const StateProvider *provider = op->aggregate.provider;
	StateEntry *entry;

	while ((entry = provider->next_expired(op->aggregate.groups, end)))
	{
		collect(op, entry);
		provider->postpone(op->aggregate.groups, entry, end + op->spec->slide);
	}
}

/* The end of the first window that ends at or after `at`, and after the watermark up to which windows were emitted before. */
static int64
first_end(HopOperator *op, int64 at)
{
	TimestampTz late = op->aggregate.base.batch->late_watermark;
	int64 start, end;

	at = Max(at, late == DT_NOBEGIN ? at : late + 1);
	/* ends lie where starts do, size behind them */
	if (!window_bounds(at - op->spec->size - 1, op->spec->slide, op->spec->origin, &start, &end))
		return DT_NOEND;
	return end + op->spec->size;
}

/*
 * Emits the windows that end up to the watermark, end by end. What the store says of panes may be older than the watermark of the last batch, since it
 * was not told of each postponement: those windows have been emitted.
 */
static void
end_windows(HopOperator *op, TimestampTz watermark)
{
	StateEntry *entry;
	int64 end;

	while ((entry = op->aggregate.provider->next_expired(op->aggregate.groups, watermark)) && (end = first_end(op, entry->expires)) <= watermark)
	{
		Round round = {op, end - op->spec->size};

		CHECK_FOR_INTERRUPTS();
		collect_ended(op, end);
		pane_index_walk(op->index, emit_ended_window, &round);
		pane_index_walk(op->index, remove_spent, &round);
		pane_index_clear(op->index);
	}
}

static void
evict(HopOperator *op)
{
	TimestampTz watermark = op->aggregate.base.batch->evict_watermark;
	StateEntry *entry;

	if (watermark == DT_NOBEGIN)
		return;
	if (op->aggregate.base.batch->output_mode == OUTPUT_APPEND)
	{
		end_windows(op, watermark);
		return;
	}
	while ((entry = op->aggregate.provider->next_expired(op->aggregate.groups, watermark)))
		remove_pane(op, entry);
}

static void
hop_finish(Operator *base, Tuplestorestate *out)
{
	HopOperator *op = (HopOperator *) base;

	op->out = out;
	if (base->batch->output_mode != OUTPUT_APPEND)
		emit_windows(op, base->batch->output_mode == OUTPUT_COMPLETE);
	base->metrics.updated = op->aggregate.provider->metrics(op->aggregate.groups).changed;
	if (op->aggregate.closes)
		evict(op);
	aggregate_measure(&op->aggregate);
}

/* ---- around the commit ---- */

static void
hop_forget(Operator *base, int64 last_batch)
{
	HopOperator *op = (HopOperator *) base;
	MemoryContext caller = MemoryContextSwitchTo(base->context);

	aggregate_forget(base, last_batch);
	FreeExprContext(op->combined, false);
	op->combined = CreateStandaloneExprContext();
	pane_index_clear(op->index);
	MemoryContextSwitchTo(caller);
}

static void
hop_close(Operator *base)
{
	FreeExprContext(((HopOperator *) base)->combined, false);
	aggregate_close(base);
}

const OperatorOps hop_operator = {.name = "stateStoreSave",
								  .open = hop_open,
								  .begin = hop_begin,
								  .receive = hop_receive,
								  .finish = hop_finish,
								  .flush = aggregate_flush,
								  .committed = aggregate_committed,
								  .forget = hop_forget,
								  .wants_batch = aggregate_wants_batch,
								  .close = hop_close,
								  .check = aggregate_check,
								  .extend = aggregate_extend,
								  .show = aggregate_show};
