/*
 * log.c: the offset log, the commit log and the progress rows.
 * An offset entry is durable before its batch has effects; a commit entry shares the batch's transaction. Insert-only: purged in ranges.
 */
#include "metadata/log.h"

#include "access/htup_details.h"
#include "metadata/change_slot.h"
#include "metadata/dead_letter.h"
#include "metadata/epoch_log.h"
#include "metadata/memory_row.h"
#include "metadata/replay.h"
#include "util/clock.h"
#include "util/heap.h"
#include "util/json_build.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/timestamp.h"

enum
{
	OFFSET_QUERY, OFFSET_BATCH, OFFSET_STARTS, OFFSET_OFFSETS, OFFSET_WATERMARK, OFFSET_LATE, OFFSET_TIME, OFFSET_CONF, OFFSET_LOGGED, OFFSET_COLUMNS
};
enum
{
	COMMIT_QUERY, COMMIT_BATCH, COMMIT_NEXT, COMMIT_WATERMARKS, COMMIT_LATE, COMMIT_BAD, COMMIT_AT, COMMIT_IN, COMMIT_OUT, COMMIT_BUSY, COMMIT_COLUMNS
};

static Datum
watermark_datum(TimestampTz watermark, bool *isnull)
{
	*isnull = TIMESTAMP_IS_NOBEGIN(watermark);
	return TimestampTzGetDatum(watermark);
}

static TimestampTz
watermark_value(Datum value, bool isnull)
{
	return isnull ? DT_NOBEGIN : DatumGetTimestampTz(value);
}

void
offset_entry_copy(OffsetEntry *copy, const OffsetEntry *entry)
{
	*copy = *entry;
	copy->starts = json_copy(entry->starts);
	copy->offsets = json_copy(entry->offsets);
	copy->conf = json_copy(entry->conf);
}

void
commit_entry_copy(CommitEntry *copy, const CommitEntry *entry)
{
	*copy = *entry;
	copy->watermarks = json_copy(entry->watermarks);
}

static void
offset_entry_fill(OffsetEntry *entry, Datum *v, bool *n)
{
	entry->batch_id = DatumGetInt64(v[OFFSET_BATCH]);
	entry->starts = DatumGetJsonbPCopy(v[OFFSET_STARTS]);
	entry->offsets = DatumGetJsonbPCopy(v[OFFSET_OFFSETS]);
	entry->watermark = watermark_value(v[OFFSET_WATERMARK], n[OFFSET_WATERMARK]);
	entry->late_watermark = watermark_value(v[OFFSET_LATE], n[OFFSET_LATE]);
	entry->batch_time = DatumGetTimestampTz(v[OFFSET_TIME]);
	entry->conf = DatumGetJsonbPCopy(v[OFFSET_CONF]);
}

static bool
offset_log_find(int nkeys, Datum *keys, OffsetEntry *entry)
{
	HeapScan *scan = heap_scan_begin("offset_entry", "offset_entry_pkey", nkeys, keys, true);
	Datum v[OFFSET_COLUMNS];
	bool n[OFFSET_COLUMNS];
	bool found = heap_scan_next(scan, v, n) != NULL;

	if (found)
		offset_entry_fill(entry, v, n);
	heap_scan_end(scan);
	return found;
}

bool
offset_log_last(int64 query_id, OffsetEntry *entry)
{
	Datum keys[] = {Int64GetDatum(query_id)};

	return offset_log_find(1, keys, entry);
}

bool
offset_log_get(int64 query_id, int64 batch_id, OffsetEntry *entry)
{
	Datum keys[] = {Int64GetDatum(query_id), Int64GetDatum(batch_id)};

	return offset_log_find(2, keys, entry);
}

bool
commit_log_last(int64 query_id, CommitEntry *entry)
{
	Datum keys[] = {Int64GetDatum(query_id)};
	HeapScan *scan = heap_scan_begin("commit_entry", "commit_entry_pkey", 1, keys, true);
	Datum v[COMMIT_COLUMNS];
	bool n[COMMIT_COLUMNS];
	bool found = heap_scan_next(scan, v, n) != NULL;

	if (found)
	{
		entry->batch_id = DatumGetInt64(v[COMMIT_BATCH]);
		entry->next_watermark = watermark_value(v[COMMIT_NEXT], n[COMMIT_NEXT]);
		entry->watermarks = DatumGetJsonbPCopy(v[COMMIT_WATERMARKS]);
		entry->rows_late = DatumGetInt64(v[COMMIT_LATE]);
		entry->rows_bad = DatumGetInt64(v[COMMIT_BAD]);
		entry->rows_in = DatumGetInt64(v[COMMIT_IN]);
		entry->rows_out = DatumGetInt64(v[COMMIT_OUT]);
		entry->busy_us = DatumGetInt64(v[COMMIT_BUSY]);
	}
	heap_scan_end(scan);
	return found;
}

void
offset_log_add(int64 query_id, const OffsetEntry *entry)
{
	Datum v[OFFSET_COLUMNS];
	bool n[OFFSET_COLUMNS] = {false};

	v[OFFSET_QUERY] = Int64GetDatum(query_id);
	v[OFFSET_BATCH] = Int64GetDatum(entry->batch_id);
	v[OFFSET_STARTS] = JsonbPGetDatum(entry->starts);
	v[OFFSET_OFFSETS] = JsonbPGetDatum(entry->offsets);
	v[OFFSET_WATERMARK] = watermark_datum(entry->watermark, &n[OFFSET_WATERMARK]);
	v[OFFSET_LATE] = watermark_datum(entry->late_watermark, &n[OFFSET_LATE]);
	v[OFFSET_TIME] = TimestampTzGetDatum(entry->batch_time);
	v[OFFSET_CONF] = JsonbPGetDatum(entry->conf);
	v[OFFSET_LOGGED] = TimestampTzGetDatum(clock_now());
	heap_insert_row("offset_entry", v, n);
}

void
commit_log_add(int64 query_id, const CommitEntry *entry)
{
	Datum v[COMMIT_COLUMNS];
	bool n[COMMIT_COLUMNS] = {false};

	v[COMMIT_QUERY] = Int64GetDatum(query_id);
	v[COMMIT_BATCH] = Int64GetDatum(entry->batch_id);
	v[COMMIT_NEXT] = watermark_datum(entry->next_watermark, &n[COMMIT_NEXT]);
	v[COMMIT_WATERMARKS] = JsonbPGetDatum(entry->watermarks);
	v[COMMIT_LATE] = Int64GetDatum(entry->rows_late);
	v[COMMIT_BAD] = Int64GetDatum(entry->rows_bad);
	v[COMMIT_IN] = Int64GetDatum(entry->rows_in);
	v[COMMIT_OUT] = Int64GetDatum(entry->rows_out);
	v[COMMIT_BUSY] = Int64GetDatum(entry->busy_us);
	v[COMMIT_AT] = TimestampTzGetDatum(clock_now());
	heap_insert_row("commit_entry", v, n);
}

void
progress_add(int64 query_id, int64 batch_id, Jsonb *progress)
{
	Datum v[] = {Int64GetDatum(query_id), Int64GetDatum(batch_id), TimestampTzGetDatum(clock_now()), JsonbPGetDatum(progress)};
	bool n[lengthof(v)] = {false};

	heap_insert_row("progress_entry", v, n);
}

/* Deletes the entries of a query with low <= batch_id <= high. Newest first or oldest first, so that the scan ends where the range does. */
static void
entries_delete(const char *table, const char *index, int64 query_id, int64 low, int64 high, bool newest_first)
{
	Datum keys[] = {Int64GetDatum(query_id)};
	HeapScan *scan = heap_scan_begin(table, index, 1, keys, newest_first);
	Datum v[COMMIT_COLUMNS]; /* the widest of the three */
	bool n[COMMIT_COLUMNS];
	HeapTuple tuple;

	while ((tuple = heap_scan_next(scan, v, n)) != NULL)
	{
		int64 batch_id = DatumGetInt64(v[1]);

		if (newest_first ? batch_id < low : batch_id > high)
			break;
		if (batch_id >= low && batch_id <= high)
			heap_delete_row(table, tuple);
	}
	heap_scan_end(scan);
}

static void
logs_delete(int64 query_id, int64 low, int64 high, bool newest_first)
{
	entries_delete("offset_entry", "offset_entry_pkey", query_id, low, high, newest_first);
	entries_delete("commit_entry", "commit_entry_pkey", query_id, low, high, newest_first);
	entries_delete("progress_entry", "progress_entry_pkey", query_id, low, high, newest_first);
}

static void
seen_files_forget(int64 query_id)
{
	Datum key = Int64GetDatum(query_id);
	HeapScan *scan = heap_scan_begin("seen_file", "seen_file_pkey", 1, &key, false);
	HeapTuple tuple;

	while ((tuple = heap_scan_next(scan, NULL, NULL)) != NULL)
		heap_delete_row("seen_file", tuple);
	heap_scan_end(scan);
}

void
logs_truncate(int64 query_id)
{
	seen_files_forget(query_id);
	change_slots_forget(query_id);
	logs_delete(query_id, 0, PG_INT64_MAX, false);
	epoch_log_delete(query_id);
	replay_purge(query_id, PG_INT64_MAX);
	memory_rows_delete(query_id, 0);
}

void
commits_truncate_after(int64 query_id, int64 batch_id)
{
	entries_delete("commit_entry", "commit_entry_pkey", query_id, batch_id + 1, PG_INT64_MAX, true);
	entries_delete("progress_entry", "progress_entry_pkey", query_id, batch_id + 1, PG_INT64_MAX, true);
	epoch_log_delete(query_id);
	replay_rewind(query_id, batch_id);
	dead_letters_delete(query_id, batch_id + 1);
	memory_rows_delete(query_id, batch_id + 1);
}

void
logs_purge(int64 query_id, int64 upto_batch)
{
	logs_delete(query_id, 0, upto_batch, false);
	replay_purge(query_id, upto_batch);
}

bool
logs_purged(int64 query_id, int64 upto_batch)
{
	Datum keys[] = {Int64GetDatum(query_id)};
	HeapScan *scan = heap_scan_begin("offset_entry", "offset_entry_pkey", lengthof(keys), keys, false);
	Datum v[OFFSET_COLUMNS];
	bool n[OFFSET_COLUMNS];
	bool purged = heap_scan_next(scan, v, n) == NULL || DatumGetInt64(v[OFFSET_BATCH]) > upto_batch;

	heap_scan_end(scan);
	return purged;
}
