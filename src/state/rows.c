/*
 * rows.c: state in place: entry ↔ row of stream.state_row_<query id>, by C table access.
 * Rows are found through a btree on the bucket; expiry order is a second, partial btree. The indexes are kept here, by hand.
 * Danger: resources belong to the whole transaction, not to the subtransaction (a handler's EXCEPTION block) in which a row happens to be read.
 */
#include "state/rows.h"

#include "access/genam.h"
#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/tableam.h"
#include "catalog/index.h"
#include "nodes/execnodes.h"
#include "util/compat.h"
#include "util/heap.h"
#include "utils/fmgroids.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/resowner.h"

enum
{
	COLUMN_BUCKET = 1,
	COLUMN_BATCH,
	COLUMN_EXPIRES,
	COLUMN_STATE,
	COLUMN_KEY,
	COLUMN_VALUE,
	COLUMNS = COLUMN_VALUE
};

/* Where one way of reading is. */
typedef struct RowScan
{
	IndexScanDesc index;
	TableScanDesc table;
	TupleTableSlot *slot;
	MemoryContext detoasted; /* parts of the row that lay out of line */
} RowScan;

struct StateRows
{
	MemoryContext context;
	Relation table, bucket_index, expiry_index;
	IndexInfo *bucket_info, *expiry_info;
	Snapshot snapshot;
	int number;
	RowScan seek, expiry, scan, fetch;
};

/* ---- inside: memory that stays, resources of the whole transaction ---- */

typedef struct Inside
{
	MemoryContext context;
	ResourceOwner owner;
} Inside;

static inline Inside
inside_enter(StateRows *rows)
{
	Inside caller = {MemoryContextSwitchTo(rows->context), CurrentResourceOwner};

	CurrentResourceOwner = TopTransactionResourceOwner;
	return caller;
}

static inline void
inside_leave(Inside caller)
{
	MemoryContextSwitchTo(caller.context);
	CurrentResourceOwner = caller.owner;
}

static void
scan_init(StateRows *rows, RowScan *scan)
{
	scan->slot = table_slot_create(rows->table, NULL);
	scan->detoasted = AllocSetContextCreate(rows->context, "stream state row", ALLOCSET_SMALL_SIZES);
}

static void
scan_end(RowScan *scan)
{
	ExecClearTuple(scan->slot);
	if (scan->index)
		index_endscan(scan->index);
	if (scan->table)
		table_endscan(scan->table);
	scan->index = NULL;
	scan->table = NULL;
}

StateRows *
rows_open(int64 query_id, int number, Snapshot snapshot)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "stream state rows", ALLOCSET_DEFAULT_SIZES);
	StateRows *rows = MemoryContextAllocZero(context, sizeof(StateRows));
	Inside caller;
	char *name;

	rows->context = context;
	rows->snapshot = snapshot;
	rows->number = number;
	caller = inside_enter(rows); /* names, too, go with the context: this happens in every batch */
	name = rows_relation_name(query_id);
	rows->table = heap_open(name, RowExclusiveLock);
	rows->bucket_index = index_open(heap_relation_oid(psprintf("%s_bucket", name)), RowExclusiveLock);
	rows->expiry_index = index_open(heap_relation_oid(psprintf("%s_expires", name)), RowExclusiveLock);
	rows->bucket_info = BuildIndexInfo(rows->bucket_index);
	rows->expiry_info = BuildIndexInfo(rows->expiry_index);
	scan_init(rows, &rows->seek);
	scan_init(rows, &rows->expiry);
	scan_init(rows, &rows->scan);
	scan_init(rows, &rows->fetch);
	inside_leave(caller);
	return rows;
}

void
rows_set_number(StateRows *rows, int number)
{
	rows->number = number;
}

void
rows_close(StateRows *rows)
{
	RowScan *scans[] = {&rows->seek, &rows->expiry, &rows->scan, &rows->fetch};
	Inside caller = inside_enter(rows);

	for (int i = 0; i < lengthof(scans); i++)
	{
		scan_end(scans[i]);
		ExecDropSingleTupleTableSlot(scans[i]->slot);
	}
	index_close(rows->bucket_index, NoLock);
	index_close(rows->expiry_index, NoLock);
	table_close(rows->table, NoLock);
	inside_leave(caller);
	MemoryContextDelete(rows->context);
}

/* ---- reading ---- */

static inline int64
bucket(StateRows *rows, uint64 hash)
{
	return (int64) ((uint64) rows->number << BUCKET_BITS | hash);
}

static struct varlena *
row_bytes(RowScan *scan, int column)
{
	struct varlena *bytes = (struct varlena *) DatumGetPointer(scan->slot->tts_values[column - 1]);
	MemoryContext caller;

	if (likely(!VARATT_IS_EXTERNAL(bytes) && !VARATT_IS_COMPRESSED(bytes))) /* what lies out of line is "short", too */
		return bytes;
	caller = MemoryContextSwitchTo(scan->detoasted);
	bytes = PG_DETOAST_DATUM_PACKED(PointerGetDatum(bytes));
	MemoryContextSwitchTo(caller);
	return bytes;
}

static void
row_read(RowScan *scan, StateRow *row)
{
	TupleTableSlot *slot = scan->slot;
	struct varlena *key, *value;

	if (!scan->detoasted->isReset)
		MemoryContextReset(scan->detoasted);
	slot_getallattrs(slot);
	key = row_bytes(scan, COLUMN_KEY);
	value = row_bytes(scan, COLUMN_VALUE);
	row->tid = slot->tts_tid;
	row->hash = (uint64) DatumGetInt64(slot->tts_values[COLUMN_BUCKET - 1]) & BUCKET_MASK;
	row->batch_id = DatumGetInt64(slot->tts_values[COLUMN_BATCH - 1]);
	row->expires = slot->tts_isnull[COLUMN_EXPIRES - 1] ? DT_NOEND : DatumGetTimestampTz(slot->tts_values[COLUMN_EXPIRES - 1]);
	row->key = VARDATA_ANY(key);
	row->key_length = VARSIZE_ANY_EXHDR(key);
	row->value = VARDATA_ANY(value);
	row->value_length = VARSIZE_ANY_EXHDR(value);
}

static bool
index_next(StateRows *rows, RowScan *scan, StateRow *row)
{
	Inside caller;
	bool found;

	if (scan->index == NULL)
		return false;
	caller = inside_enter(rows);
	found = index_getnext_slot(scan->index, ForwardScanDirection, scan->slot);
	if (found)
		row_read(scan, row);
	else
		ExecClearTuple(scan->slot);
	inside_leave(caller);
	return found;
}

static void
index_seek(StateRows *rows, RowScan *scan, Relation index, ScanKey keys)
{
	Inside caller = inside_enter(rows);

	ExecClearTuple(scan->slot);
	if (scan->index == NULL)
		scan->index = index_beginscan(rows->table, index, rows->snapshot, 2, 0);
	index_rescan(scan->index, keys, 2, NULL, 0);
	inside_leave(caller);
}

void
rows_seek(StateRows *rows, uint64 low_hash, uint64 high_hash)
{
	ScanKeyData keys[2];

	if (rows->number < 0)
		return;
	ScanKeyInit(&keys[0], 1, BTGreaterEqualStrategyNumber, F_INT8GE, Int64GetDatum(bucket(rows, low_hash)));
	ScanKeyInit(&keys[1], 1, BTLessEqualStrategyNumber, F_INT8LE, Int64GetDatum(bucket(rows, high_hash)));
	index_seek(rows, &rows->seek, rows->bucket_index, keys);
}

bool
rows_seek_next(StateRows *rows, StateRow *row)
{
	return index_next(rows, &rows->seek, row);
}

void
rows_expiry_seek(StateRows *rows, TimestampTz from)
{
	ScanKeyData keys[2];

	if (rows->number < 0)
		return;
	ScanKeyInit(&keys[0], 1, BTEqualStrategyNumber, F_INT2EQ, Int16GetDatum(rows->number));
	ScanKeyInit(&keys[1], 2, BTGreaterEqualStrategyNumber, F_TIMESTAMPTZ_GE, TimestampTzGetDatum(from));
	index_seek(rows, &rows->expiry, rows->expiry_index, keys);
}

bool
rows_expiry_next(StateRows *rows, StateRow *row)
{
	return index_next(rows, &rows->expiry, row);
}

void
rows_scan(StateRows *rows)
{
	Inside caller = inside_enter(rows);

	scan_end(&rows->scan);
	rows->scan.table = table_beginscan(rows->table, rows->snapshot, 0, NULL);
	inside_leave(caller);
}

bool
rows_scan_next(StateRows *rows, StateRow *row)
{
	RowScan *scan = &rows->scan;
	Inside caller = inside_enter(rows);
	bool found = false;

	while (!found && scan->table)
	{
		CHECK_FOR_INTERRUPTS();
		if (!table_scan_getnextslot(scan->table, ForwardScanDirection, scan->slot))
			scan_end(scan);
		else
		{
			slot_getsomeattrs(scan->slot, COLUMN_STATE);
			found = DatumGetInt16(scan->slot->tts_values[COLUMN_STATE - 1]) == rows->number;
		}
	}
	if (found)
		row_read(scan, row);
	inside_leave(caller);
	return found;
}

bool
rows_fetch(StateRows *rows, ItemPointer tid, StateRow *row)
{
	Inside caller = inside_enter(rows);
	bool found = table_tuple_fetch_row_version(rows->table, tid, rows->snapshot, rows->fetch.slot);

	if (found)
		row_read(&rows->fetch, row);
	inside_leave(caller);
	return found;
}

/* ---- writing ---- */

static HeapTuple
row_form(StateRows *rows, const StateRow *row)
{
	Datum values[COLUMNS];
	bool nulls[COLUMNS] = {false};
	struct varlena *key = palloc(VARHDRSZ + row->key_length);
	struct varlena *value = palloc(VARHDRSZ + row->value_length);
	HeapTuple tuple;

	SET_VARSIZE(key, VARHDRSZ + row->key_length);
	memcpy(VARDATA(key), row->key, row->key_length);
	SET_VARSIZE(value, VARHDRSZ + row->value_length);
	memcpy(VARDATA(value), row->value, row->value_length);
	values[COLUMN_BUCKET - 1] = Int64GetDatum(bucket(rows, row->hash));
	values[COLUMN_BATCH - 1] = Int64GetDatum(row->batch_id);
	values[COLUMN_EXPIRES - 1] = TimestampTzGetDatum(row->expires);
	nulls[COLUMN_EXPIRES - 1] = row->expires == DT_NOEND;
	values[COLUMN_STATE - 1] = Int16GetDatum(rows->number);
	values[COLUMN_KEY - 1] = PointerGetDatum(key);
	values[COLUMN_VALUE - 1] = PointerGetDatum(value);
	tuple = heap_form_tuple(RelationGetDescr(rows->table), values, nulls);
	pfree(key);
	pfree(value);
	return tuple;
}

static void
row_index(StateRows *rows, StateRow *row, bool update, bool same_expiry)
{
	Datum values[2] = {Int64GetDatum(bucket(rows, row->hash))};
	bool nulls[2] = {false, false};
	ItemPointer tid = &row->tid;

	index_insert(rows->bucket_index, values, nulls, tid, rows->table, UNIQUE_CHECK_NO, update, rows->bucket_info);
	if (row->expires == DT_NOEND)
		return;
	values[0] = Int16GetDatum(rows->number);
	values[1] = TimestampTzGetDatum(row->expires);
	index_insert(rows->expiry_index, values, nulls, tid, rows->table, UNIQUE_CHECK_NO, update && same_expiry, rows->expiry_info);
}

void
rows_insert(StateRows *rows, StateRow *row)
{
	Inside caller = inside_enter(rows);
	HeapTuple tuple = row_form(rows, row);

	simple_heap_insert(rows->table, tuple);
	row->tid = tuple->t_self;
	row_index(rows, row, false, false);
	heap_freetuple(tuple);
	inside_leave(caller);
}

void
rows_update(StateRows *rows, StateRow *row, bool same_expiry)
{
	Inside caller = inside_enter(rows);
	HeapTuple tuple = row_form(rows, row);

	compat_heap_update(rows->table, &row->tid, tuple);
	row->tid = tuple->t_self;
	if (!HeapTupleIsHeapOnly(tuple))
		row_index(rows, row, true, same_expiry);
	heap_freetuple(tuple);
	inside_leave(caller);
}

void
rows_delete(StateRows *rows, ItemPointer tid)
{
	Inside caller = inside_enter(rows);

	simple_heap_delete(rows->table, tid);
	inside_leave(caller);
}
