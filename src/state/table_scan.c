/*
 * table_scan.c: entries of the table provider by prefix, by expiry, and all of them: those in memory first or instead of their rows.
 */
#include "state/table.h"

#include "miscadmin.h"
#include "utils/memutils.h"

/* ---- by prefix ---- */

static void
prefix_complete(TableStore *store, PrefixBucket *bucket, const Datum *values, const bool *nulls)
{
	uint64 hash = key_hash_stored(store->live.keys, 0, store->live.base.schema.nprefix, values, nulls) >> 32 << 16;
	StateRow row;

	bucket->complete = true;
	if (store->resident)
		return;
	rows_seek(store->table, hash, hash | 0xffff);
	while (rows_seek_next(store->table, &row))
	{
		CHECK_FOR_INTERRUPTS();
		if (!table_store_find_row(store, &row))
			(void) table_store_load_row(store, &row, NULL);
	}
}

void
table_store_scan_prefix(StateStore *base, TupleTableSlot *key)
{
	TableStore *store = table_store_ready(base);
	PrefixBucket *bucket;

	table_store_call_counted(store);
	bucket = prefix_index_find(store->live.prefixes, key->tts_values, key->tts_isnull, true);
	if (!bucket->complete)
		prefix_complete(store, bucket, key->tts_values, key->tts_isnull);
	live_scan_bucket(&store->live, bucket);
}

/* ---- by expiry ---- */

/* The next row in expiry order that is not in memory; false: there is none. */
static bool
expiry_peek(TableStore *store)
{
	while (!store->expiry_done)
	{
		if (store->peeked && !table_store_find_row(store, &store->peek))
			return true;
		if (!store->expiry_open)
			rows_expiry_seek(store->table, store->floor);
		store->expiry_open = true;
		store->peeked = rows_expiry_next(store->table, &store->peek);
		store->expiry_done = !store->peeked;
	}
	return false;
}

StateEntry *
table_store_next_expired(StateStore *base, TimestampTz upto)
{
	TableStore *store = table_store_ready(base);
	StateEntry *first;

	table_store_call_counted(store);
	first = live_first(&store->live);
	if (!store->resident && expiry_peek(store) && store->peek.expires <= upto && (first == NULL || store->peek.expires < first->expires))
	{
		first = (StateEntry *) table_store_load_row(store, &store->peek, NULL);
		store->peeked = false;
	}
	return first && first->expires <= upto ? first : NULL;
}

/* Between batches: what flush found. */
TimestampTz
table_store_first_expiry(StateStore *base)
{
	TableStore *store = (TableStore *) base;
	StateEntry *first;

	if (store->live.stale)
		return DT_NOBEGIN;
	first = live_first(&store->live);
	return Min(store->floor, first ? first->expires : DT_NOEND);
}

/* What lies beyond the entries in memory begins no earlier than there. */
void
table_store_floor_settle(TableStore *store)
{
	StateEntry *first = live_first(&store->live);

	if (store->expiry_done)
		store->floor = DT_NOEND;
	else if (store->peeked)
		store->floor = store->peek.expires;
	if (first)
		store->floor = Min(store->floor, first->expires);
}

void
table_store_floor_find(TableStore *store)
{
	StateRow row;

	if (store->floor == DT_NOEND)
		return;
	rows_expiry_seek(store->table, store->floor);
	store->floor = rows_expiry_next(store->table, &row) ? row.expires : DT_NOEND;
}

/* ---- all ---- */

void
table_store_scan_start(StateStore *base)
{
	TableStore *store = table_store_ready(base);

	table_store_members_start(store);
	store->scan_members = true;
	if (!store->resident)
		rows_scan(store->table);
}

StateEntry *
table_store_scan_next(StateStore *base)
{
	TableStore *store = (TableStore *) base;
	StateRow row;

	while (store->scan_members)
	{
		TableEntry *entry = table_store_members_next(store);

		if (entry == NULL)
			store->scan_members = false;
		else if (!entry->base.removed)
			return &entry->base;
	}
	MemoryContextReset(store->scan_context);
	if (store->resident)
		return NULL;
	while (rows_scan_next(store->table, &row))
	{
		if (!table_store_find_row(store, &row))
			return table_store_scan_row(store, &row);
	}
	return NULL;
}

/* ---- what this batch changed ---- */

void
table_store_scan_changed(StateStore *base)
{
	TableStore *store = table_store_ready(base);

	store->live.changed_at = store->written_at = 0;
}

/* Those in memory, then the rows written in mid-batch that are still the newest of theirs. */
StateEntry *
table_store_scan_changed_next(StateStore *base)
{
	TableStore *store = (TableStore *) base;
	StateEntry *changed = live_changed_next(&store->live);
	StateRow row;

	if (changed)
		return changed;
	MemoryContextReset(store->scan_context);
	while (store->written_at < store->nwritten)
	{
		TableEntry *entry;

		if (!rows_fetch(store->table, &store->written[store->written_at++], &row))
			continue;
		entry = table_store_find_row(store, &row);
		if (entry == NULL)
			return table_store_scan_row(store, &row);
		if (!entry->base.dirty)
			return &entry->base;
	}
	return NULL;
}
