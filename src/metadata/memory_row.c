/*
 * memory_row.c: rows of memory sinks. They belong to a batch like its log entries do: same transaction, and gone when the batch is taken back.
 */
#include "metadata/memory_row.h"

#include "util/heap.h"

enum
{
	MEMORY_QUERY, MEMORY_BATCH, MEMORY_NUMBER, MEMORY_ROW, MEMORY_COLUMNS
};

#define TABLE_NAME "memory_row"
#define INDEX_NAME "memory_row_pkey"

void
memory_row_add(int64 query_id, int64 batch_id, int64 number, Jsonb *row)
{
	Datum v[MEMORY_COLUMNS] = {Int64GetDatum(query_id), Int64GetDatum(batch_id), Int64GetDatum(number), JsonbPGetDatum(row)};
	bool n[MEMORY_COLUMNS] = {false};

	heap_insert_row(TABLE_NAME, v, n);
}

void
memory_rows_delete(int64 query_id, int64 from_batch)
{
	Datum keys[] = {Int64GetDatum(query_id)};
	HeapScan *scan = heap_scan_begin(TABLE_NAME, INDEX_NAME, 1, keys, true);
	Datum v[MEMORY_COLUMNS];
	bool n[MEMORY_COLUMNS];
	HeapTuple tuple;

	while ((tuple = heap_scan_next(scan, v, n)) != NULL && DatumGetInt64(v[MEMORY_BATCH]) >= from_batch)
		heap_delete_row(TABLE_NAME, tuple);
	heap_scan_end(scan);
}

void
memory_rows_read(int64 query_id, Tuplestorestate *store, TupleDesc desc)
{
	Datum keys[] = {Int64GetDatum(query_id)};
	HeapScan *scan = heap_scan_begin(TABLE_NAME, INDEX_NAME, 1, keys, false);
	Datum v[MEMORY_COLUMNS];
	bool n[MEMORY_COLUMNS];

	while (heap_scan_next(scan, v, n) != NULL)
		tuplestore_putvalues(store, desc, &v[MEMORY_ROW], &n[MEMORY_ROW]);
	heap_scan_end(scan);
}
