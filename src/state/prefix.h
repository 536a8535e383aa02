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
	MinimalTuple key;
	uint32 hash;
	bool complete; /* the provider's: everything stored under the prefix is among the entries */
	dlist_head entries; /* PrefixLink, oldest first */
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
extern void prefix_index_link(PrefixIndex *index, const Datum *values, const bool *nulls, PrefixLink *link);
extern void prefix_index_unlink(PrefixIndex *index, PrefixLink *link);

#endif
