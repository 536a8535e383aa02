/*
 * fold.c: changelog and snapshots brought together: state as of a batch, new snapshots, and the purging of what is not needed.
 * Snapshot entries stream past a hash of what changed since, keyed by key bytes; no type is looked at.
 * The oldest retained batch stays readable: a snapshot at or below it is kept, and the changelog since.
 */
#include "state/changelog.h"

#include "state/changes.h"
#include "state/memory.h"
#include "state/store.h"
#include "state/undo.h"
#include "utils/memutils.h"

#define FOLD_MINIMUM (256 * 1024) /* below that a restart replays the changelog in no time */

static void
change_tell(Change *change, PackedEntryCallback callback, void *arg)
{
	PackedEntry entry = change_entry(change);

	change->told = true;
	if (!change->removed)
		callback(arg, change->batch_id, &entry);
}

static void
snapshot_tell(const StateId *id, int64 snapshot, ChangeTable *changes, PackedEntryCallback callback, void *arg)
{
	ChunkScan *scan = chunk_scan_begin(STATE_SNAPSHOT, id, snapshot, snapshot);
	PackedEntry entry;

	while (chunk_scan_next(scan, &entry))
	{
		Change *change = changes_find(changes, entry.key, entry.key_length);

		if (change)
			change_tell(change, callback, arg);
		else
			callback(arg, snapshot, &entry);
	}
	chunk_scan_end(scan);
}

void
changelog_read_asof(const StateId *id, int64 batch_id, PackedEntryCallback callback, void *arg)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "stream state as of", ALLOCSET_DEFAULT_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(context);
	int64 snapshot = snapshot_newest(id, batch_id);
	ChangeTable *changes = changes_collect(STATE_CHANGE, id, snapshot + 1, batch_id, KEEP_LAST);
	Change *change;

	MemoryContextSwitchTo(caller);
	if (snapshot >= 0)
		snapshot_tell(id, snapshot, changes, callback, arg);
	changes_start(changes);
	while ((change = changes_next(changes)))
	{
		if (!change->told)
			change_tell(change, callback, arg);
	}
	MemoryContextDelete(context);
}

void
changelog_read_changes(const StateId *id, int64 from_batch, int64 to_batch, PackedEntryCallback callback, void *arg)
{
	ChunkScan *scan = chunk_scan_begin(STATE_CHANGE, id, from_batch, to_batch);
	PackedEntry entry;

	while (chunk_scan_next(scan, &entry))
		callback(arg, scan->batch_id, &entry);
	chunk_scan_end(scan);
}

static void
snapshot_add(void *arg, int64 batch_id, const PackedEntry *entry)
{
	chunk_writer_add(arg, entry);
}

void
snapshot_write(const StateId *id, int64 batch_id)
{
	ChunkWriter *writer = chunk_writer_begin(STATE_SNAPSHOT, id, batch_id, 0);
	int64 bytes = 0;

	state_read_asof(id, batch_id, snapshot_add, writer);
	chunk_writer_end(writer, true, &bytes);
}

/* Some state of the query has grown enough; those that have hardly any changelog stay as they are. */
static bool
snapshot_is_due(const StateId *id, int64 last_batch)
{
	int64 snapshot = snapshot_newest(id, last_batch);

	return snapshot < last_batch && chunk_bytes(STATE_CHANGE, id, snapshot + 1, last_batch) > FOLD_MINIMUM;
}

static bool
snapshots_purge(const StateId *id, int64 oldest_retained)
{
	int64 kept = oldest_retained < 0 ? -1 : snapshot_newest(id, oldest_retained);

	if (kept < 0)
		return false;
	return chunk_delete(STATE_SNAPSHOT, id, 0, kept - 1) + chunk_delete(STATE_CHANGE, id, 0, kept) > 0;
}

bool
state_purge(int64 query_id, int64 oldest_retained)
{
	bool in_place = state_provider_of(query_id) == &table_state;
	bool did = false;
	ListCell *cell;

	foreach (cell, state_ids(query_id))
		did |= in_place ? undo_purge(lfirst(cell), oldest_retained) : snapshots_purge(lfirst(cell), oldest_retained);
	return did;
}

bool
state_fold(int64 query_id, int64 last_batch)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "stream state fold", ALLOCSET_DEFAULT_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(context);
	bool did = false;
	ListCell *cell;

	foreach (cell, state_provider_of(query_id) == &memory_state ? state_ids(query_id) : NIL)
	{
		StateId *id = lfirst(cell);

		if (!snapshot_is_due(id, last_batch))
			continue;
		snapshot_write(id, last_batch);
		did = true;
	}
	MemoryContextSwitchTo(caller);
	MemoryContextDelete(context);
	return did;
}

/* ---- when ---- */

bool
fold_is_due(int64 changed_bytes, int64 live_bytes)
{
	return changed_bytes > Max(FOLD_MINIMUM, live_bytes);
}

bool
state_fold_due(StateStore *base)
{
	return base->provider == &memory_state && memory_fold_due((MemoryStore *) base);
}

int64
state_fold_work(StateStore *base)
{
	LiveStore *store = (LiveStore *) base;

	return store->logged + (state_fold_due(base) ? store->bytes : 0);
}

void
state_fold_begun(StateStore *base)
{
	if (base->provider == &memory_state)
		memory_fold_begun((MemoryStore *) base);
	((LiveStore *) base)->logged = 0;
}

bool
state_fold_ended(StateStore *base, int64 last_batch)
{
	return base->provider == &memory_state && memory_fold_ended((MemoryStore *) base, last_batch);
}
