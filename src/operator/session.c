/*
 * session.c: GROUP BY stream.session(ts, gap): a row is [ts, ts + gap); those of a key that touch are one session, an aggregate's group whose bounds grow.
 * Rows move bounds in the index; when all have come, session_result.c tells the store, lets closed sessions go, and emits.
 * A session once closed stays closed: until no row in time can touch it any more it is remembered, and rows that do are late. Otherwise they would
 * open a second session that overlaps one already written.
 */
#include "operator/session.h"

#include "common/int.h"
#include "executor/executor.h"
#include "util/window_range.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

/* ---- opening ---- */

static void
closed_open(SessionOperator *op, int64 last_batch)
{
	StateSchema schema = op->aggregate.groups->schema;

	schema.state_name = "closed";
	schema.value_ops = NULL;
	op->closed = op->aggregate.provider->open(&schema, last_batch);
	op->aggregate.base.stores = lappend(op->aggregate.base.stores, op->closed);
}

/* What the state reader is shown: the output without the change column. */
static TupleTableSlot *
shown_slot(SessionOperator *op)
{
	AggregateOperator *aggregate = &op->aggregate;
	int n = aggregate->spec->nkeys + aggregate->nfinals;
	TupleDesc desc = CreateTemplateTupleDesc(n);

	for (int i = 1; i <= n; i++)
		TupleDescCopyEntry(desc, i, aggregate->spec->base.output, i);
	return MakeSingleTupleTableSlot(desc, &TTSOpsVirtual);
}

static Operator *
session_open(OperatorSpec *spec, int64 query_id, const StateProvider *provider, int64 last_batch)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "stream session", ALLOCSET_DEFAULT_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(context);
	SessionOperator *op = palloc0(sizeof(SessionOperator));
	StateSchema keys;

	op->aggregate.base.context = context;
	op->spec = (SessionSpec *) spec;
	op->aggregate.nprefix = ((AggregateSpec *) spec)->nkeys - 1;
	aggregate_init(&op->aggregate, &session_operator, spec, query_id, provider, last_batch);
	keys = aggregate_list_schema(&op->aggregate);
	op->index = session_index_create(&keys);
	op->key = MakeSingleTupleTableSlot(op->aggregate.groups->schema.keydesc, &TTSOpsVirtual);
	op->shown = shown_slot(op);
	if (op->aggregate.closes)
		closed_open(op, last_batch);
	MemoryContextSwitchTo(caller);
	return &op->aggregate.base;
}

/* ---- the index ---- */

TupleTableSlot *
session_entry_key(SessionOperator *op, StateEntry *entry, int64 *start, int64 *end)
{
	TupleTableSlot *slot = op->aggregate.key_slot;

	ExecStoreMinimalTuple(entry->key, slot, false);
	slot_getallattrs(slot);
	window_range_read(slot->tts_values[SESSION_COLUMN(op)], start, end);
	return slot;
}

static void
list_load(SessionOperator *op, SessionList *list, StateStore *store, TupleTableSlot *row)
{
	const StateProvider *provider = op->aggregate.provider;
	StateEntry *entry;
	int64 start, end;

	provider->scan_prefix(store, row);
	while ((entry = provider->scan_prefix_next(store)))
	{
		Session *session;

		(void) session_entry_key(op, entry, &start, &end);
		session = session_list_insert(op->index, list, session_list_first(list, start), start, end);
		session->entry = entry;
		session->closed = store == op->closed;
		ExecClearTuple(op->aggregate.key_slot);
	}
}

/* The sessions of a row's key, those of earlier batches too. */
static SessionList *
list_for_row(SessionOperator *op, TupleTableSlot *row)
{
	bool created;
	SessionList *list = session_index_find(op->index, row, &created);

	if (created)
	{
		list_load(op, list, op->aggregate.groups, row);
		if (op->closed)
			list_load(op, list, op->closed, row);
	}
	return list;
}

/* ---- rows ---- */

static void
session_begin(Operator *base, const BatchInfo *batch)
{
	SessionOperator *op = (SessionOperator *) base;
	AggregateOperator *aggregate = &op->aggregate;

	aggregate_check_permissions(aggregate);
	base->batch = batch;
	memset(&base->metrics, 0, sizeof(base->metrics));
	base->metrics.custom_name = "numRowsWithoutSession";
	base->metrics.custom_is_late = true;
	MemoryContextReset(aggregate->batch_context);
	aggregate->serial++;
	aggregate->arrival = (uint64) batch->batch_id << 32;
	op->ntouched = 0;
	op->maxtouched = 1024;
	op->touched = MemoryContextAlloc(aggregate->batch_context, sizeof(Touched) * op->maxtouched);
	session_index_clear(op->index);
}

static void
touch(SessionOperator *op, SessionList *list, Session *session)
{
	if (session->touched == op->aggregate.serial)
		return;
	session->touched = op->aggregate.serial;
	if (op->ntouched == op->maxtouched)
	{
		op->maxtouched *= 2;
		op->touched = repalloc_huge(op->touched, sizeof(Touched) * op->maxtouched);
	}
	op->touched[op->ntouched].key = list->key;
	op->touched[op->ntouched++].session = session;
}

static Cell *
session_cells(Session *session)
{
	return session->entry ? session->entry->value : session->cells;
}

static void
raise_reach(SessionOperator *op, Cell *cells, int64 gap)
{
	Cell *reach = aggregate_value_reach(&op->aggregate, cells);

	reach->value = Int64GetDatum(Max(DatumGetInt64(reach->value), gap));
}

/* Sessions from+1 … to-1 become part of from. */
static void
merge(SessionOperator *op, SessionList *list, int from, int to)
{
	Session *into = list->sessions[from];
	Cell *cells = session_cells(into);

	for (int i = from + 1; i < to; i++)
	{
		Session *piece = list->sessions[i];
		Cell *its = session_cells(piece);

		aggregate_value_merge(&op->aggregate, cells, its);
		raise_reach(op, cells, DatumGetInt64(aggregate_value_reach(&op->aggregate, its)->value));
		into->end = Max(into->end, piece->end);
		touch(op, list, piece);
		piece->swallowed = true;
		if (piece->entry == NULL)
			aggregate_value_free(&op->aggregate, piece->cells);
	}
	session_list_remove(list, from + 1, to - from - 1);
}

/* The session [start, end) belongs to, grown by it; NULL: that one is closed. */
static Session *
session_for_row(SessionOperator *op, SessionList *list, int64 start, int64 end)
{
	int from = session_list_first(list, start), to = from;
	Session *session;

	while (to < list->n && list->sessions[to]->start <= end)
		if (list->sessions[to++]->closed)
			return NULL;
	if (from == to)
	{
		session = session_list_insert(op->index, list, from, start, end);
		session->cells = aggregate_value_create(&op->aggregate, op->aggregate.live_context->ecxt_per_tuple_memory);
	}
	else
	{
		session = list->sessions[from];
		if (to > from + 1)
			merge(op, list, from, to);
		session->start = Min(session->start, start);
		session->end = Max(session->end, end);
	}
	touch(op, list, session);
	return session;
}

/* False: no gap, or one of zero or less. */
static bool
row_gap(SessionOperator *op, TupleTableSlot *slot, int64 *gap)
{
	int column = op->spec->gap - 1;

	return !slot->tts_isnull[column] && window_length(DatumGetIntervalP(slot->tts_values[column]), "the gap of a session", gap);
}

/* [ts, ts + gap) of a row; false if it is none: no time, a bound out of range. */
static bool
row_bounds(SessionOperator *op, TupleTableSlot *slot, int64 gap, int64 *start, int64 *end)
{
	int column = op->spec->start - 1;

	if (slot->tts_isnull[column])
		return false;
	*start = DatumGetInt64(slot->tts_values[column]);
	return !TIMESTAMP_NOT_FINITE(*start) && !pg_add_s64_overflow(*start, gap, end) && IS_VALID_TIMESTAMP(*end);
}

static void
session_receive(Operator *base, int input, TupleTableSlot *slot)
{
	SessionOperator *op = (SessionOperator *) base;
	AggregateOperator *aggregate = &op->aggregate;
	int64 gap = 0, start = 0, end = 0;
	SessionList *list;
	Session *session;
	Cell *cells;

	slot_getallattrs(slot);
	if (!row_gap(op, slot, &gap))
	{
		operator_windowless_row(base, slot);
		return;
	}
	if (!row_bounds(op, slot, gap, &start, &end) || (aggregate->closes && end <= base->batch->late_watermark))
	{
		operator_late_row(base, slot);
		return;
	}
	list = list_for_row(op, slot);
	session = session_for_row(op, list, start, end);
	if (session == NULL)
	{
		operator_late_row(base, slot);
		return;
	}
	cells = session_cells(session);
	raise_reach(op, cells, end - start);
	aggregate->arrival++;
	aggregate_value_advance(aggregate, cells, NULL, slot);
}

/* ---- around the commit ---- */

static void
session_forget(Operator *base, int64 last_batch)
{
	SessionOperator *op = (SessionOperator *) base;

	aggregate_forget(base, last_batch);
	session_index_clear(op->index);
	op->ntouched = 0;
}

static void
session_show(Operator *base, StateStore *store, StateEntry *entry, OperatorShow tell, void *arg)
{
	SessionOperator *op = (SessionOperator *) base;
	AggregateOperator *aggregate = &op->aggregate;
	int n = op->shown->tts_tupleDescriptor->natts;
	TupleTableSlot *row;

	if (store != aggregate->groups)
	{
		operator_show_key(base, store, entry, tell, arg);
		return;
	}
	row = aggregate_group_row(aggregate, entry->key, entry->removed ? NULL : entry->value);
	ExecClearTuple(op->shown);
	memcpy(op->shown->tts_values, row->tts_values, n * sizeof(Datum));
	memcpy(op->shown->tts_isnull, row->tts_isnull, n * sizeof(bool));
	tell(arg, ExecStoreVirtualTuple(op->shown), aggregate->spec->nkeys, false, entry->expires);
	aggregate_group_row_done(aggregate);
}

const OperatorOps session_operator = {.name = "sessionWindowStateStoreSaveExec",
									  .open = session_open,
									  .begin = session_begin,
									  .receive = session_receive,
									  .finish = session_finish,
									  .flush = aggregate_flush,
									  .committed = aggregate_committed,
									  .forget = session_forget,
									  .wants_batch = aggregate_wants_batch,
									  .close = aggregate_close,
									  .check = aggregate_check,
									  .extend = aggregate_extend,
									  .show = session_show};
