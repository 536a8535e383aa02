/*
 * memory_members.h: the hash of a store of the memory provider, for the files that look into it.
 */
#ifndef STREAM_STATE_MEMORY_MEMBERS_H
#define STREAM_STATE_MEMORY_MEMBERS_H

#include "state/memory.h"
#include "state/prefetch.h"

/* Entries of stores that are scanned by prefix. */
typedef struct LinkedEntry
{
	StateEntry entry;
	PrefixLink link;
} LinkedEntry;

static inline bool
member_matches(MemoryStore *store, StateEntry *member, StateEntry *sought)
{
	if (sought)
		return member == sought;
	return key_equals(store->live.keys, member->key, store->live.probe_values, store->live.probe_nulls);
}

/* A NULL key stands for the store's probe; a pointer for that very entry. */
#define SH_PREFIX members
#define SH_ELEMENT_TYPE HashSlot
#define SH_KEY_TYPE StateEntry *
#define SH_KEY item
#define SH_SCOPE static inline
#define SH_HASH_KEY(table, key) ((key)->hash)
#define SH_EQUAL(table, a, b) member_matches((table)->private_data, a, b)
#define SH_STORE_HASH
#define SH_GET_HASH(table, member) (member)->hash
#define SH_DECLARE
#define SH_DEFINE
#include "lib/simplehash.h"

#endif
