/*
 * table_entry.c: entries the running batch has touched, by key and by row.
 * A removed entry stays among them until its row is deleted: the row must not be taken for one not read yet.
 */
#include "state/table.h"

#include "common/hashfn.h"
#include "utils/memutils.h"

typedef struct Member
{
	TableEntry *entry;
	uint32 hash;
	char status;
} Member;

static TableEntry by_row, brand_new;

static inline bool
member_matches(TableStore *store, TableEntry *member, TableEntry *sought)
{
	if (sought == NULL)
		return !member->base.removed && key_equals(store->live.keys, member->base.key, store->live.probe_values, store->live.probe_nulls);
	if (sought == &by_row)
		return member->base.stored && ItemPointerEquals(&member->tid, &store->sought_tid);
	return sought != &brand_new && member == sought;
}

/* A NULL key stands for the store's probe, &by_row for the row at sought_tid, &brand_new for nothing that is there. */
#define SH_PREFIX members
#define SH_ELEMENT_TYPE Member
#define SH_KEY_TYPE TableEntry *
#define SH_KEY entry
#define SH_SCOPE static inline
#define SH_HASH_KEY(table, key) ((key)->base.hash)
#define SH_EQUAL(table, a, b) member_matches((table)->private_data, a, b)
#define SH_STORE_HASH
#define SH_GET_HASH(table, member) (member)->hash
#define SH_DECLARE
#define SH_DEFINE
#include "lib/simplehash.h"

/* With a prefix its hash comes first, so that its entries lie side by side. */
uint64
table_store_hash_key(TableStore *store, const Datum *values, const bool *nulls)
{
	KeyType *keys = store->live.keys;
	int nprefix = store->live.base.schema.nprefix;
	uint64 hash = key_hash_stored(keys, 0, nprefix > 0 ? nprefix : keys->ncolumns, values, nulls);

	if (nprefix == 0)
		return hash >> (64 - BUCKET_BITS);
	return (hash >> 32) << 16 | key_hash_stored(keys, nprefix, keys->ncolumns, values, nulls) >> 48;
}

static inline uint32
short_hash(uint64 hash)
{
	return murmurhash32((uint32) hash ^ (uint32) (hash >> 16));
}

TableEntry *
table_store_find_probe(TableStore *store, uint64 hash)
{
	Member *member = members_lookup_hash(store->members, NULL, short_hash(hash));

	return member ? member->entry : NULL;
}

TableEntry *
table_store_find_row(TableStore *store, const StateRow *row)
{
	Member *member;

	store->sought_tid = row->tid;
	member = members_lookup_hash(store->members, &by_row, short_hash(row->hash));
	return member ? member->entry : NULL;
}

TableEntry *
table_store_add(TableStore *store, uint64 hash, MinimalTuple key, const Datum *values, const bool *nulls)
{
	LiveStore *live = &store->live;
	TableEntry *entry = MemoryContextAllocZero(live->entry_context, sizeof(TableEntry));
	bool found;

	entry->base.key = key;
	entry->base.expires = DT_NOEND;
	entry->base.hash = short_hash(hash);
	entry->hash = hash;
	members_insert_hash(store->members, &brand_new, entry->base.hash, &found)->entry = entry;
	if (live->prefixes)
		prefix_index_link(live->prefixes, values, nulls, &entry->link);
	return entry;
}

/* Fills an entry from a row; what it holds comes from the context. */
static void
entry_read(TableStore *store, TableEntry *entry, const StateRow *row, MemoryContext value_context)
{
	const StateSchema *schema = &store->live.base.schema;

	entry->base.stored = true;
	entry->base.bytes = row->key_length + row->value_length;
	entry->base.expires = entry->row_expires = row->expires;
	entry->tid = row->tid;
	entry->batch_id = row->batch_id;
	if (row->value_length > 0)
		schema->value_ops->deserialize(schema->operator_private, &entry->base, row->value, row->value_length, value_context);
}

MinimalTuple
table_store_row_key(TableStore *store, const StateRow *row, MemoryContext context)
{
	MemoryContext caller = MemoryContextSwitchTo(context);
	MinimalTuple key = key_read(store->live.keys, row->key, row->key_length);

	MemoryContextSwitchTo(caller);
	return key;
}

TableEntry *
table_store_load_row(TableStore *store, const StateRow *row, MinimalTuple key)
{
	LiveStore *live = &store->live;
	TableEntry *entry;

	if (key == NULL)
		key = table_store_row_key(store, row, live->key_context);
	if (live->prefixes)
		key_deform(live->keys, key, live->load_values, live->load_nulls);
	entry = table_store_add(store, row->hash, key, live->load_values, live->load_nulls);
	entry_read(store, entry, row, live->value_context);
	if (entry->base.expires != DT_NOEND)
		pairingheap_add(live->order, &entry->base.order);
	return entry;
}

StateEntry *
table_store_scan_row(TableStore *store, const StateRow *row)
{
	memset(&store->scan_entry, 0, sizeof(TableEntry));
	store->scan_entry.base.key = table_store_row_key(store, row, store->scan_context);
	store->scan_entry.hash = row->hash;
	entry_read(store, &store->scan_entry, row, store->scan_context);
	return &store->scan_entry.base;
}

void
table_store_drop_entry(TableStore *store, TableEntry *entry)
{
	live_release_value(&store->live, &entry->base);
	members_delete_item(store->members, members_lookup_hash(store->members, entry, entry->base.hash));
	pfree(entry->base.key);
	pfree(entry);
}

void
table_store_members_start(TableStore *store)
{
	if (store->scan == NULL)
		store->scan = MemoryContextAlloc(store->live.context, sizeof(members_iterator));
	members_start_iterate(store->members, store->scan);
}

TableEntry *
table_store_members_next(TableStore *store)
{
	Member *member = members_iterate(store->members, store->scan);

	return member ? member->entry : NULL;
}

void
table_store_clear(TableStore *store)
{
	live_clear(&store->live);
	store->members = members_create(store->live.member_context, 256, store);
	store->missed = false;
	store->peeked = store->expiry_open = store->expiry_done = false;
}
