/*
 * undo.c: state in place as it was: the rows of now, and over them the first thing the log says about each key after the batch asked for.
 * Rows and log are read under one snapshot, so that a batch that commits meanwhile is in both or in neither.
 * Danger: a log purged too far makes the past wrong, not unreadable: state_oldest says how far back one may ask.
 */
#include "state/undo.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "miscadmin.h"
#include "state/changes.h"
#include "state/cursor.h"
#include "util/heap.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#define COLUMN_ROWS COLUMN_CHUNK
#define COLUMN_BYTES COLUMN_DATA

/* ---- sizes ---- */

void
size_read(const StateId *id, int64 upto_batch, int64 *rows, int64 *bytes)
{
	ChunkCursor *cursor = cursor_over_batches(STATE_SIZE, id, 0, upto_batch, BackwardScanDirection, AccessShareLock);

	*rows = *bytes = 0;
	if (cursor_next(cursor))
	{
		*rows = DatumGetInt64(cursor_column(cursor, COLUMN_ROWS));
		*bytes = DatumGetInt64(cursor_column(cursor, COLUMN_BYTES));
	}
	cursor_end(cursor);
}

void
size_write(const StateId *id, int64 batch_id, int64 rows, int64 bytes)
{
	Datum values[] = {Int64GetDatum(id->query_id), Int32GetDatum(id->operator_id), CStringGetTextDatum(id->state_name),
					  Int64GetDatum(batch_id),	   Int64GetDatum(rows),			   Int64GetDatum(bytes)};
	bool nulls[lengthof(values)] = {false};

	/* A batch that is flushed more than once says it again. */
	(void) chunk_delete(STATE_SIZE, id, batch_id, batch_id);
	heap_insert_row(STATE_SIZE, values, nulls);
}

/* ---- reading ---- */

/* The same, under one snapshot. */
static StateId
id_at_snapshot(const StateId *id)
{
	StateId at = *id;

	at.snapshot = RegisterSnapshot(id->snapshot ? id->snapshot : GetLatestSnapshot());
	return at;
}

static void
log_key(StringInfo key, const StateRow *row)
{
	resetStringInfo(key);
	appendBinaryStringInfo(key, (const char *) &row->hash, sizeof(uint64));
	appendBinaryStringInfo(key, row->key, row->key_length);
}

/* Without the hash in front of the key. */
static PackedEntry
told_entry(const Change *change)
{
	PackedEntry entry = change_entry(change);

	entry.key += sizeof(uint64);
	entry.key_length -= sizeof(uint64);
	return entry;
}

static void
change_tell(Change *change, PackedEntryCallback callback, void *arg)
{
	PackedEntry entry = told_entry(change);

	change->told = true;
	if (!change->removed)
		callback(arg, change->batch_id, &entry);
}

static PackedEntry
row_entry(const StateRow *row)
{
	PackedEntry entry = {.removed = false,
						 .expires = row->expires,
						 .key = row->key,
						 .key_length = row->key_length,
						 .value = row->value,
						 .value_length = row->value_length};

	return entry;
}

static void
rows_tell(const StateId *at, ChangeTable *changes, PackedEntryCallback callback, void *arg)
{
	int number = state_number(at->query_id, at->operator_id, at->state_name);
	StringInfoData key;
	StateRows *rows;
	StateRow row;

	if (number < 0)
		return;
	initStringInfo(&key);
	rows = rows_open(at->query_id, number, at->snapshot);
	rows_scan(rows);
	while (rows_scan_next(rows, &row))
	{
		PackedEntry entry = row_entry(&row);
		Change *change;

		log_key(&key, &row);
		change = changes_find(changes, key.data, key.len);
		if (change == NULL)
			callback(arg, row.batch_id, &entry);
		else if (!change->told)
			change_tell(change, callback, arg);
	}
	rows_close(rows);
	pfree(key.data);
}

void
undo_read_asof(const StateId *id, int64 batch_id, PackedEntryCallback callback, void *arg)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "stream state as of", ALLOCSET_DEFAULT_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(context);
	StateId at = id_at_snapshot(id);
	ChangeTable *changes = changes_collect(STATE_UNDO, &at, batch_id + 1, PG_INT64_MAX, KEEP_FIRST);
	Change *change;

	MemoryContextSwitchTo(caller);
	rows_tell(&at, changes, callback, arg);
	changes_start(changes);
	while ((change = changes_next(changes)))
	{
		if (!change->told)
			change_tell(change, callback, arg);
	}
	UnregisterSnapshot(at.snapshot);
	MemoryContextDelete(context);
}

/* ---- changes ---- */

/* One entry of the log, and later what the key became. */
typedef struct Step
{
	int64 batch_id;
	const Change *before;
	const Change *after;
} Step;

static bool
row_find(StateRows *rows, const char *log_key_bytes, uint32 length, StateRow *row)
{
	uint64 hash;

	memcpy(&hash, log_key_bytes, sizeof(uint64));
	rows_seek(rows, hash, hash);
	while (rows_seek_next(rows, row))
	{
		if (row->key_length == length - sizeof(uint64) && memcmp(row->key, log_key_bytes + sizeof(uint64), row->key_length) == 0)
			return true;
	}
	return false;
}

/* The log from a batch on, first entry of each key and batch only. */
static List *
steps_read(const StateId *at, int64 from_batch)
{
	List *steps = NIL;
	ChunkScan *scan = chunk_scan_begin(STATE_UNDO, at, from_batch, PG_INT64_MAX);
	ChangeTable *batch = NULL;
	int64 batch_id = -1;
	PackedEntry entry;

	while (chunk_scan_next(scan, &entry))
	{
		Step *step;

		if (scan->batch_id != batch_id)
			batch = changes_create();
		batch_id = scan->batch_id;
		if (changes_find(batch, entry.key, entry.key_length))
			continue;
		changes_put(batch, batch_id, &entry);
		step = palloc(sizeof(Step));
		step->batch_id = batch_id;
		step->before = changes_find(batch, entry.key, entry.key_length);
		step->after = NULL;
		steps = lappend(steps, step);
	}
	chunk_scan_end(scan);
	return steps;
}

/* What the key is now. */
static const Change *
change_of_now(StateRows *rows, ChangeTable *known, const Change *of)
{
	PackedEntry entry = {.removed = true, .expires = DT_NOEND, .key = of->bytes, .key_length = of->key_length};
	StateRow row;

	if (rows && row_find(rows, of->bytes, of->key_length, &row))
	{
		entry = row_entry(&row);
		entry.key = of->bytes;
		entry.key_length = of->key_length;
	}
	changes_put(known, of->batch_id, &entry);
	return changes_find(known, of->bytes, of->key_length);
}

/* From the newest step to the oldest: each key became what the step after it found. */
static void
steps_complete(List *steps, StateRows *rows, int64 to_batch)
{
	ChangeTable *now = changes_create();
	ChangeTable *later = changes_create();

	for (int i = list_length(steps) - 1; i >= 0; i--)
	{
		Step *step = list_nth(steps, i);
		Change *next = changes_find(later, step->before->bytes, step->before->key_length);
		PackedEntry before = change_entry(step->before);

		if (step->batch_id <= to_batch && next == NULL)
			step->after = change_of_now(rows, now, step->before);
		else if (step->batch_id <= to_batch)
			step->after = change_copy(next);
		changes_put(later, step->batch_id, &before);
	}
}

void
undo_read_changes(const StateId *id, int64 from_batch, int64 to_batch, PackedEntryCallback callback, void *arg)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "stream state changes", ALLOCSET_DEFAULT_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(context);
	StateId at = id_at_snapshot(id);
	int number = state_number(at.query_id, at.operator_id, at.state_name);
	StateRows *rows = number < 0 ? NULL : rows_open(at.query_id, number, at.snapshot);
	List *steps = steps_read(&at, from_batch);
	ListCell *cell;

	steps_complete(steps, rows, to_batch);
	MemoryContextSwitchTo(caller);
	foreach (cell, steps)
	{
		Step *step = lfirst(cell);
		PackedEntry entry;

		if (step->after == NULL || (step->before->removed && step->after->removed))
			continue; /* beyond the range, or came and went within the batch */
		entry = told_entry(step->after);
		callback(arg, step->batch_id, &entry);
	}
	if (rows)
		rows_close(rows);
	UnregisterSnapshot(at.snapshot);
	MemoryContextDelete(context);
}

/* ---- rewinding and purging ---- */

static void
row_restore(StateRows *rows, const Change *change, int64 batch_id)
{
	PackedEntry entry = told_entry(change);
	StateRow now, row = {.batch_id = batch_id, .expires = entry.expires, .key = entry.key, .key_length = entry.key_length};
	bool there = row_find(rows, change->bytes, change->key_length, &now);

	memcpy(&row.hash, change->bytes, sizeof(uint64));
	row.value = entry.value;
	row.value_length = entry.value_length;
	if (there && entry.removed)
		rows_delete(rows, &now.tid);
	else if (there)
	{
		row.tid = now.tid;
		rows_update(rows, &row, now.expires == row.expires);
	}
	else if (!entry.removed)
		rows_insert(rows, &row);
}

void
undo_rewind(const StateId *id, int64 batch_id)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "stream state rewind", ALLOCSET_DEFAULT_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(context);
	ChangeTable *changes = changes_collect(STATE_UNDO, id, batch_id + 1, PG_INT64_MAX, KEEP_FIRST);
	int number = state_number(id->query_id, id->operator_id, id->state_name);
	StateRows *rows;
	Change *change;

	if (number >= 0)
	{
		rows = rows_open(id->query_id, number, SnapshotSelf);
		changes_start(changes);
		while ((change = changes_next(changes)))
		{
			CHECK_FOR_INTERRUPTS();
			row_restore(rows, change, batch_id);
		}
		rows_close(rows);
		CommandCounterIncrement();
	}
	(void) chunk_delete(STATE_UNDO, id, batch_id + 1, PG_INT64_MAX);
	(void) chunk_delete(STATE_SIZE, id, batch_id + 1, PG_INT64_MAX);
	MemoryContextSwitchTo(caller);
	MemoryContextDelete(context);
}

bool
undo_purge(const StateId *id, int64 oldest_retained)
{
	int64 kept = oldest_retained < 0 ? -1 : chunk_last_batch(STATE_SIZE, id, 0, oldest_retained);

	if (kept < 0)
		return false;
	return chunk_delete(STATE_SIZE, id, 0, kept - 1) + chunk_delete(STATE_UNDO, id, 0, kept) > 0;
}
