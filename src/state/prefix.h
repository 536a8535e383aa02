/*
 * prefix.h: entries held in memory by the first columns of their keys, for StateProvider.scan_prefix.
 */
#ifndef STREAM_STATE_PREFIX_H
#define STREAM_STATE_PREFIX_H

#include "postgres.h"
#include "lib/ilist.h"
#include "state/keys.h"

/* The entries of one prefix. */
typedef struct PrefixBucket
{
	dlist_head entries; /* PrefixLink, oldest first */
	uint32 hash;
	bool complete; /* the provider's: everything stored under the prefix is among the entries */
	MinimalTupleData key; /* and the rest of it: one trip to memory for both */
} PrefixBucket;

/* In each entry. */
typedef struct PrefixLink
{
	dlist_node node;
	PrefixBucket *bucket;
} PrefixLink;

typedef struct PrefixIndex PrefixIndex;

/* Key functions in CurrentMemoryContext, buckets in a context below it. */
extern PrefixIndex *prefix_index_create(const StateSchema *schema);
extern void prefix_index_clear(PrefixIndex *index);
/* Keys are given deformed; columns behind the prefix do no harm. add false: NULL when there is none. */
extern PrefixBucket *prefix_index_find(PrefixIndex *index, const Datum *values, const bool *nulls, bool add);
/* Fetches what belongs to keys: see StateProvider.expect. links: the newest or oldest entry of each, NULL: none. */
extern void prefix_index_expect(PrefixIndex *index, TupleTableSlot **keys, int n, bool newest, PrefixLink **links);
/* The one after it of the same prefix; NULL: none. */
static inline PrefixLink *
prefix_link_next(PrefixLink *link)
{
	dlist_node *next = link->node.next;

	return next == &link->bucket->entries.head ? NULL : dlist_container(PrefixLink, node, next);
}

extern void prefix_index_link(PrefixIndex *index, const Datum *values, const bool *nulls, PrefixLink *link);
extern void prefix_index_unlink(PrefixIndex *index, PrefixLink *link);

#endif
