/*
 * memory.c: the memory provider: live state in a hash, changes to the changelog at each commit.
 * Entries come from the newest snapshot and the changelog after it, stay packed until somebody asks for their value, and are
 * written as they are changed. After a failed batch nothing here is trusted: everything is read again from the tables.
 */
#include "state/account.h"
#include "state/changelog.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "state/keys.h"
#include "state/prefix.h"
#include "state/store.h"
#include "state/table.h"
#include "util/operation.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

/* Released values of opaque types leave garbage behind; above this much memory it is worth repacking. */
#define REPACK_MINIMUM (16 * 1024 * 1024)

typedef struct Member
{
	StateEntry *entry;
	uint32 hash;
	char status;
} Member;

static inline bool member_matches(void *store, StateEntry *member, StateEntry *sought);

/* A NULL key stands for the store's probe; a pointer for that very entry. */
#define SH_PREFIX members
#define SH_ELEMENT_TYPE Member
#define SH_KEY_TYPE StateEntry *
#define SH_KEY entry
#define SH_SCOPE static inline
#define SH_HASH_KEY(table, key) ((key)->hash)
#define SH_EQUAL(table, a, b) member_matches((table)->private_data, a, b)
#define SH_STORE_HASH
#define SH_GET_HASH(table, member) (member)->hash
#define SH_DECLARE
#define SH_DEFINE
#include "lib/simplehash.h"

/* Entries of stores that are scanned by prefix. */
typedef struct LinkedEntry
{
	StateEntry entry;
	PrefixLink link;
} LinkedEntry;

typedef struct MemoryStore
{
	StateStore base;
	StateId id;
	StateAccount account;
	MemoryContext context;		  /* of the store: everything below */
	MemoryContext entry_context;  /* entries: all of one size */
	MemoryContext key_context;	  /* keys, packed values */
	MemoryContext value_context;  /* live values */
	MemoryContext member_context; /* the hash */
	KeyType *keys;
	members_hash *members;
	pairingheap *order;
	const Datum *probe_values; /* the key being looked for */
	const bool *probe_nulls;
	Datum *load_values;
	bool *load_nulls;
	StateEntry **dirty;
	int64 ndirty, maxdirty;
	int64 rows, bytes;
	int64 changed_bytes; /* changelog since the newest snapshot */
	int64 last_bytes;	 /* of it, the last batch's */
	int64 folding;		 /* of it, what is being folded at present */
	int64 logged;		 /* changelog since the last purge */
	int64 released;		 /* values released since the last repacking */
	int64 puts, check_at; /* when the memory is measured next */
	int64 flushed_batch; /* its next chunk number is next_chunk */
	int next_chunk;
	bool stale; /* to be read again, as of stale_batch */
	int64 stale_batch;
	StringInfoData key_bytes, value_bytes;
	members_iterator scan;
	int64 changed_at; /* of scan_changed */
	PrefixIndex *prefixes; /* NULL: nobody scans by prefix */
	dlist_node *prefix_end, *prefix_next;
} MemoryStore;

static inline bool
member_matches(void *arg, StateEntry *member, StateEntry *sought)
{
	MemoryStore *store = arg;

	if (sought)
		return member == sought;
	return key_equals(store->keys, member->key, store->probe_values, store->probe_nulls);
}

static int
order_compare(const pairingheap_node *a, const pairingheap_node *b, void *arg)
{
	TimestampTz left = pairingheap_const_container(StateEntry, order, a)->expires;
	TimestampTz right = pairingheap_const_container(StateEntry, order, b)->expires;

	/* The heap gives its greatest first. */
	return left < right ? 1 : (left > right ? -1 : 0);
}

/* ---- memory ---- */

static void
memory_check_limit(MemoryStore *store)
{
	store->check_at = store->puts + Max(4096, store->rows / 8);
	state_account_check(&store->id, store->rows);
}

static void
entry_unpack(MemoryStore *store, StateEntry *entry)
{
	char *packed = entry->packed;

	entry->packed = NULL;
	store->base.schema.value_ops->deserialize(store->base.schema.operator_private, entry, packed, entry->packed_length,
											  store->value_context);
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
entry_pack(MemoryStore *store, StateEntry *entry)
{
	resetStringInfo(&store->value_bytes);
	store->base.schema.value_ops->serialize(store->base.schema.operator_private, entry, &store->value_bytes);
	entry->packed = MemoryContextAlloc(store->key_context, Max(store->value_bytes.len, 1));
	memcpy(entry->packed, store->value_bytes.data, store->value_bytes.len);
	entry->packed_length = store->value_bytes.len;
	entry->value = NULL;
}

/* Packs every value and drops the context they lived in: what opaque transition states left behind goes with it. */
static void
memory_repack(MemoryStore *store)
{
	members_iterator iterator;
	Member *member;

	store->released = 0;
	if (MemoryContextMemAllocated(store->value_context, false) < REPACK_MINIMUM)
		return;
	members_start_iterate(store->members, &iterator);
	while ((member = members_iterate(store->members, &iterator)))
	{
		if (member->entry->value)
			entry_pack(store, member->entry);
	}
	MemoryContextReset(store->value_context);
}

static void
entry_free(MemoryStore *store, StateEntry *entry)
{
	if (entry->value && store->base.schema.value_ops)
	{
		store->base.schema.value_ops->release(store->base.schema.operator_private, entry);
		store->released++;
	}
	if (entry->packed)
		pfree(entry->packed);
	pfree(entry->key);
	pfree(entry);
}

/* ---- loading ---- */

static void
memory_clear(MemoryStore *store)
{
	MemoryContextReset(store->entry_context);
	MemoryContextReset(store->key_context);
	MemoryContextReset(store->value_context);
	MemoryContextReset(store->member_context);
	store->members = members_create(store->member_context, 256, store);
	pairingheap_reset(store->order);
	if (store->prefixes)
		prefix_index_clear(store->prefixes);
	store->rows = store->bytes = store->changed_bytes = store->last_bytes = store->folding = store->released = 0;
	store->ndirty = 0;
	store->flushed_batch = -1;
	store->next_chunk = 0;
}

static void
entry_unlink(MemoryStore *store, StateEntry *entry)
{
	members_delete_item(store->members, members_lookup_hash(store->members, entry, entry->hash));
	if (entry->expires != DT_NOEND)
		pairingheap_remove(store->order, &entry->order);
	if (store->prefixes)
		prefix_index_unlink(store->prefixes, &((LinkedEntry *) entry)->link);
	store->rows--;
	store->bytes -= entry->bytes;
}

/* Finds the entry of the probe or makes an empty one for it; key: the key as it will be kept, NULL: formed from the probe. */
static StateEntry *
entry_find_or_add(MemoryStore *store, uint32 hash, MinimalTuple key, bool *created)
{
	bool found;
	Member *member = members_insert_hash(store->members, NULL, hash, &found);
	MemoryContext caller;
	StateEntry *entry;

	*created = !found;
	if (found)
		return member->entry;
	entry = MemoryContextAllocZero(store->entry_context, store->prefixes ? sizeof(LinkedEntry) : sizeof(StateEntry));
	caller = MemoryContextSwitchTo(store->key_context);
	entry->key = key ? key : key_form(store->keys, store->probe_values, store->probe_nulls);
	MemoryContextSwitchTo(caller);
	entry->expires = DT_NOEND;
	entry->hash = hash;
	member->entry = entry;
	if (store->prefixes)
		prefix_index_link(store->prefixes, store->probe_values, store->probe_nulls, &((LinkedEntry *) entry)->link);
	store->rows++;
	return entry;
}

static void
load_entry(MemoryStore *store, const PackedEntry *packed)
{
	MemoryContext caller = MemoryContextSwitchTo(store->key_context);
	MinimalTuple key = key_read(store->keys, packed->key, packed->key_length);
	StateEntry *entry;
	uint32 hash;
	bool created;

	key_deform(store->keys, key, store->load_values, store->load_nulls);
	store->probe_values = store->load_values;
	store->probe_nulls = store->load_nulls;
	hash = key_hash(store->keys, store->load_values, store->load_nulls);
	entry = entry_find_or_add(store, hash, key, &created);
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
		if (!created && entry->expires != DT_NOEND)
			pairingheap_remove(store->order, &entry->order);
		entry->expires = packed->expires;
		if (entry->expires != DT_NOEND)
			pairingheap_add(store->order, &entry->order);
		if (packed->value_length > 0)
		{
			entry->packed = palloc(packed->value_length);
			memcpy(entry->packed, packed->value, packed->value_length);
		}
		entry->packed_length = packed->value_length;
		store->bytes -= entry->bytes;
		entry->bytes = packed->key_length + packed->value_length;
		store->bytes += entry->bytes;
		entry->stored = true;
	}
	MemoryContextSwitchTo(caller);
	if (unlikely(++store->puts >= store->check_at))
		memory_check_limit(store);
}

static void
load_table(MemoryStore *store, const StateId *at, const char *table, int64 from_batch, int64 to_batch)
{
	ChunkScan *scan = chunk_scan_begin(table, at, from_batch, to_batch);
	PackedEntry packed;
	int64 rows = 0;

	while (chunk_scan_next(scan, &packed))
	{
		load_entry(store, &packed);
		if (++rows % OPERATION_ROWS == 0)
			operation_show(OPERATION_LOAD_STATE, store->id.query_id, to_batch, rows);
	}
	if (strcmp(table, STATE_CHANGE) == 0 && scan->batch_id >= 0)
	{
		store->changed_bytes = store->logged = scan->bytes;
		store->flushed_batch = scan->batch_id;
		store->next_chunk = scan->chunk + 1;
	}
	chunk_scan_end(scan);
}

/* All under one snapshot: folding may replace what is being read. */
static void
load_changelog(MemoryStore *store, int64 batch_id)
{
	StateId at = store->id;
	int64 snapshot;

	at.snapshot = RegisterSnapshot(GetLatestSnapshot());
	state_check_retained(&at, batch_id);
	snapshot = snapshot_newest(&at, batch_id);
	if (snapshot >= 0)
		load_table(store, &at, STATE_SNAPSHOT, snapshot, snapshot);
	load_table(store, &at, STATE_CHANGE, snapshot + 1, batch_id);
	UnregisterSnapshot(at.snapshot);
	operation_end();
}

static void
load_told(void *arg, int64 batch_id, const PackedEntry *packed)
{
	load_entry(arg, packed);
}

/* State that lies in place comes here for the state reader only. */
static void
memory_load(MemoryStore *store, int64 batch_id)
{
	memory_clear(store);
	store->stale = true;
	store->stale_batch = batch_id;
	if (batch_id >= 0 && state_provider_of(store->id.query_id) == &memory_state)
		load_changelog(store, batch_id);
	else if (batch_id >= 0)
		state_read_asof(&store->id, batch_id, load_told, store);
	store->stale = false;
}

static inline MemoryStore *
memory_ready(StateStore *base)
{
	MemoryStore *store = (MemoryStore *) base;

	if (unlikely(store->stale))
		memory_load(store, store->stale_batch);
	return store;
}

/* ---- the provider ---- */

static StateStore *
memory_open(const StateSchema *schema, int64 batch_id)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "stream state", ALLOCSET_DEFAULT_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(context);
	MemoryStore *store = palloc0(sizeof(MemoryStore));

	store->base.provider = &memory_state;
	store->base.schema = *schema;
	store->id.query_id = schema->query_id;
	store->id.operator_id = schema->operator_id;
	store->id.state_name = pstrdup(schema->state_name);
	store->base.schema.state_name = store->id.state_name;
	store->context = context;
	store->keys = key_type_create(schema);
	store->entry_context = SlabContextCreate(context, "stream state entries", SLAB_DEFAULT_BLOCK_SIZE,
											 schema->nprefix > 0 ? sizeof(LinkedEntry) : sizeof(StateEntry));
	store->prefixes = schema->nprefix > 0 ? prefix_index_create(schema) : NULL;
	store->key_context = AllocSetContextCreate(context, "stream state keys", ALLOCSET_DEFAULT_SIZES);
	store->value_context = AllocSetContextCreate(context, "stream state values", ALLOCSET_DEFAULT_SIZES);
	store->member_context = AllocSetContextCreate(context, "stream state members", ALLOCSET_DEFAULT_SIZES);
	store->order = pairingheap_allocate(order_compare, NULL);
	store->load_values = palloc0(sizeof(Datum) * Max(store->keys->ncolumns, 1));
	store->load_nulls = palloc0(sizeof(bool) * Max(store->keys->ncolumns, 1));
	store->maxdirty = 256;
	store->dirty = palloc(sizeof(StateEntry *) * store->maxdirty);
	store->check_at = 4096;
	initStringInfo(&store->key_bytes);
	initStringInfo(&store->value_bytes);
	state_account_add(&store->account, context);
	memory_load(store, batch_id);
	MemoryContextSwitchTo(caller);
	return &store->base;
}

static inline uint32
probe_set(MemoryStore *store, TupleTableSlot *key)
{
	store->probe_values = key->tts_values;
	store->probe_nulls = key->tts_isnull;
	return key_hash(store->keys, key->tts_values, key->tts_isnull);
}

static StateEntry *
memory_get(StateStore *base, TupleTableSlot *key)
{
	MemoryStore *store = memory_ready(base);
	Member *member = members_lookup_hash(store->members, NULL, probe_set(store, key));

	return member ? entry_ready(store, member->entry) : NULL;
}

static inline void
entry_mark_dirty(MemoryStore *store, StateEntry *entry)
{
	if (entry->dirty)
		return;
	if (store->ndirty == store->maxdirty)
	{
		store->maxdirty *= 2;
		store->dirty = repalloc_huge(store->dirty, sizeof(StateEntry *) * store->maxdirty);
	}
	entry->dirty = true;
	store->dirty[store->ndirty++] = entry;
}

static StateEntry *
memory_put(StateStore *base, TupleTableSlot *key, bool *created)
{
	MemoryStore *store = memory_ready(base);
	StateEntry *entry = entry_find_or_add(store, probe_set(store, key), NULL, created);

	if (unlikely(++store->puts >= store->check_at))
		memory_check_limit(store);
	entry_mark_dirty(store, entry);
	return entry_ready(store, entry);
}

static void
memory_changed(StateStore *base, StateEntry *entry)
{
	entry_mark_dirty((MemoryStore *) base, entry);
}

static void
memory_set_expiry(StateStore *base, StateEntry *entry, TimestampTz expires)
{
	MemoryStore *store = (MemoryStore *) base;

	if (entry->expires == expires)
		return;
	if (entry->expires != DT_NOEND)
		pairingheap_remove(store->order, &entry->order);
	entry->expires = expires;
	if (expires != DT_NOEND)
		pairingheap_add(store->order, &entry->order);
	entry_mark_dirty(store, entry);
}

static void
memory_remove(StateStore *base, StateEntry *entry)
{
	MemoryStore *store = (MemoryStore *) base;

	entry_unlink(store, entry);
	entry->removed = true;
	entry_mark_dirty(store, entry);
}

static void
memory_begin(StateStore *base, int64 batch_id)
{
}

static void
memory_scan_prefix(StateStore *base, TupleTableSlot *key)
{
	MemoryStore *store = memory_ready(base);
	PrefixBucket *bucket = prefix_index_find(store->prefixes, key->tts_values, key->tts_isnull, false);

	store->prefix_end = bucket ? &bucket->entries.head : NULL;
	store->prefix_next = bucket ? dlist_head_node(&bucket->entries) : NULL;
}

static StateEntry *
memory_scan_prefix_next(StateStore *base)
{
	MemoryStore *store = (MemoryStore *) base;
	dlist_node *node = store->prefix_next;

	if (node == store->prefix_end)
		return NULL;
	store->prefix_next = node->next;
	return entry_ready(store, &dlist_container(LinkedEntry, link.node, node)->entry);
}

static StateEntry *
memory_next_expired(StateStore *base, TimestampTz upto)
{
	MemoryStore *store = memory_ready(base);
	StateEntry *entry;

	if (pairingheap_is_empty(store->order))
		return NULL;
	entry = pairingheap_container(StateEntry, order, pairingheap_first(store->order));
	return entry->expires <= upto ? entry_ready(store, entry) : NULL;
}

static TimestampTz
memory_first_expiry(StateStore *base)
{
	MemoryStore *store = (MemoryStore *) base;

	/* After a failure nothing is known until the next batch reads the tables: let it come. */
	if (store->stale && !IsTransactionState())
		return DT_NOBEGIN;
	memory_ready(base);
	if (pairingheap_is_empty(store->order))
		return DT_NOEND;
	return pairingheap_container(StateEntry, order, pairingheap_first(store->order))->expires;
}

static void
memory_scan_start(StateStore *base)
{
	MemoryStore *store = memory_ready(base);

	members_start_iterate(store->members, &store->scan);
}

static StateEntry *
memory_scan_next(StateStore *base)
{
	MemoryStore *store = (MemoryStore *) base;
	Member *member = members_iterate(store->members, &store->scan);

	return member ? entry_ready(store, member->entry) : NULL;
}

static void
memory_scan_changed(StateStore *base)
{
	memory_ready(base)->changed_at = 0;
}

static StateEntry *
memory_scan_changed_next(StateStore *base)
{
	MemoryStore *store = (MemoryStore *) base;

	while (store->changed_at < store->ndirty)
	{
		StateEntry *entry = store->dirty[store->changed_at++];

		if (!entry->removed)
			return entry_ready(store, entry);
	}
	return NULL;
}

/* ---- the end of a batch ---- */

static void
flush_entry(MemoryStore *store, StateEntry *entry, ChunkWriter *writer)
{
	PackedEntry packed = {.removed = entry->removed, .expires = entry->expires};

	if (entry->removed && !entry->stored)
		return;
	resetStringInfo(&store->key_bytes);
	key_write(store->keys, entry->key, &store->key_bytes);
	packed.key = store->key_bytes.data;
	packed.key_length = store->key_bytes.len;
	if (entry->packed)
	{
		packed.value = entry->packed;
		packed.value_length = entry->packed_length;
	}
	else if (!entry->removed && store->base.schema.value_ops)
	{
		resetStringInfo(&store->value_bytes);
		store->base.schema.value_ops->serialize(store->base.schema.operator_private, entry, &store->value_bytes);
		packed.value = store->value_bytes.data;
		packed.value_length = store->value_bytes.len;
	}
	if (!entry->removed)
	{
		store->bytes -= entry->bytes;
		entry->bytes = packed.key_length + packed.value_length;
		store->bytes += entry->bytes;
	}
	chunk_writer_add(writer, &packed);
}

static void
memory_flush(StateStore *base, int64 batch_id)
{
	MemoryStore *store = memory_ready(base);
	ChunkWriter *writer;
	int64 written = 0;

	memory_check_limit(store);
	if (store->ndirty == 0)
		return;
	if (store->flushed_batch != batch_id)
		store->next_chunk = store->last_bytes = 0;
	writer = chunk_writer_begin(STATE_CHANGE, &store->id, batch_id, store->next_chunk);
	for (int64 i = 0; i < store->ndirty; i++)
		flush_entry(store, store->dirty[i], writer);
	store->next_chunk = chunk_writer_end(writer, false, &written);
	store->last_bytes += written;
	store->changed_bytes += written;
	store->logged += written;
	store->flushed_batch = batch_id;
}

static void
memory_committed(StateStore *base)
{
	MemoryStore *store = (MemoryStore *) base;

	for (int64 i = 0; i < store->ndirty; i++)
	{
		StateEntry *entry = store->dirty[i];

		entry->dirty = false;
		entry->stored = true;
		if (entry->removed)
			entry_free(store, entry);
	}
	store->ndirty = 0;
	if (store->released > Max(store->rows, 10000) && !store->base.schema.value_ops->linked)
		memory_repack(store);
}

/* Called after an abort, when no table can be read: the reading waits for the next batch. */
static void
memory_forget(StateStore *base, int64 batch_id)
{
	MemoryStore *store = (MemoryStore *) base;

	memory_clear(store);
	store->stale = true;
	store->stale_batch = batch_id;
}

static MemoryContext
memory_value_context(StateStore *base)
{
	return ((MemoryStore *) base)->value_context;
}

static StateMetrics
memory_metrics(StateStore *base)
{
	MemoryStore *store = memory_ready(base);
	StateMetrics metrics = {.rows = store->rows, .bytes = store->bytes, .changed = store->ndirty};

	return metrics;
}

static void
memory_close(StateStore *base)
{
	MemoryContextDelete(((MemoryStore *) base)->context);
}

const StateProvider memory_state = {.name = "memory",
									.open = memory_open,
									.begin = memory_begin,
									.get = memory_get,
									.put = memory_put,
									.changed = memory_changed,
									.set_expiry = memory_set_expiry,
									.remove = memory_remove,
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
									.value_context = memory_value_context,
									.metrics = memory_metrics,
									.close = memory_close};

/* ---- reading from outside a batch ---- */

typedef struct ChangeScan
{
	MemoryStore *store;
	MemoryContext context; /* of one entry */
	StateChangeCallback callback;
	void *arg;
} ChangeScan;

static void
change_tell(void *arg, int64 batch_id, const PackedEntry *packed)
{
	ChangeScan *scan = arg;
	MemoryStore *store = scan->store;
	MemoryContext caller = MemoryContextSwitchTo(scan->context);
	StateEntry *entry = palloc0(sizeof(StateEntry));

	entry->key = key_read(store->keys, packed->key, packed->key_length);
	entry->expires = packed->removed ? DT_NOEND : packed->expires;
	entry->removed = packed->removed;
	if (!entry->removed && packed->value_length > 0)
		store->base.schema.value_ops->deserialize(store->base.schema.operator_private, entry, packed->value, packed->value_length,
												  scan->context);
	MemoryContextSwitchTo(caller);
	scan->callback(scan->arg, batch_id, entry);
	MemoryContextReset(scan->context);
}

void
state_scan_changes(StateStore *base, int64 from_batch, int64 to_batch, StateChangeCallback callback, void *arg)
{
	MemoryStore *store = (MemoryStore *) base;
	ChangeScan scan = {.store = store, .callback = callback, .arg = arg};

	scan.context = AllocSetContextCreate(CurrentMemoryContext, "stream state change", ALLOCSET_DEFAULT_SIZES);
	state_read_changes(&store->id, from_batch, to_batch, change_tell, &scan);
	MemoryContextDelete(scan.context);
}

int64
state_oldest_readable(StateStore *base)
{
	return state_oldest(&((MemoryStore *) base)->id);
}

/* ---- folding ---- */

bool
state_fold_due(StateStore *base)
{
	MemoryStore *store = (MemoryStore *) base;

	if (base->provider != &memory_state)
		return false;
	/* The last batch is retained anyway: a batch that changes everything need not be folded at once. */
	return !store->stale && store->folding == 0 && fold_is_due(store->changed_bytes - store->last_bytes, store->bytes);
}

int64
state_fold_work(StateStore *base)
{
	MemoryStore *store = (MemoryStore *) base;

	if (base->provider != &memory_state)
		return table_store_purge_work(base);
	return store->logged + (state_fold_due(base) ? store->bytes : 0);
}

void
state_fold_begun(StateStore *base)
{
	MemoryStore *store = (MemoryStore *) base;

	if (base->provider != &memory_state)
	{
		table_store_purging(base);
		return;
	}
	store->folding = store->changed_bytes;
	store->logged = 0;
}

bool
state_fold_ended(StateStore *base, int64 last_batch)
{
	MemoryStore *store = (MemoryStore *) base;
	bool folded;

	if (base->provider != &memory_state)
		return false;
	folded = store->folding > 0 && snapshot_newest(&store->id, last_batch) == last_batch;
	if (folded)
	{
		store->changed_bytes -= store->folding;
		store->last_bytes = Min(store->last_bytes, store->changed_bytes);
	}
	store->folding = 0;
	return folded;
}
