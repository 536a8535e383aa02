/*
 * memory.c: the memory provider: live state in a hash, changes to the changelog at each commit.
 * Entries come from the newest snapshot and the changelog after it (memory_load.c), stay packed until somebody asks for their value, and are
 * written as they are changed. After a failed batch nothing here is trusted: everything is read again from the tables.
 */
#include "state/memory_members.h"

#include "access/xact.h"
#include "utils/memutils.h"

/* Released values of opaque types leave garbage behind; above this much memory it is worth repacking. */
#define REPACK_MINIMUM (16 * 1024 * 1024)

/* ---- memory ---- */

static void
memory_check_limit(MemoryStore *store)
{
	store->check_at = store->puts + Max(4096, store->live.rows / 8);
	state_account_check(&store->live.id, store->live.rows);
}

static inline void
put_counted(MemoryStore *store)
{
	if (unlikely(++store->puts >= store->check_at))
		memory_check_limit(store);
}

static void
entry_unpack(MemoryStore *store, StateEntry *entry)
{
	char *packed = entry->packed;

	entry->packed = NULL;
	store->live.base.schema.value_ops->deserialize(store->live.base.schema.operator_private, entry, packed, entry->packed_length,
												   store->live.value_context);
	pfree(packed);
}

static inline StateEntry *
entry_ready(MemoryStore *store, StateEntry *entry)
{
	if (unlikely(entry->packed != NULL))
		entry_unpack(store, entry);
	return entry;
}

static void
entry_set_packed(MemoryStore *store, StateEntry *entry, const char *bytes, uint32 length)
{
	entry->packed = MemoryContextAlloc(store->live.key_context, Max(length, 1));
	memcpy(entry->packed, bytes, length);
	entry->packed_length = length;
}

static void
entry_pack(MemoryStore *store, StateEntry *entry)
{
	StringInfo bytes = &store->live.value_bytes;

	resetStringInfo(bytes);
	store->live.base.schema.value_ops->serialize(store->live.base.schema.operator_private, entry, bytes);
	entry_set_packed(store, entry, bytes->data, bytes->len);
	entry->value = NULL;
}

/* Packs every value and drops the context they lived in: what opaque transition states left behind goes with it. */
static void
memory_repack(MemoryStore *store)
{
	members_iterator iterator;
	HashSlot *member;

	store->released = 0;
	if (MemoryContextMemAllocated(store->live.value_context, false) < REPACK_MINIMUM)
		return;
	members_start_iterate(store->members, &iterator);
	while ((member = members_iterate(store->members, &iterator)))
	{
		if (((StateEntry *) member->item)->value)
			entry_pack(store, member->item);
	}
	MemoryContextReset(store->live.value_context);
}

void
memory_clear(MemoryStore *store)
{
	live_clear(&store->live);
	store->members = members_create(store->live.member_context, 256, store);
	store->live.rows = store->live.bytes = 0;
	store->changed_bytes = store->last_bytes = store->folding = store->released = 0;
	store->flushed_batch = -1;
	store->next_chunk = 0;
}

/* ---- entries ---- */

static void
entry_free(MemoryStore *store, StateEntry *entry)
{
	if (entry->value)
		store->released++;
	live_release_value(&store->live, entry);
	if (entry->packed)
		pfree(entry->packed);
	pfree(entry->key);
	pfree(entry);
}

static void
entry_unlink(MemoryStore *store, StateEntry *entry)
{
	members_delete_item(store->members, members_lookup_hash(store->members, entry, entry->hash));
	live_unlink(&store->live, entry);
}

/* Finds the entry of the probe or makes an empty one for it; key: the key as it will be kept, NULL: formed from the probe. */
static StateEntry *
entry_find_or_add(MemoryStore *store, uint32 hash, MinimalTuple key, bool *created)
{
	LiveStore *live = &store->live;
	bool found;
	HashSlot *member = members_insert_hash(store->members, NULL, hash, &found);
	MemoryContext caller;
	StateEntry *entry;

	*created = !found;
	if (found)
		return member->item;
	entry = MemoryContextAllocZero(live->entry_context, live->prefixes ? sizeof(LinkedEntry) : sizeof(StateEntry));
	caller = MemoryContextSwitchTo(live->key_context);
	entry->key = key ? key : key_form(live->keys, live->probe_values, live->probe_nulls);
	MemoryContextSwitchTo(caller);
	entry->expires = DT_NOEND;
	entry->hash = hash;
	member->item = entry;
	if (live->prefixes)
		prefix_index_link(live->prefixes, live->probe_values, live->probe_nulls, live_link(live, entry));
	live->rows++;
	return entry;
}

static inline uint32
probe_set(MemoryStore *store, const Datum *values, const bool *nulls)
{
	store->live.probe_values = values;
	store->live.probe_nulls = nulls;
	return key_hash(store->live.keys, values, nulls);
}

void
memory_load_entry(MemoryStore *store, const PackedEntry *packed)
{
	LiveStore *live = &store->live;
	MemoryContext caller = MemoryContextSwitchTo(live->key_context);
	MinimalTuple key = key_read(live->keys, packed->key, packed->key_length);
	StateEntry *entry;
	bool created;

	MemoryContextSwitchTo(caller);
	key_deform(live->keys, key, live->load_values, live->load_nulls);
	entry = entry_find_or_add(store, probe_set(store, live->load_values, live->load_nulls), key, &created);
	if (!created)
	{
		pfree(key);
		if (entry->packed)
			pfree(entry->packed);
		entry->packed = NULL;
	}
	if (packed->removed)
	{
		entry_unlink(store, entry);
		entry_free(store, entry);
	}
	else
	{
		(void) live_set_expiry(live, entry, packed->expires);
		if (packed->value_length > 0)
			entry_set_packed(store, entry, packed->value, packed->value_length);
		live_count_bytes(live, entry, packed->key_length + packed->value_length);
		entry->stored = true;
	}
	put_counted(store);
}

static inline MemoryStore *
memory_ready(StateStore *base)
{
	MemoryStore *store = (MemoryStore *) base;

	if (unlikely(store->live.stale))
		memory_load(store, store->stale_batch);
	return store;
}

/* ---- the provider ---- */

static StateStore *
memory_open(const StateSchema *schema, int64 batch_id)
{
	MemoryStore *store = live_create(&memory_state, schema, sizeof(MemoryStore), schema->nprefix > 0 ? sizeof(LinkedEntry) : sizeof(StateEntry),
									 offsetof(LinkedEntry, link));
	MemoryContext caller = MemoryContextSwitchTo(store->live.context);

	store->scan = palloc0(sizeof(members_iterator));
	store->check_at = 4096;
	memory_load(store, batch_id);
	MemoryContextSwitchTo(caller);
	return &store->live.base;
}

static void
memory_begin(StateStore *base, int64 batch_id)
{
}

static StateEntry *
memory_get(StateStore *base, TupleTableSlot *key)
{
	MemoryStore *store = memory_ready(base);
	HashSlot *member = members_lookup_hash(store->members, NULL, probe_set(store, key->tts_values, key->tts_isnull));

	return member ? entry_ready(store, member->item) : NULL;
}

static StateEntry *
memory_put(StateStore *base, TupleTableSlot *key, bool *created)
{
	MemoryStore *store = memory_ready(base);
	StateEntry *entry = entry_find_or_add(store, probe_set(store, key->tts_values, key->tts_isnull), NULL, created);

	put_counted(store);
	(void) live_mark_dirty(&store->live, entry);
	return entry_ready(store, entry);
}

static void
memory_changed(StateStore *base, StateEntry *entry)
{
	(void) live_mark_dirty((LiveStore *) base, entry);
}

static void
memory_postpone(StateStore *base, StateEntry *entry, TimestampTz expires)
{
	(void) live_set_expiry((LiveStore *) base, entry, expires);
}

static void
memory_set_expiry(StateStore *base, StateEntry *entry, TimestampTz expires)
{
	if (live_set_expiry((LiveStore *) base, entry, expires))
		(void) live_mark_dirty((LiveStore *) base, entry);
}

static void
memory_remove(StateStore *base, StateEntry *entry)
{
	MemoryStore *store = (MemoryStore *) base;

	entry_unlink(store, entry);
	entry->removed = true;
	(void) live_mark_dirty(&store->live, entry);
}

/* ---- scans ---- */

static void
memory_scan_prefix(StateStore *base, TupleTableSlot *key)
{
	MemoryStore *store = memory_ready(base);

	live_scan_bucket(&store->live, prefix_index_find(store->live.prefixes, key->tts_values, key->tts_isnull, false));
}

static StateEntry *
memory_scan_prefix_next(StateStore *base)
{
	StateEntry *entry = live_scan_prefix_next(base);

	return entry ? entry_ready((MemoryStore *) base, entry) : NULL;
}

static StateEntry *
memory_next_expired(StateStore *base, TimestampTz upto)
{
	MemoryStore *store = memory_ready(base);
	StateEntry *entry = live_first(&store->live);

	return entry && entry->expires <= upto ? entry_ready(store, entry) : NULL;
}

static TimestampTz
memory_first_expiry(StateStore *base)
{
	StateEntry *entry;

	/* After a failure nothing is known until the next batch reads the tables: let it come. */
	if (((LiveStore *) base)->stale && !IsTransactionState())
		return DT_NOBEGIN;
	entry = live_first(&memory_ready(base)->live);
	return entry ? entry->expires : DT_NOEND;
}

static void
memory_scan_start(StateStore *base)
{
	MemoryStore *store = memory_ready(base);

	members_start_iterate(store->members, store->scan);
}

static StateEntry *
memory_scan_next(StateStore *base)
{
	MemoryStore *store = (MemoryStore *) base;
	HashSlot *member = members_iterate(store->members, store->scan);

	return member ? entry_ready(store, member->item) : NULL;
}

static void
memory_scan_changed(StateStore *base)
{
	memory_ready(base)->live.changed_at = 0;
}

static StateEntry *
memory_scan_changed_next(StateStore *base)
{
	StateEntry *entry = live_changed_next((LiveStore *) base);

	return entry ? entry_ready((MemoryStore *) base, entry) : NULL;
}

/* ---- the end of a batch ---- */

static void
flush_entry(MemoryStore *store, StateEntry *entry, ChunkWriter *writer)
{
	PackedEntry packed;

	if (entry->removed && !entry->stored)
		return;
	packed = live_pack(&store->live, entry);
	if (!entry->removed)
		live_count_bytes(&store->live, entry, packed.key_length + packed.value_length);
	chunk_writer_add(writer, &packed);
}

static void
memory_flush(StateStore *base, int64 batch_id)
{
	MemoryStore *store = memory_ready(base);
	ChunkWriter *writer;
	int64 written = 0;

	memory_check_limit(store);
	if (store->live.ndirty == 0)
		return;
	if (store->flushed_batch != batch_id)
		store->next_chunk = store->last_bytes = 0;
	writer = chunk_writer_begin(STATE_CHANGE, &store->live.id, batch_id, store->next_chunk);
	for (int64 i = 0; i < store->live.ndirty; i++)
		flush_entry(store, store->live.dirty[i], writer);
	store->next_chunk = chunk_writer_end(writer, false, &written);
	store->last_bytes += written;
	store->changed_bytes += written;
	store->live.logged += written;
	store->flushed_batch = batch_id;
}

static void
memory_committed(StateStore *base)
{
	MemoryStore *store = (MemoryStore *) base;

	for (int64 i = 0; i < store->live.ndirty; i++)
	{
		StateEntry *entry = store->live.dirty[i];

		entry->dirty = false;
		entry->stored = true;
		if (entry->removed)
			entry_free(store, entry);
	}
	store->live.ndirty = 0;
	if (store->released > Max(store->live.rows, 10000) && !store->live.base.schema.value_ops->linked)
		memory_repack(store);
}

/* Called after an abort, when no table can be read: the reading waits for the next batch. */
static void
memory_forget(StateStore *base, int64 batch_id)
{
	MemoryStore *store = (MemoryStore *) base;

	memory_clear(store);
	store->live.stale = true;
	store->stale_batch = batch_id;
}

static StateMetrics
memory_metrics(StateStore *base)
{
	MemoryStore *store = memory_ready(base);
	StateMetrics metrics = {.rows = store->live.rows, .bytes = store->live.bytes, .changed = store->live.ndirty};

	return metrics;
}

const StateProvider memory_state = {.name = "memory",
									.open = memory_open,
									.begin = memory_begin,
									.get = memory_get,
									.put = memory_put,
									.changed = memory_changed,
									.set_expiry = memory_set_expiry,
									.postpone = memory_postpone,
									.remove = memory_remove,
									.expects = memory_expects,
									.expect = memory_expect,
									.scan_prefix = memory_scan_prefix,
									.scan_prefix_next = memory_scan_prefix_next,
									.next_expired = memory_next_expired,
									.first_expiry = memory_first_expiry,
									.scan_start = memory_scan_start,
									.scan_next = memory_scan_next,
									.scan_changed = memory_scan_changed,
									.scan_changed_next = memory_scan_changed_next,
									.flush = memory_flush,
									.committed = memory_committed,
									.forget = memory_forget,
									.value_context = live_value_context,
									.metrics = memory_metrics,
									.close = live_close};

/* ---- folding ---- */

bool
memory_fold_due(MemoryStore *store)
{
	/* The last batch is retained anyway: a batch that changes everything need not be folded at once. */
	return !store->live.stale && store->folding == 0 && fold_is_due(store->changed_bytes - store->last_bytes, store->live.bytes);
}

void
memory_fold_begun(MemoryStore *store)
{
	store->folding = store->changed_bytes;
}

bool
memory_fold_ended(MemoryStore *store, int64 last_batch)
{
	bool folded = snapshot_newest(&store->live.id, last_batch) == last_batch;

	if (folded && store->folding > 0)
	{
		store->changed_bytes -= store->folding;
		store->last_bytes = Min(store->last_bytes, store->changed_bytes);
	}
	store->folding = 0;
	return folded;
}
