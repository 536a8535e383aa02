/*
 * live.c: entries in memory, without the hash that finds them.
 * Danger: after an abort the contexts are reset; whoever kept a pointer to an entry from before has nothing.
 */
#include "state/live.h"

#include "utils/memutils.h"

static int
order_compare(const pairingheap_node *a, const pairingheap_node *b, void *arg)
{
	TimestampTz left = pairingheap_const_container(StateEntry, order, a)->expires;
	TimestampTz right = pairingheap_const_container(StateEntry, order, b)->expires;

	/* The heap gives its greatest first. */
	return left < right ? 1 : (left > right ? -1 : 0);
}

void *
live_create(const StateProvider *provider, const StateSchema *schema, Size store_size, Size entry_size, Size link_offset)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "stream state", ALLOCSET_DEFAULT_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(context);
	LiveStore *store = palloc0(store_size);

	store->base.provider = provider;
	store->base.schema = *schema;
	store->id.query_id = schema->query_id;
	store->id.operator_id = schema->operator_id;
	store->id.state_name = store->base.schema.state_name = pstrdup(schema->state_name);
	store->context = context;
	store->keys = key_type_create(schema);
	store->prefixes = schema->nprefix > 0 ? prefix_index_create(schema) : NULL;
	store->link_offset = link_offset;
	store->entry_context = SlabContextCreate(context, "stream state entries", SLAB_DEFAULT_BLOCK_SIZE, entry_size);
	store->key_context = AllocSetContextCreate(context, "stream state keys", ALLOCSET_DEFAULT_SIZES);
	store->value_context = AllocSetContextCreate(context, "stream state values", ALLOCSET_DEFAULT_SIZES);
	store->member_context = AllocSetContextCreate(context, "stream state members", ALLOCSET_DEFAULT_SIZES);
	store->order = pairingheap_allocate(order_compare, NULL);
	store->load_values = palloc0(sizeof(Datum) * Max(store->keys->ncolumns, 1));
	store->load_nulls = palloc0(sizeof(bool) * Max(store->keys->ncolumns, 1));
	store->maxdirty = 256;
	store->dirty = palloc(sizeof(StateEntry *) * store->maxdirty);
	initStringInfo(&store->key_bytes);
	initStringInfo(&store->value_bytes);
	state_account_add(&store->account, context);
	MemoryContextSwitchTo(caller);
	return store;
}

void
live_clear(LiveStore *store)
{
	MemoryContextReset(store->entry_context);
	MemoryContextReset(store->key_context);
	MemoryContextReset(store->value_context);
	MemoryContextReset(store->member_context);
	pairingheap_reset(store->order);
	if (store->prefixes)
		prefix_index_clear(store->prefixes);
	store->ndirty = 0;
}

void
live_dirty_grow(LiveStore *store)
{
	store->maxdirty *= 2;
	store->dirty = repalloc_huge(store->dirty, sizeof(StateEntry *) * store->maxdirty);
}

/* ---- order ---- */

StateEntry *
live_first(LiveStore *store)
{
	return pairingheap_is_empty(store->order) ? NULL : pairingheap_container(StateEntry, order, pairingheap_first(store->order));
}

bool
live_set_expiry(LiveStore *store, StateEntry *entry, TimestampTz expires)
{
	if (entry->expires == expires)
		return false;
	if (entry->expires != DT_NOEND)
		pairingheap_remove(store->order, &entry->order);
	entry->expires = expires;
	if (expires != DT_NOEND)
		pairingheap_add(store->order, &entry->order);
	return true;
}

void
live_unlink(LiveStore *store, StateEntry *entry)
{
	(void) live_set_expiry(store, entry, DT_NOEND);
	if (store->prefixes)
		prefix_index_unlink(store->prefixes, live_link(store, entry));
	store->rows--;
	store->bytes -= entry->bytes;
}

/* ---- bytes ---- */

PackedEntry
live_pack(LiveStore *store, StateEntry *entry)
{
	const StateValueOps *ops = store->base.schema.value_ops;
	PackedEntry packed = {.removed = entry->removed, .expires = entry->expires};

	resetStringInfo(&store->key_bytes);
	key_write(store->keys, entry->key, &store->key_bytes);
	packed.key = store->key_bytes.data;
	packed.key_length = store->key_bytes.len;
	if (entry->packed)
	{
		packed.value = entry->packed;
		packed.value_length = entry->packed_length;
	}
	else if (!entry->removed && ops)
	{
		resetStringInfo(&store->value_bytes);
		ops->serialize(store->base.schema.operator_private, entry, &store->value_bytes);
		packed.value = store->value_bytes.data;
		packed.value_length = store->value_bytes.len;
	}
	return packed;
}

void
live_count_bytes(LiveStore *store, StateEntry *entry, uint32 bytes)
{
	store->bytes += (int64) bytes - entry->bytes;
	entry->bytes = bytes;
}

void
live_release_value(LiveStore *store, StateEntry *entry)
{
	if (entry->value && store->base.schema.value_ops)
		store->base.schema.value_ops->release(store->base.schema.operator_private, entry);
}

/* ---- callbacks of a provider ---- */

StateEntry *
live_scan_prefix_next(StateStore *base)
{
	LiveStore *store = (LiveStore *) base;
	dlist_node *node = store->prefix_next;

	if (store->bucket == NULL || node == &store->bucket->entries.head)
		return NULL;
	store->prefix_next = node->next;
	return live_linked(store, dlist_container(PrefixLink, node, node));
}

MemoryContext
live_value_context(StateStore *base)
{
	return ((LiveStore *) base)->value_context;
}

void
live_close(StateStore *base)
{
	MemoryContextDelete(((LiveStore *) base)->context);
}
