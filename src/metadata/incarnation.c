/*
 * incarnation.c: the row of stream.incarnation. Made by CREATE EXTENSION and not dumped: a restored database has another.
 * What it guards: positions made of transaction ids, and names that other systems know our batches by.
 */
#include "metadata/incarnation.h"

#include "access/heapam.h"
#include "access/table.h"
#include "access/tableam.h"
#include "miscadmin.h"
#include "util/heap.h"
#include "utils/fmgroids.h"
#include "utils/fmgrprotos.h"
#include "utils/rel.h"

enum
{
	INCARNATION_ID, INCARNATION_DATABASE, INCARNATION_OUTSIDE, INCARNATION_COLUMNS
};

static HeapTuple
incarnation_get(Relation rel, Datum *values, bool *nulls)
{
	TableScanDesc scan = table_beginscan_catalog(rel, 0, NULL);
	HeapTuple tuple = heap_getnext(scan, ForwardScanDirection);

	if (tuple == NULL)
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE), errmsg("stream.incarnation is empty")));
	tuple = heap_copytuple(tuple);
	heap_deform_tuple(tuple, RelationGetDescr(rel), values, nulls);
	table_endscan(scan);
	return tuple;
}

static char *
incarnation_uuid(int column)
{
	Relation rel = heap_open("incarnation", AccessShareLock);
	Datum values[INCARNATION_COLUMNS];
	bool nulls[INCARNATION_COLUMNS];

	incarnation_get(rel, values, nulls);
	table_close(rel, NoLock);
	return DatumGetCString(DirectFunctionCall1(uuid_out, values[column]));
}

char *
incarnation_read(void)
{
	return incarnation_uuid(INCARNATION_ID);
}

char *
incarnation_outside(void)
{
	return incarnation_uuid(INCARNATION_OUTSIDE);
}

bool
incarnation_settle(void)
{
	Relation rel = heap_open("incarnation", ShareUpdateExclusiveLock);
	Datum values[INCARNATION_COLUMNS];
	bool nulls[INCARNATION_COLUMNS];
	HeapTuple tuple = incarnation_get(rel, values, nulls);
	bool is_copy = DatumGetObjectId(values[INCARNATION_DATABASE]) != MyDatabaseId;

	if (is_copy)
	{
		values[INCARNATION_DATABASE] = ObjectIdGetDatum(MyDatabaseId);
		values[INCARNATION_OUTSIDE] = OidFunctionCall0(F_GEN_RANDOM_UUID);
		heap_update_row("incarnation", tuple, values, nulls);
	}
	table_close(rel, is_copy ? NoLock : ShareUpdateExclusiveLock);
	return is_copy;
}
