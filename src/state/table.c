/*
 * table.c: the table provider: state in place, one row per entry; memory holds only what the running batch has touched.
 * get and put read an entry's row by its key's hash; flush logs what each changed row was (undo.c) and updates it; then all entries are let go of. So a start
 * reads nothing, and a batch costs what it touches. A batch that touches more than memory should hold writes and lets go in between, where the
 * operator keeps no entries (StateSchema.releasable).
 * Danger: rows are read as they are now (SnapshotSelf): right only for the one writer a query has.
 */
#include "state/table.h"

#include "access/xact.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "state/account.h"
#include "state/keys.h"
#include "state/prefix.h"
#include "state/undo.h"
#include "storage/proc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#define CACHE_LIMIT (64 * 1024 * 1024) /* what one store's entries may take; less where stream_ext.state_memory says so */
#define CHECK_EVERY 1024

typedef struct TableEntry
{
	StateEntry base; /* stored: tid is its row; dirty, removed as usual */
	uint64 hash;
	ItemPointerData tid;
	int64 batch_id; /* that wrote the row */
	TimestampTz row_expires;
	PrefixLink link;
} TableEntry;

typedef struct Member
{
	TableEntry *entry;
	uint32 hash;
	char status;
} Member;

typedef struct TableStore TableStore;

static inline bool member_matches(TableStore *store, TableEntry *member, TableEntry *sought);

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
#include "util/compat.h"

struct TableStore
{
	StateStore base;
	StateId id;
	StateAccount account;
	MemoryContext context; /* of the store: everything below */
	MemoryContext entry_context, key_context, value_context, member_context, batch_context;
	KeyType *keys;
	members_hash *members;
	pairingheap *order;
	PrefixIndex *prefixes;
	const Datum *probe_values;
	const bool *probe_nulls;
	ItemPointerData sought_tid;
	Datum *load_values;
	bool *load_nulls;
	TableEntry **dirty;
	int64 ndirty, maxdirty;
	int64 rows, bytes, changed;
	int64 logged; /* bytes of the undo log since the last purge */
	int64 calls;
	bool missed; /* the last get found no row at all under that hash */
	uint64 missed_hash;
	/* of the running batch */
	int64 batch_id;
	StateRows *table; /* NULL: not open */
	LocalTransactionId table_lxid; /* the transaction it is open in: what one that ended without flush had open went with it */
	int number; /* -1: not known, or none yet */
	bool wrote;
	int next_chunk; /* of the undo log; -1: not known */
	ItemPointerData *written; /* rows written in mid-batch */
	int64 nwritten, maxwritten;
	/* expiry order: rows before floor are in memory, or do not exist */
	TimestampTz floor;
	bool expiry_open, peeked, expiry_done;
	StateRow peek;
	/* scans */
	bool resident; /* linked: all entries are in memory, always */
	members_iterator scan;
	bool scan_members;
	int64 changed_at, written_at;
	TableEntry scan_entry;
	MemoryContext scan_context;
	PrefixBucket *prefix;
	dlist_node *prefix_next;
	/* after an abort nothing here is known until the tables can be read again */
	bool stale;
	StringInfoData key_bytes, value_bytes;
};

static TableEntry by_row, brand_new;

static inline bool
member_matches(TableStore *store, TableEntry *member, TableEntry *sought)
{
	if (sought == NULL)
		return !member->base.removed && key_equals(store->keys, member->base.key, store->probe_values, store->probe_nulls);
	if (sought == &by_row)
		return member->base.stored && ItemPointerEquals(&member->tid, &store->sought_tid);
	return sought != &brand_new && member == sought;
}

static int
order_compare(const pairingheap_node *a, const pairingheap_node *b, void *arg)
{
	TimestampTz left = pairingheap_const_container(StateEntry, order, a)->expires;
	TimestampTz right = pairingheap_const_container(StateEntry, order, b)->expires;

	/* The heap gives its greatest first. */
	return left < right ? 1 : (left > right ? -1 : 0);
}

/* ---- keys ---- */

/* With a prefix its hash comes first, so that its entries lie side by side. */
static uint64
hash_key(TableStore *store, const Datum *values, const bool *nulls)
{
	int nprefix = store->base.schema.nprefix;
	uint64 hash = key_hash_stored(store->keys, 0, nprefix > 0 ? nprefix : store->keys->ncolumns, values, nulls);

	if (nprefix == 0)
		return hash >> (64 - BUCKET_BITS);
	return (hash >> 32) << 16 | key_hash_stored(store->keys, nprefix, store->keys->ncolumns, values, nulls) >> 48;
}

static inline uint32
short_hash(uint64 hash)
{
	return murmurhash32((uint32) hash ^ (uint32) (hash >> 16));
}

static inline uint64
probe_set(TableStore *store, TupleTableSlot *key)
{
	store->probe_values = key->tts_values;
	store->probe_nulls = key->tts_isnull;
	return hash_key(store, key->tts_values, key->tts_isnull);
}

/* ---- entries in memory ---- */

static void
memory_clear(TableStore *store)
{
	MemoryContextReset(store->entry_context);
	MemoryContextReset(store->key_context);
	MemoryContextReset(store->value_context);
	MemoryContextReset(store->member_context);
	store->members = members_create(store->member_context, 256, store);
	pairingheap_reset(store->order);
	if (store->prefixes)
		prefix_index_clear(store->prefixes);
	store->ndirty = 0;
	store->missed = false;
	store->peeked = store->expiry_open = store->expiry_done = false;
}

static TableEntry *
entry_add(TableStore *store, uint64 hash, MinimalTuple key, const Datum *values, const bool *nulls)
{
	TableEntry *entry = MemoryContextAllocZero(store->entry_context, sizeof(TableEntry));
	bool found;

	entry->base.key = key;
	entry->base.expires = DT_NOEND;
	entry->base.hash = short_hash(hash);
	entry->hash = hash;
	members_insert_hash(store->members, &brand_new, entry->base.hash, &found)->entry = entry;
	if (store->prefixes)
		prefix_index_link(store->prefixes, values, nulls, &entry->link);
	return entry;
}

static TableEntry *
entry_of_row(TableStore *store, const StateRow *row)
{
	Member *member;

	store->sought_tid = row->tid;
	member = members_lookup_hash(store->members, &by_row, short_hash(row->hash));
	return member ? member->entry : NULL;
}

/* Fills an entry from a row; its memory comes from the two contexts. */
static void
entry_read(TableStore *store, TableEntry *entry, const StateRow *row, MemoryContext value_context)
{
	entry->base.stored = true;
	entry->base.bytes = row->key_length + row->value_length;
	entry->base.expires = entry->row_expires = row->expires;
	entry->tid = row->tid;
	entry->batch_id = row->batch_id;
	if (row->value_length > 0)
		store->base.schema.value_ops->deserialize(store->base.schema.operator_private, &entry->base, row->value, row->value_length, value_context);
}

static MinimalTuple
row_key(TableStore *store, const StateRow *row, MemoryContext context)
{
	MemoryContext caller = MemoryContextSwitchTo(context);
	MinimalTuple key = key_read(store->keys, row->key, row->key_length);

	MemoryContextSwitchTo(caller);
	return key;
}

/* A row that is not in memory becomes an entry. key: its key, read already, NULL: not yet. */
static TableEntry *
entry_load(TableStore *store, const StateRow *row, MinimalTuple key)
{
	TableEntry *entry;

	if (key == NULL)
		key = row_key(store, row, store->key_context);
	if (store->prefixes)
		key_deform(store->keys, key, store->load_values, store->load_nulls);
	entry = entry_add(store, row->hash, key, store->load_values, store->load_nulls);
	entry_read(store, entry, row, store->value_context);
	if (entry->base.expires != DT_NOEND)
		pairingheap_add(store->order, &entry->base.order);
	return entry;
}

/* ---- the table ---- */

static void
sizes_read(TableStore *store)
{
	store->number = state_number(store->id.query_id, store->id.operator_id, store->id.state_name);
	size_read(&store->id, PG_INT64_MAX, &store->rows, &store->bytes);
}

static void
table_close(TableStore *store)
{
	if (store->table)
		rows_close(store->table);
	store->table = NULL;
	store->peeked = store->expiry_open = store->expiry_done = false;
}

static void
table_open(TableStore *store)
{
	MemoryContext caller = MemoryContextSwitchTo(store->context);

	store->table = rows_open(store->id.query_id, store->number, SnapshotSelf);
	store->table_lxid = MY_LOCAL_XID;
	MemoryContextSwitchTo(caller);
}

/* Where the rows now begin in expiry order: exactly, so that a wake-up by time does not come for nothing. */
static void
floor_find(TableStore *store)
{
	StateRow row;

	if (store->floor == DT_NOEND)
		return;
	rows_expiry_seek(store->table, store->floor);
	store->floor = rows_expiry_next(store->table, &row) ? row.expires : DT_NOEND;
}

/* All there is, for operators that link to it. */
static void
load_all(TableStore *store)
{
	StateRow row;

	table_open(store);
	rows_scan(store->table);
	while (rows_scan_next(store->table, &row))
	{
		(void) entry_load(store, &row, NULL);
		if (unlikely(++store->calls % CHECK_EVERY == 0))
			state_account_check(&store->id, store->rows);
	}
	table_close(store);
}

static void
refresh(TableStore *store)
{
	memory_clear(store);
	store->floor = store->resident ? DT_NOEND : DT_NOBEGIN;
	sizes_read(store);
	if (store->resident)
		load_all(store);
	else
	{
		table_open(store);
		floor_find(store);
		table_close(store);
	}
	store->stale = false;
}

/* Entries can be looked for. Where all are in memory the table is not wanted before they are written. */
static inline TableStore *
table_ready(StateStore *base)
{
	TableStore *store = (TableStore *) base;

	if (unlikely(store->stale))
		refresh(store);
	if (!store->resident && unlikely(store->table == NULL || store->table_lxid != MY_LOCAL_XID))
		table_open(store);
	return store;
}

static StateStore *
table_open_store(const StateSchema *schema, int64 batch_id)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "stream state", ALLOCSET_DEFAULT_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(context);
	TableStore *store = palloc0(sizeof(TableStore));

	store->base.provider = &table_state;
	store->base.schema = *schema;
	store->id.query_id = schema->query_id;
	store->id.operator_id = schema->operator_id;
	store->id.state_name = pstrdup(schema->state_name);
	store->base.schema.state_name = store->id.state_name;
	store->context = context;
	store->keys = key_type_create(schema);
	store->prefixes = schema->nprefix > 0 ? prefix_index_create(schema) : NULL;
	store->resident = schema->resident || (schema->value_ops && schema->value_ops->linked);
	store->entry_context = AllocSetContextCreate(context, "stream state entries", ALLOCSET_DEFAULT_SIZES);
	store->key_context = AllocSetContextCreate(context, "stream state keys", ALLOCSET_DEFAULT_SIZES);
	store->value_context = AllocSetContextCreate(context, "stream state values", ALLOCSET_DEFAULT_SIZES);
	store->member_context = AllocSetContextCreate(context, "stream state members", ALLOCSET_DEFAULT_SIZES);
	store->scan_context = AllocSetContextCreate(context, "stream state scan", ALLOCSET_DEFAULT_SIZES);
	store->order = pairingheap_allocate(order_compare, NULL);
	store->load_values = palloc0(sizeof(Datum) * Max(store->keys->ncolumns, 1));
	store->load_nulls = palloc0(sizeof(bool) * Max(store->keys->ncolumns, 1));
	store->maxdirty = 256;
	store->dirty = palloc(sizeof(TableEntry *) * store->maxdirty);
	store->batch_id = -1;
	initStringInfo(&store->key_bytes);
	initStringInfo(&store->value_bytes);
	state_account_add(&store->account, context);
	refresh(store);
	MemoryContextSwitchTo(caller);
	return &store->base;
}

static void
table_begin(StateStore *base, int64 batch_id)
{
	TableStore *store = table_ready(base);

	store->batch_id = batch_id;
	store->next_chunk = -1;
	store->wrote = false;
	store->changed = 0;
	store->nwritten = 0;
}

/* ---- writing ---- */

/* The row's key in the undo log carries the bucket, so that a rewind finds it without knowing types. */
static void
log_undo(TableStore *store, ChunkWriter *writer, TableEntry *entry)
{
	PackedEntry packed = {.removed = true, .expires = DT_NOEND};
	StateRow row;

	if (entry->base.stored && entry->batch_id == store->batch_id)
		return; /* changed in this batch before */
	resetStringInfo(&store->value_bytes);
	appendBinaryStringInfo(&store->value_bytes, (const char *) &entry->hash, sizeof(uint64));
	if (entry->base.stored)
	{
		if (!rows_fetch(store->table, &entry->tid, &row))
			ereport(ERROR, (errcode(ERRCODE_DATA_CORRUPTED), errmsg("a row of the state of streaming query %lld is gone", (long long) store->id.query_id),
							errhint("Somebody changed stream.state_row_%lld by hand? Restore it from a backup, or start afresh with stream.reset_query().",
									(long long) store->id.query_id)));
		packed.removed = false;
		packed.expires = row.expires;
		packed.value = row.value;
		packed.value_length = row.value_length;
		appendBinaryStringInfo(&store->value_bytes, row.key, row.key_length);
	}
	else
	{
		key_write(store->keys, entry->base.key, &store->value_bytes);
	}
	packed.key = store->value_bytes.data;
	packed.key_length = store->value_bytes.len;
	chunk_writer_add(writer, &packed);
}

static void
write_entry(TableStore *store, TableEntry *entry)
{
	StateRow row = {.tid = entry->tid, .hash = entry->hash, .batch_id = store->batch_id, .expires = entry->base.expires};

	resetStringInfo(&store->key_bytes);
	key_write(store->keys, entry->base.key, &store->key_bytes);
	resetStringInfo(&store->value_bytes);
	if (store->base.schema.value_ops)
		store->base.schema.value_ops->serialize(store->base.schema.operator_private, &entry->base, &store->value_bytes);
	row.key = store->key_bytes.data;
	row.key_length = store->key_bytes.len;
	row.value = store->value_bytes.data;
	row.value_length = store->value_bytes.len;
	if (entry->base.stored)
		rows_update(store->table, &row, entry->base.expires == entry->row_expires);
	else
		rows_insert(store->table, &row);
	store->bytes -= entry->base.bytes;
	entry->base.bytes = row.key_length + row.value_length;
	store->bytes += entry->base.bytes;
	entry->tid = row.tid;
}

/* Rows to go, rows to update in the order they lie in, rows to add in the order of the index. */
static int
write_class(const TableEntry *entry)
{
	return entry->base.removed ? 0 : entry->base.stored ? 1 : 2;
}

static int
compare_writes(const void *a, const void *b)
{
	TableEntry *left = *(TableEntry *const *) a, *right = *(TableEntry *const *) b;
	int difference = write_class(left) - write_class(right);

	if (difference != 0)
		return difference;
	if (left->base.stored)
		return ItemPointerCompare(&left->tid, &right->tid);
	return left->hash < right->hash ? -1 : left->hash > right->hash;
}

static void
write_one(TableStore *store, TableEntry *entry, ChunkWriter *writer)
{
	CHECK_FOR_INTERRUPTS();
	if (entry->base.removed && !entry->base.stored)
		return;
	log_undo(store, writer, entry);
	if (entry->base.removed)
	{
		rows_delete(store->table, &entry->tid);
		return;
	}
	write_entry(store, entry);
	entry->row_expires = entry->base.expires;
	entry->batch_id = store->batch_id;
	entry->base.stored = true;
}

static void
number_ready(TableStore *store)
{
	if (store->number < 0)
		store->number = state_number_assign(store->id.query_id, store->id.operator_id, store->id.state_name);
	rows_set_number(store->table, store->number);
}

static void
write_dirty(TableStore *store)
{
	MemoryContext context, caller;
	ChunkWriter *writer;
	int64 bytes = 0;

	if (store->ndirty == 0)
		return;
	if (store->table == NULL || store->table_lxid != MY_LOCAL_XID)
		table_open(store);
	number_ready(store);
	if (store->next_chunk < 0)
		store->next_chunk = chunk_next_number(STATE_UNDO, &store->id, store->batch_id);
	context = AllocSetContextCreate(CurrentMemoryContext, "stream state write", ALLOCSET_DEFAULT_SIZES);
	caller = MemoryContextSwitchTo(context);
	qsort(store->dirty, store->ndirty, sizeof(TableEntry *), compare_writes);
	writer = chunk_writer_begin(STATE_UNDO, &store->id, store->batch_id, store->next_chunk);
	for (int64 i = 0; i < store->ndirty; i++)
		write_one(store, store->dirty[i], writer);
	store->next_chunk = chunk_writer_end(writer, false, &bytes);
	CommandCounterIncrement();
	MemoryContextSwitchTo(caller);
	MemoryContextDelete(context);
	store->logged += bytes;
	store->wrote = true;
}

/* What lies beyond the entries in memory begins no earlier than there. */
static void
floor_settle(TableStore *store)
{
	TimestampTz first = DT_NOEND;

	if (store->expiry_done)
		store->floor = DT_NOEND;
	else if (store->peeked)
		store->floor = store->peek.expires;
	if (!pairingheap_is_empty(store->order))
		first = pairingheap_container(StateEntry, order, pairingheap_first(store->order))->expires;
	store->floor = Min(store->floor, first);
}

static void
written_add(TableStore *store, ItemPointer tid)
{
	if (store->written == NULL)
	{
		store->maxwritten = 1024;
		store->written = MemoryContextAlloc(store->context, sizeof(ItemPointerData) * store->maxwritten);
	}
	if (store->nwritten == store->maxwritten)
	{
		store->maxwritten *= 2;
		store->written = repalloc_huge(store->written, sizeof(ItemPointerData) * store->maxwritten);
	}
	store->written[store->nwritten++] = *tid;
}

/* In mid-batch: writes what changed and lets go of everything. */
static void
release(TableStore *store)
{
	write_dirty(store);
	for (int64 i = 0; i < store->ndirty; i++)
	{
		if (!store->dirty[i]->base.removed)
			written_add(store, &store->dirty[i]->tid);
	}
	floor_settle(store);
	memory_clear(store);
}

static void
check_memory(TableStore *store)
{
	Size limit = CACHE_LIMIT;

	if (stream_state_memory_kb > 0)
		limit = Min(limit, (Size) stream_state_memory_kb * 1024 / 4);
	if (!store->base.schema.releasable || store->batch_id < 0 || GetCurrentTransactionNestLevel() > 1)
		state_account_check(&store->id, store->rows);
	else if (MemoryContextMemAllocated(store->context, true) > limit + store->maxwritten * sizeof(ItemPointerData))
		release(store);
}

static inline void
call_counted(TableStore *store)
{
	if (unlikely(++store->calls % CHECK_EVERY == 0))
		check_memory(store);
}

/* ---- the provider ---- */

/* The row of the probe, as an entry. */
static TableEntry *
find_row(TableStore *store, uint64 hash)
{
	StateRow row;
	bool any = false;

	if (store->resident || (store->missed && store->missed_hash == hash))
		return NULL;
	rows_seek(store->table, hash, hash);
	while (rows_seek_next(store->table, &row))
	{
		MinimalTuple key;

		any = true;
		if (entry_of_row(store, &row))
			continue;
		key = row_key(store, &row, store->key_context);
		if (key_equals(store->keys, key, store->probe_values, store->probe_nulls))
			return entry_load(store, &row, key);
		pfree(key);
	}
	store->missed = !any;
	store->missed_hash = hash;
	return NULL;
}

static TableEntry *
find(TableStore *store, uint64 hash)
{
	Member *member = members_lookup_hash(store->members, NULL, short_hash(hash));

	return member ? member->entry : find_row(store, hash);
}

static StateEntry *
table_get(StateStore *base, TupleTableSlot *key)
{
	TableStore *store = table_ready(base);

	call_counted(store);
	return (StateEntry *) find(store, probe_set(store, key));
}

static inline void
mark_dirty(TableStore *store, StateEntry *entry)
{
	if (entry->dirty)
		return;
	if (store->ndirty == store->maxdirty)
	{
		store->maxdirty *= 2;
		store->dirty = repalloc_huge(store->dirty, sizeof(TableEntry *) * store->maxdirty);
	}
	entry->dirty = true;
	store->dirty[store->ndirty++] = (TableEntry *) entry;
	if (!entry->stored || ((TableEntry *) entry)->batch_id != store->batch_id)
		store->changed++;
}

static StateEntry *
table_put(StateStore *base, TupleTableSlot *key, bool *created)
{
	TableStore *store = table_ready(base);
	MemoryContext caller;
	TableEntry *entry;
	MinimalTuple own;
	uint64 hash;

	call_counted(store);
	hash = probe_set(store, key);
	entry = find(store, hash);
	*created = entry == NULL;
	if (entry == NULL)
	{
		caller = MemoryContextSwitchTo(store->key_context);
		own = key_form(store->keys, store->probe_values, store->probe_nulls);
		MemoryContextSwitchTo(caller);
		entry = entry_add(store, hash, own, store->probe_values, store->probe_nulls);
		store->rows++;
	}
	mark_dirty(store, &entry->base);
	return &entry->base;
}

static void
table_changed(StateStore *base, StateEntry *entry)
{
	mark_dirty((TableStore *) base, entry);
}

static void
table_set_expiry(StateStore *base, StateEntry *entry, TimestampTz expires)
{
	TableStore *store = (TableStore *) base;

	if (entry->expires == expires)
		return;
	if (entry->expires != DT_NOEND)
		pairingheap_remove(store->order, &entry->order);
	entry->expires = expires;
	if (expires != DT_NOEND)
		pairingheap_add(store->order, &entry->order);
	mark_dirty(store, entry);
}

/* A removed entry stays among the members until its row is deleted: the row must not be taken for one not read yet. */
static void
table_remove(StateStore *base, StateEntry *entry)
{
	TableStore *store = (TableStore *) base;

	mark_dirty(store, entry);
	if (entry->expires != DT_NOEND)
		pairingheap_remove(store->order, &entry->order);
	if (store->prefixes)
		prefix_index_unlink(store->prefixes, &((TableEntry *) entry)->link);
	entry->expires = DT_NOEND;
	entry->removed = true;
	store->rows--;
	store->bytes -= entry->bytes;
}

/* ---- by prefix ---- */

static void
prefix_complete(TableStore *store, PrefixBucket *bucket, const Datum *values, const bool *nulls)
{
	uint64 hash = key_hash_stored(store->keys, 0, store->base.schema.nprefix, values, nulls) >> 32 << 16;
	StateRow row;

	bucket->complete = true;
	if (store->resident)
		return;
	rows_seek(store->table, hash, hash | 0xffff);
	while (rows_seek_next(store->table, &row))
	{
		CHECK_FOR_INTERRUPTS();
		if (!entry_of_row(store, &row))
			(void) entry_load(store, &row, NULL);
	}
}

static void
table_scan_prefix(StateStore *base, TupleTableSlot *key)
{
	TableStore *store = table_ready(base);

	call_counted(store);
	store->prefix = prefix_index_find(store->prefixes, key->tts_values, key->tts_isnull, true);
	if (!store->prefix->complete)
		prefix_complete(store, store->prefix, key->tts_values, key->tts_isnull);
	store->prefix_next = store->prefix->entries.head.next;
	if (store->prefix_next == NULL)
		store->prefix_next = &store->prefix->entries.head;
}

static StateEntry *
table_scan_prefix_next(StateStore *base)
{
	TableStore *store = (TableStore *) base;
	dlist_node *node = store->prefix_next;

	if (node == &store->prefix->entries.head)
		return NULL;
	store->prefix_next = node->next;
	return &dlist_container(TableEntry, link.node, node)->base;
}

/* ---- by expiry ---- */

/* The next row in expiry order that is not in memory; false: there is none. */
static bool
expiry_peek(TableStore *store)
{
	while (!store->expiry_done)
	{
		if (store->peeked && !entry_of_row(store, &store->peek))
			return true;
		if (!store->expiry_open)
			rows_expiry_seek(store->table, store->floor);
		store->expiry_open = true;
		store->peeked = rows_expiry_next(store->table, &store->peek);
		store->expiry_done = !store->peeked;
	}
	return false;
}

static StateEntry *
order_first(TableStore *store)
{
	return pairingheap_is_empty(store->order) ? NULL : pairingheap_container(StateEntry, order, pairingheap_first(store->order));
}

static StateEntry *
table_next_expired(StateStore *base, TimestampTz upto)
{
	TableStore *store = table_ready(base);
	StateEntry *first;

	call_counted(store);
	first = order_first(store);
	if (!store->resident && expiry_peek(store) && store->peek.expires <= upto && (first == NULL || store->peek.expires < first->expires))
	{
		first = (StateEntry *) entry_load(store, &store->peek, NULL);
		store->peeked = false;
	}
	return first && first->expires <= upto ? first : NULL;
}

/* Between batches: what flush found. */
static TimestampTz
table_first_expiry(StateStore *base)
{
	TableStore *store = (TableStore *) base;
	StateEntry *first;

	if (store->stale)
		return DT_NOBEGIN;
	first = order_first(store);
	return Min(store->floor, first ? first->expires : DT_NOEND);
}

/* ---- scans ---- */

/* The row as an entry that lives until the next one. */
static StateEntry *
scan_row(TableStore *store, const StateRow *row)
{
	memset(&store->scan_entry, 0, sizeof(TableEntry));
	store->scan_entry.base.key = row_key(store, row, store->scan_context);
	store->scan_entry.hash = row->hash;
	entry_read(store, &store->scan_entry, row, store->scan_context);
	return &store->scan_entry.base;
}

static void
table_scan_start(StateStore *base)
{
	TableStore *store = table_ready(base);

	members_start_iterate(store->members, &store->scan);
	store->scan_members = true;
	if (!store->resident)
		rows_scan(store->table);
}

static StateEntry *
table_scan_next(StateStore *base)
{
	TableStore *store = (TableStore *) base;
	StateRow row;

	while (store->scan_members)
	{
		Member *member = members_iterate(store->members, &store->scan);

		if (member == NULL)
			store->scan_members = false;
		else if (!member->entry->base.removed)
			return &member->entry->base;
	}
	MemoryContextReset(store->scan_context);
	if (store->resident)
		return NULL;
	while (rows_scan_next(store->table, &row))
	{
		if (!entry_of_row(store, &row))
			return scan_row(store, &row);
	}
	return NULL;
}

static void
table_scan_changed(StateStore *base)
{
	TableStore *store = table_ready(base);

	store->changed_at = store->written_at = 0;
}

/* Those in memory, then the rows written in mid-batch that are still the newest of theirs. */
static StateEntry *
table_scan_changed_next(StateStore *base)
{
	TableStore *store = (TableStore *) base;
	StateRow row;

	while (store->changed_at < store->ndirty)
	{
		TableEntry *entry = store->dirty[store->changed_at++];

		if (!entry->base.removed)
			return &entry->base;
	}
	MemoryContextReset(store->scan_context);
	while (store->written_at < store->nwritten)
	{
		TableEntry *entry;

		if (!rows_fetch(store->table, &store->written[store->written_at++], &row))
			continue;
		entry = entry_of_row(store, &row);
		if (entry == NULL)
			return scan_row(store, &row);
		if (!entry->base.dirty)
			return &entry->base;
	}
	return NULL;
}

/* ---- the end of a batch ---- */

static void
table_flush(StateStore *base, int64 batch_id)
{
	TableStore *store = table_ready(base);

	store->batch_id = batch_id;
	write_dirty(store);
	if (!store->resident)
	{
		floor_settle(store);
		floor_find(store);
	}
	if (store->wrote)
		size_write(&store->id, batch_id, store->rows, store->bytes);
	table_close(store);
}

static void
entry_free(TableStore *store, TableEntry *entry)
{
	if (entry->base.value && store->base.schema.value_ops)
		store->base.schema.value_ops->release(store->base.schema.operator_private, &entry->base);
	members_delete_item(store->members, members_lookup_hash(store->members, entry, entry->base.hash));
	pfree(entry->base.key);
	pfree(entry);
}

static void
table_committed(StateStore *base)
{
	TableStore *store = (TableStore *) base;

	store->batch_id = -1;
	store->nwritten = 0;
	if (!store->resident)
	{
		memory_clear(store);
		return;
	}
	for (int64 i = 0; i < store->ndirty; i++)
	{
		TableEntry *entry = store->dirty[i];

		entry->base.dirty = false;
		if (entry->base.removed)
			entry_free(store, entry);
	}
	store->ndirty = 0;
}

/* Called after an abort, when no table can be read. What was open went with the transaction. */
static void
table_forget(StateStore *base, int64 batch_id)
{
	TableStore *store = (TableStore *) base;

	store->table = NULL;
	store->batch_id = -1;
	store->nwritten = 0;
	memory_clear(store);
	store->stale = true;
}

static MemoryContext
table_value_context(StateStore *base)
{
	return ((TableStore *) base)->value_context;
}

static StateMetrics
table_metrics(StateStore *base)
{
	TableStore *store = (TableStore *) base;
	StateMetrics metrics = {.rows = store->rows, .bytes = store->bytes, .changed = store->changed};

	return metrics;
}

static void
table_close_store(StateStore *base)
{
	TableStore *store = (TableStore *) base;

	if (store->table && store->table_lxid == MY_LOCAL_XID && IsTransactionState())
		table_close(store);
	MemoryContextDelete(store->context);
}

const StateProvider table_state = {.name = "table",
								   .open = table_open_store,
								   .begin = table_begin,
								   .get = table_get,
								   .put = table_put,
								   .changed = table_changed,
								   .set_expiry = table_set_expiry,
								   .remove = table_remove,
								   .scan_prefix = table_scan_prefix,
								   .scan_prefix_next = table_scan_prefix_next,
								   .next_expired = table_next_expired,
								   .first_expiry = table_first_expiry,
								   .scan_start = table_scan_start,
								   .scan_next = table_scan_next,
								   .scan_changed = table_scan_changed,
								   .scan_changed_next = table_scan_changed_next,
								   .flush = table_flush,
								   .committed = table_committed,
								   .forget = table_forget,
								   .value_context = table_value_context,
								   .metrics = table_metrics,
								   .close = table_close_store};

/* ---- from another provider ---- */

static void
import_entry(void *arg, int64 batch_id, const PackedEntry *entry)
{
	TableStore *store = arg;
	StateRow row = {.batch_id = batch_id,
					.expires = entry->expires,
					.key = entry->key,
					.key_length = entry->key_length,
					.value = entry->value,
					.value_length = entry->value_length};

	CHECK_FOR_INTERRUPTS();
	key_deform(store->keys, row_key(store, &row, store->scan_context), store->load_values, store->load_nulls);
	row.hash = hash_key(store, store->load_values, store->load_nulls);
	rows_insert(store->table, &row);
	store->rows++;
	store->bytes += row.key_length + row.value_length;
	MemoryContextReset(store->scan_context);
}

void
table_store_import(StateStore *base, int64 batch_id)
{
	TableStore *store = (TableStore *) base;

	table_open(store);
	number_ready(store);
	changelog_read_asof(&store->id, batch_id, import_entry, store);
	CommandCounterIncrement();
	table_close(store);
	size_write(&store->id, batch_id, store->rows, store->bytes);
}

/* ---- housekeeping ---- */

int64
table_store_purge_work(StateStore *base)
{
	return ((TableStore *) base)->logged;
}

void
table_store_purging(StateStore *base)
{
	((TableStore *) base)->logged = 0;
}
