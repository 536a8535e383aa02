/*
 * fold.c: changelog and snapshots brought together: state as of a batch, new snapshots, and the purging of what is not needed.
 * Snapshot entries stream past a hash of what changed since, keyed by key bytes; no type is looked at.
 * The oldest retained batch stays readable: a snapshot at or below it is kept, and the changelog since.
 */
#include "state/changelog.h"

#include "common/hashfn.h"
#include "state/memory.h"
#include "state/store.h"
#include "utils/memutils.h"

#define FOLD_MINIMUM (256 * 1024) /* below that a restart replays the changelog in no time */

/* The last that happened to a key after the snapshot, in one piece: the key's bytes, then the value's. */
typedef struct Change
{
	int64 batch_id;
	TimestampTz expires;
	uint32 key_length;
	uint32 value_length;
	bool removed;
	bool told; /* already handed out in the snapshot's place */
	char bytes[FLEXIBLE_ARRAY_MEMBER];
} Change;

typedef struct ChangeMember
{
	Change *change;
	uint32 hash;
	char status;
} ChangeMember;

typedef struct ChangeTable
{
	MemoryContext context; /* of the changes */
	const PackedEntry *sought;
	struct changes_hash *members;
} ChangeTable;

static inline bool change_matches(void *table, Change *change);

/* Keys are looked up by the table's sought entry; the key argument is not used. */
#define SH_PREFIX changes
#define SH_ELEMENT_TYPE ChangeMember
#define SH_KEY_TYPE Change *
#define SH_KEY change
#define SH_SCOPE static inline
#define SH_HASH_KEY(table, key) 0
#define SH_EQUAL(table, a, b) change_matches((table)->private_data, a)
#define SH_STORE_HASH
#define SH_GET_HASH(table, member) (member)->hash
#define SH_DECLARE
#define SH_DEFINE
#include "lib/simplehash.h"

static inline bool
change_matches(void *table, Change *change)
{
	const PackedEntry *sought = ((ChangeTable *) table)->sought;

	return change->key_length == sought->key_length && memcmp(change->bytes, sought->key, sought->key_length) == 0;
}

static uint32
sought_hash(ChangeTable *table, const PackedEntry *sought)
{
	table->sought = sought;
	return hash_bytes((const unsigned char *) sought->key, sought->key_length);
}

static Change *
change_create(ChangeTable *table, int64 batch_id, const PackedEntry *entry)
{
	Change *change = MemoryContextAllocHuge(table->context, offsetof(Change, bytes) + (Size) entry->key_length + entry->value_length);

	change->batch_id = batch_id;
	change->expires = entry->expires;
	change->key_length = entry->key_length;
	change->value_length = entry->value_length;
	change->removed = entry->removed;
	change->told = false;
	memcpy(change->bytes, entry->key, entry->key_length);
	if (!entry->removed)
		memcpy(change->bytes + entry->key_length, entry->value, entry->value_length);
	return change;
}

/* What changed in batches from..to, the last change of each key. In CurrentMemoryContext. */
static ChangeTable *
changes_collect(const StateId *id, int64 from_batch, int64 to_batch)
{
	ChangeTable *table = palloc0(sizeof(ChangeTable));
	ChunkScan *scan = chunk_scan_begin(STATE_CHANGE, id, from_batch, to_batch);
	PackedEntry entry;

	table->context = GenerationContextCreate(CurrentMemoryContext, "stream state changes", ALLOCSET_DEFAULT_SIZES);
	table->members = changes_create(CurrentMemoryContext, 1024, table);
	while (chunk_scan_next(scan, &entry))
	{
		bool found;
		ChangeMember *member = changes_insert_hash(table->members, NULL, sought_hash(table, &entry), &found);

		if (found)
			pfree(member->change);
		member->change = change_create(table, scan->batch_id, &entry);
	}
	chunk_scan_end(scan);
	return table;
}

static void
change_tell(Change *change, PackedEntryCallback callback, void *arg)
{
	PackedEntry entry = {.removed = false,
						 .expires = change->expires,
						 .key = change->bytes,
						 .key_length = change->key_length,
						 .value = change->bytes + change->key_length,
						 .value_length = change->value_length};

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
		ChangeMember *member = changes_lookup_hash(changes->members, NULL, sought_hash(changes, &entry));

		if (member)
			change_tell(member->change, callback, arg);
		else
			callback(arg, snapshot, &entry);
	}
	chunk_scan_end(scan);
}

void
state_read_asof(const StateId *id, int64 batch_id, PackedEntryCallback callback, void *arg)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "stream state as of", ALLOCSET_DEFAULT_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(context);
	int64 snapshot;
	ChangeTable *changes;
	changes_iterator iterator;
	ChangeMember *member;

	state_check_retained(id, batch_id);
	snapshot = snapshot_newest(id, batch_id);
	changes = changes_collect(id, snapshot + 1, batch_id);
	MemoryContextSwitchTo(caller);
	if (snapshot >= 0)
		snapshot_tell(id, snapshot, changes, callback, arg);
	changes_start_iterate(changes->members, &iterator);
	while ((member = changes_iterate(changes->members, &iterator)))
	{
		if (!member->change->told)
			change_tell(member->change, callback, arg);
	}
	MemoryContextDelete(context);
}

void
state_read_changes(const StateId *id, int64 from_batch, int64 to_batch, PackedEntryCallback callback, void *arg)
{
	ChunkScan *scan;
	PackedEntry entry;

	state_check_retained(id, Max(from_batch - 1, 0));
	scan = chunk_scan_begin(STATE_CHANGE, id, from_batch, to_batch);
	while (chunk_scan_next(scan, &entry))
		callback(arg, scan->batch_id, &entry);
	chunk_scan_end(scan);
}

static void
snapshot_add(void *arg, int64 batch_id, const PackedEntry *entry)
{
	chunk_writer_add(arg, entry);
}

static void
snapshot_write(const StateId *id, int64 batch_id)
{
	ChunkWriter *writer = chunk_writer_begin(STATE_SNAPSHOT, id, batch_id, 0);
	int64 bytes = 0;

	state_read_asof(id, batch_id, snapshot_add, writer);
	chunk_writer_end(writer, true, &bytes);
	memory_store_folded(id, batch_id);
}

/* An open store knows its live size; without one the newest snapshot's size stands for it. */
static bool
snapshot_is_due(const StateId *id, int64 last_batch)
{
	StateStore *store = memory_store_find(id);
	int64 snapshot = snapshot_newest(id, last_batch);
	int64 changed;

	if (snapshot >= last_batch)
		return false;
	if (store)
		return state_fold_due(store);
	changed = chunk_bytes(STATE_CHANGE, id, snapshot + 1, last_batch);
	return changed > FOLD_MINIMUM && (snapshot < 0 || changed > chunk_bytes(STATE_SNAPSHOT, id, snapshot, snapshot));
}

static bool
state_purge(const StateId *id, int64 oldest_retained)
{
	int64 kept = oldest_retained < 0 ? -1 : snapshot_newest(id, oldest_retained);

	if (kept < 0)
		return false;
	return chunk_delete(STATE_SNAPSHOT, id, 0, kept - 1) + chunk_delete(STATE_CHANGE, id, 0, kept) > 0;
}

bool
state_fold(int64 query_id, int64 last_batch, int min_batches_to_retain)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "stream state fold", ALLOCSET_DEFAULT_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(context);
	bool did = false;
	ListCell *cell;

	foreach (cell, state_ids(query_id))
	{
		StateId *id = lfirst(cell);

		if (snapshot_is_due(id, last_batch))
		{
			snapshot_write(id, last_batch);
			did = true;
		}
		did |= state_purge(id, last_batch - min_batches_to_retain);
	}
	MemoryContextSwitchTo(caller);
	MemoryContextDelete(context);
	return did;
}

bool
fold_is_due(int64 changed_bytes, int64 live_bytes)
{
	return changed_bytes > Max(FOLD_MINIMUM, live_bytes);
}
