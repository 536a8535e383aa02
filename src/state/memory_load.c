/*
 * memory_load.c: state out of the tables into a store of the memory provider.
 * Path: newest snapshot → changelog after it, entry by entry; under one snapshot of the database, because folding may replace what is being read.
 */
#include "state/memory.h"

#include "util/operation.h"
#include "utils/snapmgr.h"

/* True: it took so long that it was shown. */
static bool
load_table(MemoryStore *store, const StateId *at, const char *table, int64 from_batch, int64 to_batch)
{
	ChunkScan *scan = chunk_scan_begin(table, at, from_batch, to_batch);
	PackedEntry packed;
	int64 rows = 0;

	while (chunk_scan_next(scan, &packed))
	{
		memory_load_entry(store, &packed);
		if (++rows % OPERATION_ROWS == 0)
			operation_show(OPERATION_LOAD_STATE, store->live.id.query_id, to_batch, rows);
	}
	if (strcmp(table, STATE_CHANGE) == 0 && scan->batch_id >= 0)
	{
		store->changed_bytes = store->live.logged = scan->bytes;
		store->flushed_batch = scan->batch_id;
		store->next_chunk = scan->chunk + 1;
	}
	chunk_scan_end(scan);
	return rows >= OPERATION_ROWS;
}

static void
load_changelog(MemoryStore *store, int64 batch_id)
{
	StateId at = store->live.id;
	bool shown = false;
	int64 snapshot;

	at.snapshot = RegisterSnapshot(GetLatestSnapshot());
	state_check_retained(&at, batch_id);
	snapshot = snapshot_newest(&at, batch_id);
	if (snapshot >= 0)
		shown = load_table(store, &at, STATE_SNAPSHOT, snapshot, snapshot);
	shown |= load_table(store, &at, STATE_CHANGE, snapshot + 1, batch_id);
	UnregisterSnapshot(at.snapshot);
	if (shown)
		operation_end();
}

void
memory_load(MemoryStore *store, int64 batch_id)
{
	memory_clear(store);
	store->live.stale = true;
	store->stale_batch = batch_id;
	if (batch_id >= 0)
		load_changelog(store, batch_id);
	store->live.stale = false;
}
