/*
 * live.h: what both providers hold in memory: entries, their order of expiry, their prefixes, and which of them were changed.
 * How entries are found is the provider's own.
 */
#ifndef STREAM_STATE_LIVE_H
#define STREAM_STATE_LIVE_H

#include "postgres.h"
#include "state/account.h"
#include "state/changelog.h"
#include "state/keys.h"
#include "state/prefix.h"
#include "state/store.h"

typedef struct LiveStore
{
	StateStore base;
	StateId id;
	StateAccount account;
	MemoryContext context;		  /* of the store: everything below */
	MemoryContext entry_context;  /* entries: all of one size */
	MemoryContext key_context;	  /* keys, packed values */
	MemoryContext value_context;  /* live values */
	MemoryContext member_context; /* the provider's hash */
	KeyType *keys;
	pairingheap *order;
	PrefixIndex *prefixes; /* NULL: nobody scans by prefix */
	Size link_offset;	   /* of the PrefixLink in an entry */
	const Datum *probe_values; /* the key being looked for */
	const bool *probe_nulls;
	Datum *load_values; /* a stored key, deformed */
	bool *load_nulls;
	StateEntry **dirty;
	int64 ndirty, maxdirty;
	int64 rows, bytes;
	int64 logged; /* bytes added to the log since the last purge */
	bool stale;	  /* after an abort: nothing here is known until the tables can be read again */
	StringInfoData key_bytes, value_bytes; /* scratch */
	int64 changed_at;						/* of scan_changed */
	PrefixBucket *bucket;					/* of scan_prefix; NULL: none */
	dlist_node *prefix_next;
} LiveStore;

/* A store of store_size, zeroed but for what is above; in CurrentMemoryContext. Its entries take entry_size, with a PrefixLink at link_offset. */
extern void *live_create(const StateProvider *provider, const StateSchema *schema, Size store_size, Size entry_size, Size link_offset);
/* Lets go of every entry. */
extern void live_clear(LiveStore *store);
/* Earliest expiry first; NULL: none expires. */
extern StateEntry *live_first(LiveStore *store);
/* False: it had that expiry. */
extern bool live_set_expiry(LiveStore *store, StateEntry *entry, TimestampTz expires);
/* No longer found by expiry or prefix, nor counted. */
extern void live_unlink(LiveStore *store, StateEntry *entry);
/* The entry as it will be stored, in the scratch; a removed one has no value. */
extern PackedEntry live_pack(LiveStore *store, StateEntry *entry);
extern void live_count_bytes(LiveStore *store, StateEntry *entry, uint32 bytes);
extern void live_release_value(LiveStore *store, StateEntry *entry);

/* ---- callbacks of a provider ---- */
extern StateEntry *live_scan_prefix_next(StateStore *base);
extern MemoryContext live_value_context(StateStore *base);
extern void live_close(StateStore *base);

/* Of the changed entries from changed_at on; NULL: no more. */
static inline StateEntry *
live_changed_next(LiveStore *store)
{
	while (store->changed_at < store->ndirty)
	{
		StateEntry *entry = store->dirty[store->changed_at++];

		if (!entry->removed)
			return entry;
	}
	return NULL;
}

static inline void
live_scan_bucket(LiveStore *store, PrefixBucket *bucket)
{
	store->bucket = bucket;
	store->prefix_next = bucket ? bucket->entries.head.next : NULL;
}

static inline PrefixLink *
live_link(LiveStore *store, StateEntry *entry)
{
	return (PrefixLink *) ((char *) entry + store->link_offset);
}

static inline StateEntry *
live_linked(LiveStore *store, PrefixLink *link)
{
	return (StateEntry *) ((char *) link - store->link_offset);
}

extern void live_dirty_grow(LiveStore *store);

/* False: it was marked before. */
static inline bool
live_mark_dirty(LiveStore *store, StateEntry *entry)
{
	if (entry->dirty)
		return false;
	if (unlikely(store->ndirty == store->maxdirty))
		live_dirty_grow(store);
	entry->dirty = true;
	store->dirty[store->ndirty++] = entry;
	return true;
}

#endif
