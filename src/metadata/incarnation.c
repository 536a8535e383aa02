/*
 * incarnation.c: the row of stream.incarnation. Made by CREATE EXTENSION and not dumped: a restored database has another.
 * What it guards: positions made of transaction ids, and names that other systems know our batches by.
 */
#include "metadata/incarnation.h"

#include "access/heapam.h"
#include "access/table.h"
#include "access/tableam.h"
#include "util/heap.h"
#include "utils/fmgrprotos.h"
#include "utils/rel.h"

char *
incarnation_read(void)
{
	Relation rel = heap_open("incarnation", AccessShareLock);
	TableScanDesc scan = table_beginscan_catalog(rel, 0, NULL);
	HeapTuple tuple = heap_getnext(scan, ForwardScanDirection);
	bool isnull;
	char *result;

	if (tuple == NULL)
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE), errmsg("stream.incarnation is empty")));
	result = DatumGetCString(DirectFunctionCall1(uuid_out, heap_getattr(tuple, 1, RelationGetDescr(rel), &isnull)));
	table_endscan(scan);
	table_close(rel, NoLock);
	return result;
}
