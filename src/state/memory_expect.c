/*
 * memory_expect.c: keys told ahead: what belongs to them is on its way into the processor's caches when it is asked for.
 *
 * From a key to its value lead four or five pointers, and in a big state each of them is a trip to memory. Here they are followed for all keys at
 * once, step by step: the trips of a step overlap. Nothing is compared, so a wrong entry may be fetched; nothing depends on it.
 */
#include "state/memory_members.h"

#ifdef STREAM_FAILPOINTS
#define FAR_ROWS 5 /* tests go both ways */
#else
#define FAR_ROWS 32768 /* fewer entries stay near enough: copies of rows would cost more than the trips */
#endif
#define SCANNED_AHEAD 4 /* entries of a prefix */

bool
memory_expects(StateStore *base)
{
	LiveStore *store = (LiveStore *) base;

	return store->rows >= (store->prefixes ? FAR_ROWS / 4 : FAR_ROWS); /* to a row by its prefix the way is longer */
}

static void
entries_expect(StateEntry **entries, int n, Size size)
{
	const void *values[STATE_EXPECT_MAX];

	for (int i = 0; i < n; i++)
	{
		if (entries[i])
			prefetch_range(entries[i], size);
	}
	for (int i = 0; i < n; i++)
	{
		values[i] = entries[i] == NULL ? NULL : entries[i]->value ? entries[i]->value : entries[i]->packed;
		__builtin_prefetch(values[i]);
	}
	prefetch_settle(values, n);
}

static void
keys_expect(MemoryStore *store, TupleTableSlot **keys, int n, StateUse use)
{
	StateEntry *entries[STATE_EXPECT_MAX];
	const void *own[STATE_EXPECT_MAX];
	uint32 hashes[STATE_EXPECT_MAX];

	for (int i = 0; i < n; i++)
	{
		hashes[i] = key_hash(store->live.keys, keys[i]->tts_values, keys[i]->tts_isnull);
		__builtin_prefetch(&store->members->data[hashes[i] & store->members->sizemask], 1);
	}
	for (int i = 0; i < n; i++)
		entries[i] = hash_guess(store->members->data, store->members->sizemask, hashes[i]);
	if (use == STATE_USE_NEW)
		return;
	entries_expect(entries, n, sizeof(StateEntry));
	for (int i = 0; i < n; i++)
	{
		own[i] = entries[i] ? entries[i]->key : NULL;
		__builtin_prefetch(own[i]);
	}
	prefetch_settle(own, n);
}

/* Of each key the oldest entries: those a scan comes to first. */
static void
scans_expect(LiveStore *live, TupleTableSlot **keys, int n)
{
	StateEntry *entries[STATE_EXPECT_MAX];
	PrefixLink *links[STATE_EXPECT_MAX];

	prefix_index_expect(live->prefixes, keys, n, false, links);
	for (int step = 0; step < SCANNED_AHEAD; step++)
	{
		for (int i = 0; i < n; i++)
			entries[i] = links[i] ? live_linked(live, links[i]) : NULL;
		entries_expect(entries, n, sizeof(LinkedEntry));
		for (int i = 0; i < n; i++)
			links[i] = links[i] ? prefix_link_next(links[i]) : NULL;
	}
}

/* Of each key the newest entry: another one is going to be linked to it. */
static void
links_expect(LiveStore *live, TupleTableSlot **keys, int n)
{
	PrefixLink *links[STATE_EXPECT_MAX];

	prefix_index_expect(live->prefixes, keys, n, true, links);
	for (int i = 0; i < n; i++)
	{
		if (links[i])
			prefetch_range(links[i], sizeof(PrefixLink));
	}
	prefetch_settle((const void *const *) links, n);
}

void
memory_expect(StateStore *base, TupleTableSlot **keys, int n, StateUse use)
{
	MemoryStore *store = (MemoryStore *) base;

	if (store->live.stale || !memory_expects(base))
		return;
	if (use != STATE_USE_PREFIX)
		keys_expect(store, keys, n, use);
	if (use == STATE_USE_NEW && store->live.prefixes)
		links_expect(&store->live, keys, n);
	if (use == STATE_USE_PREFIX)
		scans_expect(&store->live, keys, n);
}
