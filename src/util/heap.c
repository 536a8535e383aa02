/*
 * heap.c: rows of the extension's own tables by C table access.
 * Works under the query owner's role without granting it anything; the tables have plain btree indexes, no triggers, no policies.
 */
#include "util/heap.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/indexing.h"
#include "catalog/namespace.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "util/compat.h"
#include "util/extension.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

struct HeapScan
{
	Relation table, index;
	IndexScanDesc scan;
	TupleTableSlot *slot;
	Snapshot snapshot;
	bool backward;
};

Oid
heap_relation_oid(const char *name)
{
	Oid schema = get_namespace_oid("stream", true);
	Oid relation = OidIsValid(schema) ? get_relname_relid(name, schema) : InvalidOid;

	extension_check_version();
	if (!OidIsValid(relation))
		ereport(ERROR, (errcode(ERRCODE_UNDEFINED_TABLE), errmsg("relation stream.%s does not exist", name),
						errhint("Is the extension stream_ext installed in this database, and up to date?")));
	return relation;
}

Relation
heap_open(const char *table, LOCKMODE lockmode)
{
	return table_open(heap_relation_oid(table), lockmode);
}

/*
 * No statement tells the executor of these writes, so a read-only transaction has to be refused here. A table whose values may lie out of line is written under a
 * snapshot; transactions of workers and supervisors have none until somebody runs something.
 */
static Relation
write_begin(const char *table, bool *pushed)
{
	PreventCommandIfReadOnly("changes of streaming queries");
	*pushed = !HaveRegisteredOrActiveSnapshot();
	if (*pushed)
		PushActiveSnapshot(GetLatestSnapshot());
	return heap_open(table, RowExclusiveLock);
}

static void
write_end(Relation rel, bool pushed)
{
	table_close(rel, NoLock);
	if (pushed)
		PopActiveSnapshot();
	CommandCounterIncrement();
}

void
heap_insert_row(const char *table, Datum *values, bool *nulls)
{
	bool pushed;
	Relation rel = write_begin(table, &pushed);
	HeapTuple tuple = heap_form_tuple(RelationGetDescr(rel), values, nulls);

	CatalogTupleInsert(rel, tuple);
	heap_freetuple(tuple);
	write_end(rel, pushed);
}

static RegProcedure
equality_procedure(Oid type)
{
	switch (type)
	{
		case INT8OID:
			return F_INT8EQ;
		case INT4OID:
			return F_INT4EQ;
		case TEXTOID:
			return F_TEXTEQ;
		default:
			ereport(ERROR, (errcode(ERRCODE_INTERNAL_ERROR), errmsg("no equality for index column of type %u", type)));
	}
	return InvalidOid;
}

static HeapScan *
scan_begin(const char *table, const char *index, int nkeys, Datum *keys, const int64 *low, bool backward)
{
	HeapScan *scan = palloc0(sizeof(HeapScan));
	ScanKeyData skeys[INDEX_MAX_KEYS];
	int n = nkeys;

	scan->table = heap_open(table, AccessShareLock);
	scan->index = index_open(heap_relation_oid(index), AccessShareLock);
	scan->slot = table_slot_create(scan->table, NULL);
	scan->snapshot = RegisterSnapshot(GetLatestSnapshot());
	scan->backward = backward;
	for (int i = 0; i < nkeys; i++)
	{
		Oid type = TupleDescAttr(RelationGetDescr(scan->index), i)->atttypid;

		ScanKeyEntryInitialize(&skeys[i], 0, i + 1, BTEqualStrategyNumber, InvalidOid, scan->index->rd_indcollation[i],
							   equality_procedure(type), keys[i]);
	}
	if (low)
		ScanKeyEntryInitialize(&skeys[n++], 0, nkeys + 1, BTGreaterEqualStrategyNumber, InvalidOid, InvalidOid, F_INT8GE, Int64GetDatum(*low));
	scan->scan = index_beginscan(scan->table, scan->index, scan->snapshot, n, 0);
	index_rescan(scan->scan, skeys, n, NULL, 0);
	return scan;
}

HeapScan *
heap_scan_begin(const char *table, const char *index, int nkeys, Datum *keys, bool backward)
{
	return scan_begin(table, index, nkeys, keys, NULL, backward);
}

HeapScan *
heap_scan_begin_at(const char *table, const char *index, int nkeys, Datum *keys, int64 low)
{
	return scan_begin(table, index, nkeys, keys, &low, false);
}

HeapTuple
heap_scan_next(HeapScan *scan, Datum *values, bool *nulls)
{
	TupleDesc desc = RelationGetDescr(scan->table);
	MemoryContext caller = MemoryContextSwitchTo(GetMemoryChunkContext(scan)); /* a B-tree allocates in the midst of a scan, for the rest of it */
	bool found = index_getnext_slot(scan->scan, scan->backward ? BackwardScanDirection : ForwardScanDirection, scan->slot);
	bool should_free;
	HeapTuple tuple;

	MemoryContextSwitchTo(caller);
	if (!found)
		return NULL;
	tuple = ExecFetchSlotHeapTuple(scan->slot, false, &should_free);
	if (values)
		heap_deform_tuple(tuple, desc, values, nulls);
	return tuple;
}

void
heap_scan_end(HeapScan *scan)
{
	index_endscan(scan->scan);
	UnregisterSnapshot(scan->snapshot);
	ExecDropSingleTupleTableSlot(scan->slot);
	index_close(scan->index, NoLock);
	table_close(scan->table, NoLock);
	pfree(scan);
}

void
heap_delete_row(const char *table, HeapTuple tuple)
{
	bool pushed;
	Relation rel = write_begin(table, &pushed);

	CatalogTupleDelete(rel, &tuple->t_self);
	write_end(rel, pushed);
}

void
heap_update_row(const char *table, HeapTuple tuple, Datum *values, bool *nulls)
{
	bool pushed;
	Relation rel = write_begin(table, &pushed);
	HeapTuple updated = heap_form_tuple(RelationGetDescr(rel), values, nulls);

	updated->t_self = tuple->t_self;
	CatalogTupleUpdate(rel, &updated->t_self, updated);
	heap_freetuple(updated);
	write_end(rel, pushed);
}
