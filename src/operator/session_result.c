/*
 * session_result.c: the end of a batch of the session operator: what rows have done to the bounds in the index goes to the store, closed sessions are let
 * go, and results emitted as the output mode says. What leaves comes before what takes its place.
 */
#include "operator/session.h"

#include "common/int.h"
#include "miscadmin.h"
#include "util/window_range.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

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
	(void) session_entry_key(op, session->entry, &start, &end);
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
	StateEntry *closed = provider->put(op->closed, session_entry_key(op, entry, &start, &end), &created);

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

void
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
