/*
 * history.c: state in the tables, whichever provider keeps it: reading the past, rewinding, handing over, deleting, housekeeping.
 * A query whose entries lie in place has a table stream.state_row_<id>; where it has none, changelog and snapshots are the state.
 */
#include "state/changelog.h"

#include "miscadmin.h"
#include "state/live.h"
#include "state/rows.h"
#include "state/store.h"
#include "state/table.h"
#include "state/undo.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

static inline bool
in_place(int64 query_id)
{
	return OidIsValid(rows_relation(query_id));
}

const StateProvider *
state_provider(const char *name)
{
	return strcmp(name, table_state.name) == 0 ? &table_state : &memory_state;
}

const StateProvider *
state_provider_of(int64 query_id)
{
	return in_place(query_id) ? &table_state : &memory_state;
}

void
state_create(int64 query_id, const StateProvider *provider)
{
	if (provider == &table_state)
		rows_create(query_id);
}

/* ---- the past ---- */

void
state_read_asof(const StateId *id, int64 batch_id, PackedEntryCallback callback, void *arg)
{
	StateId at = *id;

	/* One snapshot for all: folding may go on meanwhile. */
	at.snapshot = RegisterSnapshot(id->snapshot ? id->snapshot : GetLatestSnapshot());
	state_check_retained(&at, batch_id);
	if (in_place(id->query_id))
		undo_read_asof(&at, batch_id, callback, arg);
	else
		changelog_read_asof(&at, batch_id, callback, arg);
	UnregisterSnapshot(at.snapshot);
}

/* Every change of batches from..to, in order. */
static void
read_changes(const StateId *id, int64 from_batch, int64 to_batch, PackedEntryCallback callback, void *arg)
{
	StateId at = *id;

	at.snapshot = RegisterSnapshot(id->snapshot ? id->snapshot : GetLatestSnapshot());
	state_check_retained(&at, Max(from_batch - 1, 0));
	if (in_place(id->query_id))
		undo_read_changes(&at, from_batch, to_batch, callback, arg);
	else
		changelog_read_changes(&at, from_batch, to_batch, callback, arg);
	UnregisterSnapshot(at.snapshot);
}

int64
state_oldest_batch(int64 query_id)
{
	int64 oldest = 0;
	ListCell *cell;

	foreach (cell, state_ids(query_id))
		oldest = Max(oldest, state_oldest(lfirst(cell)));
	return oldest;
}

/* ---- going back, going away ---- */

static void
logs_delete_after(int64 query_id, int64 batch_id)
{
	static const char *const tables[] = {STATE_CHANGE, STATE_SNAPSHOT, STATE_UNDO, STATE_SIZE};
	ListCell *cell;

	foreach (cell, state_ids(query_id))
	{
		for (int i = 0; i < lengthof(tables); i++)
			(void) chunk_delete(tables[i], lfirst(cell), batch_id + 1, PG_INT64_MAX);
	}
}

void
state_rewind(int64 query_id, int64 batch_id)
{
	ListCell *cell;

	if (in_place(query_id))
		foreach (cell, state_ids(query_id))
			undo_rewind(lfirst(cell), batch_id);
	logs_delete_after(query_id, batch_id);
}

void
state_delete(int64 query_id)
{
	logs_delete_after(query_id, -1);
	rows_drop(query_id);
}

/* ---- from one provider to the other ---- */

static void
convert_to_memory(int64 query_id, int64 last_batch)
{
	List *ids = state_ids(query_id);
	ListCell *cell;

	foreach (cell, ids)
	{
		if (last_batch >= 0)
			snapshot_write(lfirst(cell), last_batch);
		(void) chunk_delete(STATE_UNDO, lfirst(cell), 0, PG_INT64_MAX);
		(void) chunk_delete(STATE_SIZE, lfirst(cell), 0, PG_INT64_MAX);
	}
	rows_drop(query_id);
}

static void
convert_to_table(int64 query_id, List *stores, int64 last_batch)
{
	List *ids = state_ids(query_id);
	ListCell *cell;

	foreach (cell, last_batch >= 0 ? stores : NIL)
		table_store_import(lfirst(cell), last_batch);
	foreach (cell, ids)
	{
		(void) chunk_delete(STATE_CHANGE, lfirst(cell), 0, PG_INT64_MAX);
		(void) chunk_delete(STATE_SNAPSHOT, lfirst(cell), 0, PG_INT64_MAX);
	}
}

void
state_convert(int64 query_id, const StateProvider *provider, List *stores, int64 last_batch)
{
	if (provider == &table_state)
		convert_to_table(query_id, stores, last_batch);
	else
		convert_to_memory(query_id, last_batch);
}

void
state_replace(StateStore *store, int64 last_batch)
{
	StateId *id = &((LiveStore *) store)->id;

	Assert(store->provider == &memory_state);
	(void) chunk_delete(STATE_CHANGE, id, 0, PG_INT64_MAX);
	(void) chunk_delete(STATE_SNAPSHOT, id, 0, PG_INT64_MAX);
	store->provider->flush(store, last_batch);
	snapshot_write(id, last_batch);
	(void) chunk_delete(STATE_CHANGE, id, 0, PG_INT64_MAX);
}

/* ---- for people ---- */

typedef struct EntryScan
{
	LiveStore *store;
	MemoryContext context; /* of one entry */
	StateEntryCallback callback;
	void *arg;
} EntryScan;

static void
entry_tell(void *arg, int64 batch_id, const PackedEntry *packed)
{
	EntryScan *scan = arg;
	const StateSchema *schema = &scan->store->base.schema;
	MemoryContext caller = MemoryContextSwitchTo(scan->context);
	StateEntry *entry = palloc0(sizeof(StateEntry));

	CHECK_FOR_INTERRUPTS();
	entry->key = key_read(scan->store->keys, packed->key, packed->key_length);
	entry->expires = packed->removed ? DT_NOEND : packed->expires;
	entry->removed = packed->removed;
	if (!entry->removed && packed->value_length > 0)
		schema->value_ops->deserialize(schema->operator_private, entry, packed->value, packed->value_length, scan->context);
	MemoryContextSwitchTo(caller);
	scan->callback(scan->arg, batch_id, entry);
	MemoryContextReset(scan->context);
}

static EntryScan
scan_begin(StateStore *store, StateEntryCallback callback, void *arg)
{
	EntryScan scan = {.store = (LiveStore *) store, .callback = callback, .arg = arg};

	scan.context = AllocSetContextCreate(CurrentMemoryContext, "stream state entry", ALLOCSET_DEFAULT_SIZES);
	return scan;
}

void
state_scan_asof(StateStore *store, int64 batch_id, StateEntryCallback callback, void *arg)
{
	EntryScan scan = scan_begin(store, callback, arg);

	state_read_asof(&scan.store->id, batch_id, entry_tell, &scan);
	MemoryContextDelete(scan.context);
}

void
state_scan_changes(StateStore *store, int64 from_batch, int64 to_batch, StateEntryCallback callback, void *arg)
{
	EntryScan scan = scan_begin(store, callback, arg);

	read_changes(&scan.store->id, from_batch, to_batch, entry_tell, &scan);
	MemoryContextDelete(scan.context);
}

static void
entry_measure(void *arg, int64 batch_id, const PackedEntry *entry)
{
	StateMetrics *metrics = arg;

	CHECK_FOR_INTERRUPTS();
	metrics->rows++;
	metrics->bytes += entry->key_length + entry->value_length;
}

StateMetrics
state_measure(StateStore *base, int64 batch_id)
{
	StateId *id = &((LiveStore *) base)->id;
	StateMetrics metrics = {0};

	if (in_place(id->query_id))
		size_read(id, batch_id, &metrics.rows, &metrics.bytes);
	else
		changelog_read_asof(id, batch_id, entry_measure, &metrics);
	return metrics;
}

int64
state_oldest_readable(StateStore *base)
{
	return state_oldest(&((LiveStore *) base)->id);
}
