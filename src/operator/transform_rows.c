/*
 * transform_rows.c: the rows of the running batch, waiting for their key's turn.
 * They lie in memory, a list per key, up to maintenance_work_mem; beyond it all go through a sort by key and arrival, which has a disk.
 * Keys have their turn in the order of their first rows, in memory and on disk alike.
 */
#include "operator/transform.h"

#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/datum.h"
#include "utils/memutils.h"
#include "utils/tuplesort.h"

#define INT8_LESS_OPERATOR 412 /* < of int8; pg_operator_d.h has no name for it */
#define LOOK_EVERY 1024		   /* rows, at the memory taken */

typedef struct WaitingRow
{
	struct WaitingRow *next;
	Datum value;
	bool isnull;
} WaitingRow;

/* Rows on disk: (key's number, row's number, row). */
struct RowSpool
{
	Tuplesortstate *sort;
	TupleTableSlot *slot; /* going in; coming out: the row read ahead */
	bool ahead;
};

void
transform_rows_begin(Transform *op)
{
	MemoryContextReset(op->rows_context);
	op->first_waiting = op->last_waiting = NULL;
	op->nkeys_waiting = op->nrows_waiting = 0;
	op->spool = NULL;
}

/* ---- disk ---- */

static void
spool_put(Transform *op, int64 key, int64 row, Datum value, bool isnull)
{
	TupleTableSlot *slot = op->spool->slot;

	ExecClearTuple(slot);
	slot->tts_values[0] = Int64GetDatum(key);
	slot->tts_values[1] = Int64GetDatum(row);
	slot->tts_values[2] = value;
	slot->tts_isnull[0] = slot->tts_isnull[1] = false;
	slot->tts_isnull[2] = isnull;
	tuplesort_puttupleslot(op->spool->sort, ExecStoreVirtualTuple(slot));
}

static TupleDesc
spool_desc(Transform *op)
{
	TupleDesc desc = CreateTemplateTupleDesc(3);

	TupleDescInitEntry(desc, 1, "key", INT8OID, -1, 0);
	TupleDescInitEntry(desc, 2, "arrival", INT8OID, -1, 0);
	TupleDescCopyEntry(desc, 3, op->base.spec->input[0], 2);
	return desc;
}

/* All rows so far, and those to come, go to a sort. Its memory and files are the batch's. */
static void
spool_start(Transform *op)
{
	MemoryContext caller = MemoryContextSwitchTo(op->batch_context);
	AttrNumber columns[2] = {1, 2};
	Oid operators[2] = {INT8_LESS_OPERATOR, INT8_LESS_OPERATOR}, collations[2] = {InvalidOid, InvalidOid};
	bool nulls_first[2] = {false, false};
	TupleDesc desc = spool_desc(op);
	int64 arrival = 0;

	op->spool = palloc0(sizeof(RowSpool));
	op->spool->slot = MakeSingleTupleTableSlot(desc, &TTSOpsVirtual);
	op->spool->sort = tuplesort_begin_heap(desc, 2, columns, operators, collations, nulls_first, maintenance_work_mem,
										   NULL, TUPLESORT_NONE);
	for (KeyRecord *record = op->first_waiting; record; record = record->next)
	{
		for (WaitingRow *row = record->first; row; row = row->next)
			spool_put(op, record->number, arrival++, row->value, row->isnull);
		record->first = record->last = NULL;
	}
	MemoryContextSwitchTo(caller);
	MemoryContextReset(op->rows_context);
}

static bool
spool_next(Transform *op)
{
	RowSpool *spool = op->spool;

	spool->ahead = tuplesort_gettupleslot(spool->sort, true, false, spool->slot, NULL);
	if (spool->ahead)
		slot_getallattrs(spool->slot);
	return spool->ahead;
}

/* ---- rows in ---- */

static Datum
row_copy(Transform *op, Datum value)
{
	if (op->row_length == -1 && !VARATT_IS_EXTERNAL_EXPANDED(DatumGetPointer(value)))
		return PointerGetDatum(PG_DETOAST_DATUM_COPY(value));
	return datumCopy(value, op->row_by_value, op->row_length);
}

static void
row_keep(Transform *op, KeyRecord *record, Datum value, bool isnull)
{
	MemoryContext caller = MemoryContextSwitchTo(op->rows_context);
	WaitingRow *row = palloc(sizeof(WaitingRow));

	row->next = NULL;
	row->isnull = isnull;
	row->value = isnull ? (Datum) 0 : row_copy(op, value);
	if (record->last)
		record->last = record->last->next = row;
	else
		record->first = record->last = row;
	MemoryContextSwitchTo(caller);
	if (op->nrows_waiting % LOOK_EVERY == 0 &&
		MemoryContextMemAllocated(op->rows_context, false) > maintenance_work_mem * (Size) 1024)
		spool_start(op);
}

static void
record_queue(Transform *op, KeyRecord *record)
{
	record->number = op->nkeys_waiting++;
	record->first = record->last = NULL;
	record->next = NULL;
	if (op->last_waiting)
		op->last_waiting->next = record;
	else
		op->first_waiting = record;
	op->last_waiting = record;
}

void
transform_rows_add(Transform *op, KeyRecord *record, Datum value, bool isnull)
{
	if (record->nrows++ == 0)
		record_queue(op, record);
	op->nrows_waiting++;
	if (op->spool)
		spool_put(op, record->number, op->nrows_waiting, value, isnull);
	else
		row_keep(op, record, value, isnull);
}

/* ---- rows out: keys in the order of their first rows ---- */

void
transform_rows_end(Transform *op)
{
	MemoryContext caller;

	if (op->spool == NULL)
		return;
	caller = MemoryContextSwitchTo(op->batch_context);
	tuplesort_performsort(op->spool->sort);
	op->spool->slot = MakeSingleTupleTableSlot(op->spool->slot->tts_tupleDescriptor, &TTSOpsMinimalTuple);
	MemoryContextSwitchTo(caller);
	(void) spool_next(op);
}

static int
take_from_memory(KeyRecord *record, int n, Datum *values, bool *nulls)
{
	for (int i = 0; i < n; i++)
	{
		values[i] = record->first->value;
		nulls[i] = record->first->isnull;
		record->first = record->first->next;
	}
	return n;
}

static int
take_from_spool(Transform *op, KeyRecord *record, int limit, Datum *values, bool *nulls)
{
	TupleTableSlot *slot = op->spool->slot;
	int n = 0;

	while (n < limit && op->spool->ahead && DatumGetInt64(slot->tts_values[0]) == record->number)
	{
		nulls[n] = slot->tts_isnull[2];
		values[n] = nulls[n] ? (Datum) 0 : row_copy(op, slot->tts_values[2]);
		n++;
		(void) spool_next(op);
	}
	return n;
}

/* The next rows of a key, at most so many, in CurrentMemoryContext. */
Datum
transform_rows_take(Transform *op, KeyRecord *record, int limit)
{
	Oid type = TupleDescAttr(op->base.spec->input[0], 1)->atttypid;
	int n = Min(record->nrows, limit), lower = 1;
	Datum *values = palloc_extended(sizeof(Datum) * n, MCXT_ALLOC_HUGE);
	bool *nulls = palloc_extended(sizeof(bool) * n, MCXT_ALLOC_HUGE);

	if (op->spool)
		n = take_from_spool(op, record, n, values, nulls);
	else
		n = take_from_memory(record, n, values, nulls);
	record->nrows -= n;
	return PointerGetDatum(
		construct_md_array(values, nulls, 1, &n, &lower, type, op->row_length, op->row_by_value, op->row_align));
}

void
transform_rows_done(Transform *op)
{
	KeyRecord *next;

	for (KeyRecord *record = op->first_waiting; record; record = next)
	{
		next = record->next;
		record->first = record->last = NULL;
		if (op->nlists > 0)
			transform_record_drop_if_empty(op, record);
	}
	if (op->nlists == 0 && op->first_waiting)
		transform_records_clear(op);
	op->first_waiting = op->last_waiting = NULL;
	if (op->spool)
		tuplesort_end(op->spool->sort);
	op->spool = NULL;
	MemoryContextReset(op->rows_context);
}
