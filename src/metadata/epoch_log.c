/*
 * epoch_log.c: the log inside an epoch: positions, event time and counters after each flush, in the flush's transaction.
 * Insert-only, read only when a query is opened; emptied by the transaction that writes the epoch's offsets and commit.
 */
#include "metadata/epoch_log.h"

#include "catalog/pg_type.h"
#include "util/heap.h"
#include "util/json_build.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

enum
{
	EPOCH_QUERY, EPOCH_BATCH, EPOCH_FLUSH, EPOCH_STARTS, EPOCH_OFFSETS, EPOCH_OPENED, EPOCH_FLUSHED, EPOCH_CONF, EPOCH_NEXT, EPOCH_WATERMARKS,
	EPOCH_LATE, EPOCH_BAD, EPOCH_TOTALS, EPOCH_COLUMNS
};

#define TABLE_NAME "epoch_entry"
#define INDEX_NAME "epoch_entry_pkey"

void
epoch_entry_copy(EpochEntry *copy, const EpochEntry *entry)
{
	*copy = *entry;
	copy->starts = json_copy(entry->starts);
	copy->offsets = json_copy(entry->offsets);
	copy->conf = json_copy(entry->conf);
	commit_entry_copy(&copy->so_far, &entry->so_far);
	copy->totals = memcpy(palloc(sizeof(double) * Max(entry->ntotals, 1)), entry->totals, sizeof(double) * entry->ntotals);
}

static void
totals_read(EpochEntry *entry, ArrayType *array)
{
	Datum *values;

	deconstruct_array(array, FLOAT8OID, sizeof(float8), FLOAT8PASSBYVAL, TYPALIGN_DOUBLE, &values, NULL, &entry->ntotals);
	entry->totals = palloc(sizeof(double) * Max(entry->ntotals, 1));
	for (int i = 0; i < entry->ntotals; i++)
		entry->totals[i] = DatumGetFloat8(values[i]);
}

static ArrayType *
totals_array(const EpochEntry *entry)
{
	Datum *values = palloc(sizeof(Datum) * Max(entry->ntotals, 1));

	for (int i = 0; i < entry->ntotals; i++)
		values[i] = Float8GetDatum(entry->totals[i]);
	return construct_array(values, entry->ntotals, FLOAT8OID, sizeof(float8), FLOAT8PASSBYVAL, TYPALIGN_DOUBLE);
}

static void
epoch_entry_fill(EpochEntry *entry, Datum *v, bool *n)
{
	entry->batch_id = entry->so_far.batch_id = DatumGetInt64(v[EPOCH_BATCH]);
	entry->flush = DatumGetInt64(v[EPOCH_FLUSH]);
	entry->offsets = DatumGetJsonbPCopy(v[EPOCH_OFFSETS]);
	entry->opened_at = DatumGetTimestampTz(v[EPOCH_OPENED]);
	entry->flushed_at = DatumGetTimestampTz(v[EPOCH_FLUSHED]);
	entry->conf = DatumGetJsonbPCopy(v[EPOCH_CONF]);
	entry->so_far.next_watermark = n[EPOCH_NEXT] ? DT_NOBEGIN : DatumGetTimestampTz(v[EPOCH_NEXT]);
	entry->so_far.watermarks = DatumGetJsonbPCopy(v[EPOCH_WATERMARKS]);
	entry->so_far.rows_late = DatumGetInt64(v[EPOCH_LATE]);
	entry->so_far.rows_bad = DatumGetInt64(v[EPOCH_BAD]);
	totals_read(entry, DatumGetArrayTypeP(v[EPOCH_TOTALS]));
}

bool
epoch_log_last(int64 query_id, EpochEntry *entry)
{
	Datum keys[] = {Int64GetDatum(query_id)};
	HeapScan *scan = heap_scan_begin(TABLE_NAME, INDEX_NAME, 1, keys, true);
	Datum v[EPOCH_COLUMNS];
	bool n[EPOCH_COLUMNS];
	bool found = heap_scan_next(scan, v, n) != NULL;

	if (found)
		epoch_entry_fill(entry, v, n);
	heap_scan_end(scan);
	if (!found)
		return false;
	/* The start is kept once, with the first flush. */
	scan = heap_scan_begin(TABLE_NAME, INDEX_NAME, 1, keys, false);
	if (heap_scan_next(scan, v, n) != NULL && !n[EPOCH_STARTS])
		entry->starts = DatumGetJsonbPCopy(v[EPOCH_STARTS]);
	heap_scan_end(scan);
	return true;
}

void
epoch_log_add(int64 query_id, const EpochEntry *entry)
{
	Datum v[EPOCH_COLUMNS];
	bool n[EPOCH_COLUMNS] = {false};

	v[EPOCH_QUERY] = Int64GetDatum(query_id);
	v[EPOCH_BATCH] = Int64GetDatum(entry->batch_id);
	v[EPOCH_FLUSH] = Int64GetDatum(entry->flush);
	n[EPOCH_STARTS] = entry->flush > 0;
	v[EPOCH_STARTS] = JsonbPGetDatum(entry->starts);
	v[EPOCH_OFFSETS] = JsonbPGetDatum(entry->offsets);
	v[EPOCH_OPENED] = TimestampTzGetDatum(entry->opened_at);
	v[EPOCH_FLUSHED] = TimestampTzGetDatum(entry->flushed_at);
	v[EPOCH_CONF] = JsonbPGetDatum(entry->conf);
	n[EPOCH_NEXT] = TIMESTAMP_IS_NOBEGIN(entry->so_far.next_watermark);
	v[EPOCH_NEXT] = TimestampTzGetDatum(entry->so_far.next_watermark);
	v[EPOCH_WATERMARKS] = JsonbPGetDatum(entry->so_far.watermarks);
	v[EPOCH_LATE] = Int64GetDatum(entry->so_far.rows_late);
	v[EPOCH_BAD] = Int64GetDatum(entry->so_far.rows_bad);
	v[EPOCH_TOTALS] = PointerGetDatum(totals_array(entry));
	heap_insert_row(TABLE_NAME, v, n);
}

void
epoch_log_delete(int64 query_id)
{
	Datum keys[] = {Int64GetDatum(query_id)};
	HeapScan *scan = heap_scan_begin(TABLE_NAME, INDEX_NAME, 1, keys, false);
	HeapTuple tuple;

	while ((tuple = heap_scan_next(scan, NULL, NULL)) != NULL)
		heap_delete_row(TABLE_NAME, tuple);
	heap_scan_end(scan);
}
