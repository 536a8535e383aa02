/*
 * cursor.c: index scans over the state tables, for the changelog, snapshots, pre-images and sizes.
 * A cursor reads as of one snapshot; what must be read together is read under one StateId that carries it.
 */
#include "state/cursor.h"

#include "access/heapam.h"
#include "access/table.h"
#include "access/tableam.h"
#include "miscadmin.h"
#include "util/compat.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "util/heap.h"

static RegProcedure
cursor_procedure(int column, StrategyNumber strategy)
{
	static const RegProcedure int8[] = {F_INT8LT, F_INT8LE, F_INT8EQ, F_INT8GE, F_INT8GT};
	static const RegProcedure int4[] = {F_INT4LT, F_INT4LE, F_INT4EQ, F_INT4GE, F_INT4GT};
	static const RegProcedure text[] = {F_TEXT_LT, F_TEXT_LE, F_TEXTEQ, F_TEXT_GE, F_TEXT_GT};

	switch (column)
	{
		case COLUMN_NAME:
			return text[strategy - 1];
		case COLUMN_OPERATOR:
		case COLUMN_CHUNK:
			return int4[strategy - 1];
		default:
			return int8[strategy - 1];
	}
}

ChunkCursor *
cursor_begin(const char *table, const CursorKey *keys, int nkeys, ScanDirection direction, LOCKMODE lockmode, Snapshot snapshot)
{
	ChunkCursor *cursor = palloc0(sizeof(ChunkCursor));
	ScanKeyData skeys[INDEX_MAX_KEYS];

	cursor->table = heap_open(table, lockmode);
	cursor->index = index_open(heap_relation_oid(psprintf("%s_pkey", table)), AccessShareLock);
	cursor->slot = table_slot_create(cursor->table, NULL);
	cursor->snapshot = RegisterSnapshot(snapshot ? snapshot : GetLatestSnapshot());
	cursor->direction = direction;
	for (int i = 0; i < nkeys; i++)
		ScanKeyEntryInitialize(&skeys[i], 0, keys[i].column, keys[i].strategy, InvalidOid,
							   cursor->index->rd_indcollation[keys[i].column - 1],
							   cursor_procedure(keys[i].column, keys[i].strategy), keys[i].value);
	cursor->scan = index_beginscan(cursor->table, cursor->index, cursor->snapshot, nkeys, 0);
	index_rescan(cursor->scan, skeys, nkeys, NULL, 0);
	return cursor;
}

bool
cursor_next(ChunkCursor *cursor)
{
	MemoryContext caller = MemoryContextSwitchTo(GetMemoryChunkContext(cursor)); /* a B-tree allocates in the midst of a scan, for the rest of it */
	bool found;

	CHECK_FOR_INTERRUPTS();
	found = index_getnext_slot(cursor->scan, cursor->direction, cursor->slot);
	MemoryContextSwitchTo(caller);
	return found;
}

Datum
cursor_column(ChunkCursor *cursor, int column)
{
	bool isnull;

	return slot_getattr(cursor->slot, column, &isnull);
}

void
cursor_end(ChunkCursor *cursor)
{
	index_endscan(cursor->scan);
	UnregisterSnapshot(cursor->snapshot);
	ExecDropSingleTupleTableSlot(cursor->slot);
	index_close(cursor->index, NoLock);
	table_close(cursor->table, NoLock);
	pfree(cursor);
}

ChunkCursor *
cursor_over_batches(const char *table, const StateId *id, int64 from_batch, int64 to_batch, ScanDirection direction,
					LOCKMODE lockmode)
{
	CursorKey keys[] = {{COLUMN_QUERY, BTEqualStrategyNumber, Int64GetDatum(id->query_id)},
						{COLUMN_OPERATOR, BTEqualStrategyNumber, Int32GetDatum(id->operator_id)},
						{COLUMN_NAME, BTEqualStrategyNumber, CStringGetTextDatum(id->state_name)},
						{COLUMN_BATCH, BTGreaterEqualStrategyNumber, Int64GetDatum(from_batch)},
						{COLUMN_BATCH, BTLessEqualStrategyNumber, Int64GetDatum(to_batch)}};

	return cursor_begin(table, keys, lengthof(keys), direction, lockmode, id->snapshot);
}
