/*
 * session.c: GROUP BY stream.session(ts, gap): a row is [ts, ts + gap); those of a key that touch are one session, an aggregate's group whose bounds grow.
 * Rows move bounds in the index; when all have come, the store is told, closed sessions are let go, and results emitted as the output mode says.
 * A session once closed stays closed: until no row in time can touch it any more it is remembered, and rows that do are late. Otherwise they would
 * open a second session that overlaps one already written.
 */
#include "operator/session.h"

#include "catalog/pg_type.h"
#include "common/int.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "util/window_range.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

typedef struct Touched
{
	MinimalTuple key;
	Session *session;
} Touched;

typedef struct SessionOperator
{
	AggregateOperator aggregate;
	SessionSpec *spec;
	StateStore *closed; /* by key and bounds, without values; NULL where nothing closes */
	SessionIndex *index; /* of this batch */
	Touched *touched; /* in the batch's memory */
	int64 ntouched, maxtouched;
	TupleTableSlot *key; /* virtual: a key of the stores */
	TupleTableSlot *shown;
} SessionOperator;

#define SESSION_COLUMN(op) ((op)->aggregate.spec->nkeys - 1) /* of keys, 0-based */

/* ---- opening ---- */

/* The columns before the session. */
static StateSchema
list_schema(SessionOperator *op)
{
	StateSchema schema = op->aggregate.groups->schema;
	TupleDesc all = schema.keydesc;

	schema.keydesc = CreateTemplateTupleDesc(all->natts - 1);
	for (int i = 1; i < all->natts; i++)
		TupleDescCopyEntry(schema.keydesc, i, all, i);
	return schema;
}

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
	keys = list_schema(op);
	op->index = session_index_create(&keys);
	op->key = MakeSingleTupleTableSlot(op->aggregate.groups->schema.keydesc, &TTSOpsVirtual);
	op->shown = shown_slot(op);
	if (op->aggregate.closes)
		closed_open(op, last_batch);
	MemoryContextSwitchTo(caller);
	return &op->aggregate.base;
}

/* ---- the index ---- */

/* The key of an entry, with the bounds of its session. */
static TupleTableSlot *
entry_key(SessionOperator *op, StateEntry *entry, int64 *start, int64 *end)
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

		(void) entry_key(op, entry, &start, &end);
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

/* ---- one batch: rows ---- */

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

/* A key of the stores, in op->key. */
static TupleTableSlot *
session_key(SessionOperator *op, MinimalTuple key, int64 start, int64 end)
{
	int column = SESSION_COLUMN(op);

	ExecClearTuple(op->key);
	key_deform(op->index->keys, key, op->key->tts_values, op->key->tts_isnull);
	op->key->tts_values[column] = window_range_make(TupleDescAttr(op->key->tts_tupleDescriptor, column)->atttypid, start, end);
	op->key->tts_isnull[column] = false;
	return ExecStoreVirtualTuple(op->key);
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

/* ---- one batch: results ---- */

static void
emit(SessionOperator *op, MinimalTuple key, Cell *cells, Tuplestorestate *out)
{
	AggregateOperator *aggregate = &op->aggregate;
	int change = aggregate->spec->nkeys + aggregate->nfinals;
	TupleTableSlot *row;

	CHECK_FOR_INTERRUPTS();
	row = aggregate_group_row(aggregate, key, cells);
	if (change < row->tts_tupleDescriptor->natts)
	{
		row->tts_values[change] = BoolGetDatum(cells == NULL);
		row->tts_isnull[change] = false;
	}
	tuplestore_puttupleslot(out, row);
	aggregate_group_row_done(aggregate);
}

/* The bounds under which it is stored, and was written, are its no longer. */
static void
leave(SessionOperator *op, Session *session, Tuplestorestate *out)
{
	if (op->aggregate.base.batch->output_mode == OUTPUT_UPDATE)
		emit(op, session->entry->key, NULL, out);
	op->aggregate.provider->remove(op->aggregate.groups, session->entry);
}

static bool
bounds_are_stored(SessionOperator *op, Session *session)
{
	int64 start, end;

	if (session->entry == NULL)
		return false;
	(void) entry_key(op, session->entry, &start, &end);
	ExecClearTuple(op->aggregate.key_slot);
	return session->start == start && session->end == end;
}

/* Under its present bounds into the store. */
static void
session_store(SessionOperator *op, MinimalTuple key, Session *session, Tuplestorestate *out)
{
	AggregateOperator *aggregate = &op->aggregate;
	const StateProvider *provider = aggregate->provider;
	bool created;

	if (bounds_are_stored(op, session))
	{
		provider->changed(aggregate->groups, session->entry);
		return;
	}
	if (session->entry)
	{
		session->cells = session->entry->value;
		session->entry->value = NULL; /* they move on */
		leave(op, session, out);
	}
	session->entry = provider->put(aggregate->groups, session_key(op, key, session->start, session->end), &created);
	Assert(created);
	session->entry->value = session->cells;
	session->cells = NULL;
	if (aggregate->closes)
		provider->set_expiry(aggregate->groups, session->entry, session->end);
}

/* Pieces that went into others, then what has changed; what leaves comes before what takes its place. */
static void
store_touched(SessionOperator *op, Tuplestorestate *out)
{
	for (int64 i = 0; i < op->ntouched; i++)
	{
		Session *session = op->touched[i].session;

		if (!session->swallowed)
			continue;
		if (session->entry)
			leave(op, session, out);
		pfree(session);
		op->touched[i].session = NULL;
	}
	for (int64 i = 0; i < op->ntouched; i++)
	{
		if (op->touched[i].session == NULL)
			continue;
		session_store(op, op->touched[i].key, op->touched[i].session, out);
		op->aggregate.base.metrics.updated++;
	}
}

static void
emit_touched(SessionOperator *op, Tuplestorestate *out)
{
	for (int64 i = 0; i < op->ntouched; i++)
	{
		Session *session = op->touched[i].session;

		if (session)
			emit(op, session->entry->key, session->entry->value, out);
	}
}

static void
emit_all(SessionOperator *op, Tuplestorestate *out)
{
	const StateProvider *provider = op->aggregate.provider;
	StateEntry *entry;

	provider->scan_start(op->aggregate.groups);
	while ((entry = provider->scan_next(op->aggregate.groups)))
		emit(op, entry->key, entry->value, out);
}

/* Closed: remembered for as long as a row that is not late could touch it, which is its longest gap more. */
static void
session_close(SessionOperator *op, StateEntry *entry)
{
	const StateProvider *provider = op->aggregate.provider;
	int64 reach = DatumGetInt64(aggregate_value_reach(&op->aggregate, entry->value)->value);
	int64 start, end;
	bool created;
	StateEntry *closed = provider->put(op->closed, entry_key(op, entry, &start, &end), &created);

	provider->set_expiry(op->closed, closed, pg_add_s64_overflow(end, reach, &end) ? DT_NOEND : end);
	ExecClearTuple(op->aggregate.key_slot);
	provider->remove(op->aggregate.groups, entry);
}

static void
evict(SessionOperator *op, Tuplestorestate *out)
{
	AggregateOperator *aggregate = &op->aggregate;
	TimestampTz watermark = aggregate->base.batch->evict_watermark;
	StateEntry *entry;

	if (watermark == DT_NOBEGIN)
		return;
	while ((entry = aggregate->provider->next_expired(aggregate->groups, watermark)))
	{
		if (aggregate->base.batch->output_mode == OUTPUT_APPEND)
			emit(op, entry->key, entry->value, out);
		session_close(op, entry);
		aggregate->base.metrics.removed++;
	}
	while ((entry = aggregate->provider->next_expired(op->closed, watermark)))
		aggregate->provider->remove(op->closed, entry);
}

static void
session_finish(Operator *base, Tuplestorestate *out)
{
	SessionOperator *op = (SessionOperator *) base;
	MemoryContext caller = MemoryContextSwitchTo(op->aggregate.batch_context);

	store_touched(op, out);
	if (base->batch->output_mode == OUTPUT_COMPLETE)
		emit_all(op, out);
	else if (base->batch->output_mode == OUTPUT_UPDATE)
		emit_touched(op, out);
	if (op->aggregate.closes)
		evict(op, out);
	aggregate_measure(&op->aggregate);
	MemoryContextSwitchTo(caller);
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
