/*
 * table.c: the table provider: state in place, one row per entry; memory holds only what the running batch has touched.
 * get and put read an entry's row by its key's hash; flush logs what each changed row was (undo.c) and updates it; then all entries are let go of. So a start
 * reads nothing, and a batch costs what it touches. A batch that touches more than memory should hold writes and lets go in between, where the
 * operator keeps no entries (StateSchema.releasable).
 * Danger: rows are read as they are now (SnapshotSelf): right only for the one writer a query has.
 */
#include "state/table.h"

#include "access/xact.h"
#include "state/undo.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#define CACHE_LIMIT (64 * 1024 * 1024) /* what one store's entries may take; less where stream_ext.state_memory says so */
#define CHECK_EVERY 1024

/* ---- the table ---- */

void
table_store_close(TableStore *store)
{
	if (store->table)
		rows_close(store->table);
	store->table = NULL;
	store->peeked = store->expiry_open = store->expiry_done = false;
}

void
table_store_open(TableStore *store)
{
	MemoryContext caller = MemoryContextSwitchTo(store->live.context);

	store->table = rows_open(store->live.id.query_id, store->number, SnapshotSelf);
	store->table_lxid = MY_LOCAL_XID;
	MemoryContextSwitchTo(caller);
}

/* All there is, for operators that link to it. */
static void
load_all(TableStore *store)
{
	StateRow row;

	rows_scan(store->table);
	while (rows_scan_next(store->table, &row))
	{
		(void) table_store_load_row(store, &row, NULL);
		if (unlikely(++store->calls % CHECK_EVERY == 0))
			state_account_check(&store->live.id, store->live.rows);
	}
}

static void
refresh(TableStore *store)
{
	StateId *id = &store->live.id;

	table_store_clear(store);
	store->floor = store->resident ? DT_NOEND : DT_NOBEGIN;
	store->number = state_number(id->query_id, id->operator_id, id->state_name);
	store->old_hashes = store->number >= 0 && state_number_format(id->query_id, id->operator_id, id->state_name) < STATE_FORMAT;
	size_read(id, PG_INT64_MAX, &store->live.rows, &store->live.bytes);
	table_store_open(store);
	if (store->resident)
		load_all(store);
	else
		table_store_floor_find(store);
	table_store_close(store);
	store->live.stale = false;
}

/* Where all entries are in memory the table is not wanted before they are written. */
TableStore *
table_store_ready(StateStore *base)
{
	TableStore *store = (TableStore *) base;

	if (unlikely(store->live.stale))
		refresh(store);
	if (!store->resident && unlikely(!table_store_is_open(store)))
		table_store_open(store);
	return store;
}

static StateStore *
table_open_store(const StateSchema *schema, int64 batch_id)
{
	TableStore *store = live_create(&table_state, schema, sizeof(TableStore), sizeof(TableEntry), offsetof(TableEntry, link));

	store->resident = schema->resident || (schema->value_ops && schema->value_ops->linked);
	store->scan_context = AllocSetContextCreate(store->live.context, "stream state scan", ALLOCSET_DEFAULT_SIZES);
	store->batch_id = -1;
	refresh(store);
	return &store->live.base;
}

static void
table_begin(StateStore *base, int64 batch_id)
{
	TableStore *store = table_store_ready(base);

	if (unlikely(store->old_hashes))
	{
		table_store_rehash(store);
		refresh(store);
		store = table_store_ready(base);
	}
	store->batch_id = batch_id;
	store->next_chunk = -1;
	store->wrote = false;
	store->changed = 0;
	store->nwritten = 0;
}

static void
check_memory(TableStore *store)
{
	Size limit = CACHE_LIMIT;

	if (stream_state_memory_kb > 0)
		limit = Min(limit, (Size) stream_state_memory_kb * 1024 / 4);
	if (!store->live.base.schema.releasable || store->batch_id < 0 || GetCurrentTransactionNestLevel() > 1)
		state_account_check(&store->live.id, store->live.rows);
	else if (MemoryContextMemAllocated(store->live.context, true) > limit + store->maxwritten * sizeof(ItemPointerData))
		table_store_release(store);
}

void
table_store_call_counted(TableStore *store)
{
	if (unlikely(++store->calls % CHECK_EVERY == 0))
		check_memory(store);
}

/* ---- entries ---- */

static inline uint64
probe_set(TableStore *store, TupleTableSlot *key)
{
	store->live.probe_values = key->tts_values;
	store->live.probe_nulls = key->tts_isnull;
	return table_store_hash_key(store, key->tts_values, key->tts_isnull);
}

/* The row of the probe, as an entry. */
static TableEntry *
read_row(TableStore *store, uint64 hash)
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
		if (table_store_find_row(store, &row))
			continue;
		key = table_store_row_key(store, &row, store->live.key_context);
		if (key_equals(store->live.keys, key, store->live.probe_values, store->live.probe_nulls))
			return table_store_load_row(store, &row, key);
		pfree(key);
	}
	store->missed = !any;
	store->missed_hash = hash;
	return NULL;
}

static TableEntry *
find(TableStore *store, uint64 hash)
{
	TableEntry *entry = table_store_find_probe(store, hash);

	return entry ? entry : read_row(store, hash);
}

static StateEntry *
table_get(StateStore *base, TupleTableSlot *key)
{
	TableStore *store = table_store_ready(base);

	table_store_call_counted(store);
	return (StateEntry *) find(store, probe_set(store, key));
}

static void
mark_dirty(TableStore *store, StateEntry *entry)
{
	if (live_mark_dirty(&store->live, entry) && (!entry->stored || ((TableEntry *) entry)->batch_id != store->batch_id))
		store->changed++;
}

static StateEntry *
table_put(StateStore *base, TupleTableSlot *key, bool *created)
{
	TableStore *store = table_store_ready(base);
	LiveStore *live = &store->live;
	MemoryContext caller;
	TableEntry *entry;
	MinimalTuple own;
	uint64 hash;

	table_store_call_counted(store);
	hash = probe_set(store, key);
	entry = live->base.schema.unique ? NULL : find(store, hash);
	*created = entry == NULL;
	if (entry == NULL)
	{
		caller = MemoryContextSwitchTo(live->key_context);
		own = key_form(live->keys, live->probe_values, live->probe_nulls);
		MemoryContextSwitchTo(caller);
		entry = table_store_add(store, hash, own, live->probe_values, live->probe_nulls);
		live->rows++;
	}
	mark_dirty(store, &entry->base);
	return &entry->base;
}

static bool
table_expects(StateStore *base)
{
	return false;
}

static void
table_expect(StateStore *base, TupleTableSlot **keys, int n, StateUse use)
{
}

static void
table_changed(StateStore *base, StateEntry *entry)
{
	mark_dirty((TableStore *) base, entry);
}

static void
table_set_expiry(StateStore *base, StateEntry *entry, TimestampTz expires)
{
	if (live_set_expiry((LiveStore *) base, entry, expires))
		mark_dirty((TableStore *) base, entry);
}

static void
table_remove(StateStore *base, StateEntry *entry)
{
	TableStore *store = (TableStore *) base;

	mark_dirty(store, entry);
	live_unlink(&store->live, entry);
	entry->removed = true;
}

/* ---- the end of a batch ---- */

static void
table_flush(StateStore *base, int64 batch_id)
{
	TableStore *store = table_store_ready(base);

	store->batch_id = batch_id;
	table_store_write_dirty(store);
	if (!store->resident)
	{
		table_store_floor_settle(store);
		table_store_floor_find(store);
	}
	if (store->wrote)
		size_write(&store->live.id, batch_id, store->live.rows, store->live.bytes);
	table_store_close(store);
}

static void
table_committed(StateStore *base)
{
	TableStore *store = (TableStore *) base;

	store->batch_id = -1;
	store->nwritten = 0;
	if (!store->resident)
	{
		table_store_clear(store);
		return;
	}
	for (int64 i = 0; i < store->live.ndirty; i++)
	{
		StateEntry *entry = store->live.dirty[i];

		entry->dirty = false;
		if (entry->removed)
			table_store_drop_entry(store, (TableEntry *) entry);
	}
	store->live.ndirty = 0;
}

/* Called after an abort, when no table can be read. What was open went with the transaction. */
static void
table_forget(StateStore *base, int64 batch_id)
{
	TableStore *store = (TableStore *) base;

	store->table = NULL;
	store->batch_id = -1;
	store->nwritten = 0;
	table_store_clear(store);
	store->live.stale = true;
}

static StateMetrics
table_metrics(StateStore *base)
{
	TableStore *store = (TableStore *) base;
	StateMetrics metrics = {.rows = store->live.rows, .bytes = store->live.bytes, .changed = store->changed};

	return metrics;
}

static void
table_close_store(StateStore *base)
{
	TableStore *store = (TableStore *) base;

	if (table_store_is_open(store) && IsTransactionState())
		table_store_close(store);
	live_close(base);
}

const StateProvider table_state = {.name = "table",
								   .open = table_open_store,
								   .begin = table_begin,
								   .get = table_get,
								   .put = table_put,
								   .expects = table_expects,
								   .expect = table_expect,
								   .changed = table_changed,
								   .set_expiry = table_set_expiry,
								   .postpone = table_set_expiry,
								   .remove = table_remove,
								   .scan_prefix = table_store_scan_prefix,
								   .scan_prefix_next = live_scan_prefix_next,
								   .next_expired = table_store_next_expired,
								   .first_expiry = table_store_first_expiry,
								   .scan_start = table_store_scan_start,
								   .scan_next = table_store_scan_next,
								   .scan_changed = table_store_scan_changed,
								   .scan_changed_next = table_store_scan_changed_next,
								   .flush = table_flush,
								   .committed = table_committed,
								   .forget = table_forget,
								   .value_context = live_value_context,
								   .metrics = table_metrics,
								   .close = table_close_store};
