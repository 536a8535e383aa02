/*
 * operator.c: what all operators share: the fate of late rows.
 * They are counted always, and kept in the batch's own transaction when the query asks for it.
 */
#include "operator/operator.h"

#include "access/htup_details.h"
#include "executor/executor.h"
#include "funcapi.h"
#include "metadata/dead_letter.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

/* The row as the operator got it, a JSON object. */
static text *
row_as_json(TupleTableSlot *slot)
{
	BlessTupleDesc(slot->tts_tupleDescriptor);
	return DatumGetTextPP(DirectFunctionCall1(row_to_json, ExecFetchSlotHeapTupleDatum(slot)));
}

static char *
late_reason(const BatchInfo *batch)
{
	if (batch->late_watermark == DT_NOBEGIN)
		return pstrdup("the row has no event time");
	return psprintf("the row has no event time, or one at or before the watermark %s",
					timestamptz_to_str(batch->late_watermark));
}

static void
keep_late_row(Operator *op, TupleTableSlot *slot)
{
	MemoryContext context, caller;
	text *row;

	if (!op->batch->late_to_dead_letter)
		return;
	context = AllocSetContextCreate(CurrentMemoryContext, "stream late row", ALLOCSET_SMALL_SIZES);
	caller = MemoryContextSwitchTo(context);
	row = row_as_json(slot);
	dead_letter_add(op->batch, NULL, "late", NULL, VARDATA_ANY(row), VARSIZE_ANY_EXHDR(row), late_reason(op->batch));
	MemoryContextSwitchTo(caller);
	MemoryContextDelete(context);
}

void
operator_late_row(Operator *op, TupleTableSlot *slot)
{
	op->metrics.dropped++;
	keep_late_row(op, slot);
}

void
operator_windowless_row(Operator *op, TupleTableSlot *slot)
{
	op->metrics.custom++;
	keep_late_row(op, slot);
}

/* ---- callbacks for operators that keep nothing but stores ---- */

void
operator_begin_stores(Operator *op, int64 batch_id)
{
	ListCell *lc;

	foreach (lc, op->stores)
	{
		StateStore *store = lfirst(lc);

		store->provider->begin(store, batch_id);
	}
}

void
operator_flush(Operator *op)
{
	ListCell *lc;

	op->metrics.rows_total = op->metrics.bytes = 0;
	foreach (lc, op->stores)
	{
		StateStore *store = lfirst(lc);
		StateMetrics metrics;

		store->provider->flush(store, op->batch->batch_id);
		metrics = store->provider->metrics(store);
		op->metrics.rows_total += metrics.rows;
		op->metrics.bytes += metrics.bytes;
	}
}

void
operator_committed(Operator *op)
{
	ListCell *lc;

	foreach (lc, op->stores)
	{
		StateStore *store = lfirst(lc);

		store->provider->committed(store);
	}
}

void
operator_forget(Operator *op, int64 last_batch)
{
	ListCell *lc;

	foreach (lc, op->stores)
	{
		StateStore *store = lfirst(lc);

		store->provider->forget(store, last_batch);
	}
}

void
operator_close_stores(Operator *op)
{
	ListCell *lc;

	foreach (lc, op->stores)
	{
		StateStore *store = lfirst(lc);

		store->provider->close(store);
	}
	op->stores = NIL;
}

bool
operator_wants_batch(Operator *op, TimestampTz evicted_at, TimestampTz next_watermark)
{
	return op->spec->has_watermark && next_watermark > evicted_at;
}

/* ---- the state reader ---- */

void
operator_show_key(Operator *op, StateStore *store, StateEntry *entry, OperatorShow tell, void *arg)
{
	TupleTableSlot *row = MakeSingleTupleTableSlot(store->schema.keydesc, &TTSOpsMinimalTuple);

	ExecStoreMinimalTuple(entry->key, row, false);
	slot_getallattrs(row);
	tell(arg, row, store->schema.keydesc->natts, false, entry->expires);
	ExecDropSingleTupleTableSlot(row);
}
