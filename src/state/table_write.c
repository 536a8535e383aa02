/*
 * table_write.c: the batch's changes into rows, and what those rows were into the undo log, once per row and batch.
 * In mid-batch too: then everything in memory is let go of, and what comes later is read again.
 */
#include "state/table.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "state/undo.h"
#include "utils/memutils.h"

/* The row's key in the undo log carries the bucket, so that a rewind finds it without knowing types. */
static void
log_undo(TableStore *store, ChunkWriter *writer, TableEntry *entry)
{
	PackedEntry packed = {.removed = true, .expires = DT_NOEND};
	StringInfo key = &store->live.key_bytes;
	StateRow row;

	if (entry->base.stored && entry->batch_id == store->batch_id)
		return; /* changed in this batch before */
	resetStringInfo(key);
	appendBinaryStringInfo(key, (const char *) &entry->hash, sizeof(uint64));
	if (entry->base.stored)
	{
		if (!rows_fetch(store->table, &entry->tid, &row))
			ereport(ERROR, (errcode(ERRCODE_DATA_CORRUPTED), errmsg("a row of the state of streaming query %lld is gone", (long long) store->live.id.query_id),
							errhint("Somebody changed stream.state_row_%lld by hand? Restore it from a backup, or start afresh with stream.reset_query().",
									(long long) store->live.id.query_id)));
		packed.removed = false;
		packed.expires = row.expires;
		packed.value = row.value;
		packed.value_length = row.value_length;
		appendBinaryStringInfo(key, row.key, row.key_length);
	}
	else
	{
		key_write(store->live.keys, entry->base.key, key);
	}
	packed.key = key->data;
	packed.key_length = key->len;
	chunk_writer_add(writer, &packed);
}

static void
write_entry(TableStore *store, TableEntry *entry)
{
	PackedEntry packed = live_pack(&store->live, &entry->base);
	StateRow row = {.tid = entry->tid,
					.hash = entry->hash,
					.batch_id = store->batch_id,
					.expires = packed.expires,
					.key = packed.key,
					.key_length = packed.key_length,
					.value = packed.value,
					.value_length = packed.value_length};

	if (entry->base.stored)
		rows_update(store->table, &row, packed.expires == entry->row_expires);
	else
		rows_insert(store->table, &row);
	live_count_bytes(&store->live, &entry->base, packed.key_length + packed.value_length);
	entry->tid = row.tid;
	entry->row_expires = packed.expires;
	entry->batch_id = store->batch_id;
	entry->base.stored = true;
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
		rows_delete(store->table, &entry->tid);
	else
		write_entry(store, entry);
}

static void
number_ready(TableStore *store)
{
	const StateId *id = &store->live.id;

	if (store->number < 0)
		store->number = state_number_assign(id->query_id, id->operator_id, id->state_name);
	rows_set_number(store->table, store->number);
}

void
table_store_write_dirty(TableStore *store)
{
	LiveStore *live = &store->live;
	MemoryContext context, caller;
	ChunkWriter *writer;

	if (live->ndirty == 0)
		return;
	if (!table_store_is_open(store))
		table_store_open(store);
	number_ready(store);
	if (store->next_chunk < 0)
		store->next_chunk = chunk_next_number(STATE_UNDO, &live->id, store->batch_id);
	context = AllocSetContextCreate(CurrentMemoryContext, "stream state write", ALLOCSET_DEFAULT_SIZES);
	caller = MemoryContextSwitchTo(context);
	qsort(live->dirty, live->ndirty, sizeof(StateEntry *), compare_writes);
	writer = chunk_writer_begin(STATE_UNDO, &live->id, store->batch_id, store->next_chunk);
	for (int64 i = 0; i < live->ndirty; i++)
		write_one(store, (TableEntry *) live->dirty[i], writer);
	store->next_chunk = chunk_writer_end(writer, false, &live->logged);
	CommandCounterIncrement();
	MemoryContextSwitchTo(caller);
	MemoryContextDelete(context);
	store->wrote = true;
}

static void
written_add(TableStore *store, ItemPointer tid)
{
	if (store->written == NULL)
	{
		store->maxwritten = 1024;
		store->written = MemoryContextAlloc(store->live.context, sizeof(ItemPointerData) * store->maxwritten);
	}
	if (store->nwritten == store->maxwritten)
	{
		store->maxwritten *= 2;
		store->written = repalloc_huge(store->written, sizeof(ItemPointerData) * store->maxwritten);
	}
	store->written[store->nwritten++] = *tid;
}

void
table_store_release(TableStore *store)
{
	table_store_write_dirty(store);
	for (int64 i = 0; i < store->live.ndirty; i++)
	{
		if (!store->live.dirty[i]->removed)
			written_add(store, &((TableEntry *) store->live.dirty[i])->tid);
	}
	table_store_floor_settle(store);
	table_store_clear(store);
}

/* ---- from another version ---- */

static uint64
row_hash(TableStore *store, const StateRow *row)
{
	LiveStore *live = &store->live;
	uint64 hash;

	key_deform(live->keys, table_store_row_key(store, row, store->scan_context), live->load_values, live->load_nulls);
	hash = table_store_hash_key(store, live->load_values, live->load_nulls);
	MemoryContextReset(store->scan_context);
	return hash;
}

/* Rows that move are met again by the scan, under their new hash. The log knows them by the old one: the past before this batch cannot be read any more. */
void
table_store_rehash(TableStore *store)
{
	const StateId *id = &store->live.id;
	bool moved = false;
	StateRow row;

	if (!table_store_is_open(store))
		table_store_open(store);
	rows_scan(store->table);
	while (rows_scan_next(store->table, &row))
	{
		uint64 hash = row_hash(store, &row);

		if (hash == row.hash)
			continue;
		row.hash = hash;
		rows_update(store->table, &row, true);
		moved = true;
	}
	table_store_close(store);
	if (moved)
		(void) undo_purge(id, PG_INT64_MAX);
	state_number_renew(id->query_id, id->operator_id, id->state_name);
	CommandCounterIncrement();
}

/* ---- from another provider ---- */

static void
import_entry(void *arg, int64 batch_id, const PackedEntry *entry)
{
	TableStore *store = arg;
	LiveStore *live = &store->live;
	StateRow row = {.batch_id = batch_id,
					.expires = entry->expires,
					.key = entry->key,
					.key_length = entry->key_length,
					.value = entry->value,
					.value_length = entry->value_length};

	CHECK_FOR_INTERRUPTS();
	row.hash = row_hash(store, &row);
	rows_insert(store->table, &row);
	live->rows++;
	live->bytes += row.key_length + row.value_length;
}

void
table_store_import(StateStore *base, int64 batch_id)
{
	TableStore *store = (TableStore *) base;

	table_store_open(store);
	number_ready(store);
	changelog_read_asof(&store->live.id, batch_id, import_entry, store);
	CommandCounterIncrement();
	table_store_close(store);
	size_write(&store->live.id, batch_id, store->live.rows, store->live.bytes);
}
