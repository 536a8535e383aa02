/*
 * prefix.c: a hash from the first columns of a key to the entries that have them.
 * Lives in memory only; a bucket goes with its last entry.
 */
#include "state/prefix.h"

#include "state/prefetch.h"
#include "utils/memutils.h"

struct PrefixIndex
{
	KeyType *keys;
	MemoryContext context; /* of the buckets */
	struct buckets_hash *members;
	const Datum *sought_values;
	const bool *sought_nulls;
};

static inline bool
bucket_matches(PrefixIndex *index, PrefixBucket *member, PrefixBucket *sought)
{
	return sought ? member == sought : key_equals(index->keys, &member->key, index->sought_values, index->sought_nulls);
}

/* A NULL key stands for the index's sought values; a pointer for that very bucket. */
#define SH_PREFIX buckets
#define SH_ELEMENT_TYPE HashSlot
#define SH_KEY_TYPE PrefixBucket *
#define SH_KEY item
#define SH_SCOPE static inline
#define SH_HASH_KEY(table, key) ((key)->hash)
#define SH_EQUAL(table, a, b) bucket_matches((table)->private_data, a, b)
#define SH_STORE_HASH
#define SH_GET_HASH(table, slot) (slot)->hash
#define SH_DECLARE
#define SH_DEFINE
#include "lib/simplehash.h"

PrefixIndex *
prefix_index_create(const StateSchema *schema)
{
	PrefixIndex *index = palloc0(sizeof(PrefixIndex));
	StateSchema prefix = *schema;

	prefix.keydesc = CreateTemplateTupleDesc(schema->nprefix);
	for (int i = 1; i <= schema->nprefix; i++)
		TupleDescCopyEntry(prefix.keydesc, i, schema->keydesc, i);
	index->keys = key_type_create(&prefix);
	index->context = AllocSetContextCreate(CurrentMemoryContext, "stream state prefixes", ALLOCSET_DEFAULT_SIZES);
	index->members = buckets_create(index->context, 256, index);
	return index;
}

void
prefix_index_clear(PrefixIndex *index)
{
	MemoryContextReset(index->context);
	index->members = buckets_create(index->context, 256, index);
}

static PrefixBucket *
bucket_create(PrefixIndex *index, const Datum *values, const bool *nulls, uint32 hash)
{
	MinimalTuple key = key_form(index->keys, values, nulls);
	PrefixBucket *bucket = MemoryContextAllocZero(index->context, offsetof(PrefixBucket, key) + key->t_len);

	bucket->hash = hash;
	dlist_init(&bucket->entries);
	memcpy(&bucket->key, key, key->t_len);
	pfree(key);
	return bucket;
}

PrefixBucket *
prefix_index_find(PrefixIndex *index, const Datum *values, const bool *nulls, bool add)
{
	uint32 hash = key_hash(index->keys, values, nulls);
	HashSlot *member;
	bool found;

	index->sought_values = values;
	index->sought_nulls = nulls;
	if (!add)
	{
		member = buckets_lookup_hash(index->members, NULL, hash);
		return member ? member->item : NULL;
	}
	member = buckets_insert_hash(index->members, NULL, hash, &found);
	if (found)
		return member->item;
	return member->item = bucket_create(index, values, nulls, hash);
}

void
prefix_index_expect(PrefixIndex *index, TupleTableSlot **keys, int n, bool newest, PrefixLink **links)
{
	PrefixBucket *buckets[STATE_EXPECT_MAX];
	uint32 hashes[STATE_EXPECT_MAX];

	for (int i = 0; i < n; i++)
	{
		hashes[i] = key_hash(index->keys, keys[i]->tts_values, keys[i]->tts_isnull);
		__builtin_prefetch(&index->members->data[hashes[i] & index->members->sizemask]);
	}
	for (int i = 0; i < n; i++)
	{
		buckets[i] = hash_guess(index->members->data, index->members->sizemask, hashes[i]);
		if (buckets[i])
			prefetch_range(buckets[i], sizeof(PrefixBucket) + 2 * sizeof(Datum));
	}
	for (int i = 0; i < n; i++)
	{
		dlist_head *entries = buckets[i] ? &buckets[i]->entries : NULL;

		links[i] = NULL;
		if (entries && !dlist_is_empty(entries))
			links[i] = dlist_container(PrefixLink, node, newest ? entries->head.prev : entries->head.next);
	}
}

void
prefix_index_link(PrefixIndex *index, const Datum *values, const bool *nulls, PrefixLink *link)
{
	link->bucket = prefix_index_find(index, values, nulls, true);
	dlist_push_tail(&link->bucket->entries, &link->node);
}

void
prefix_index_unlink(PrefixIndex *index, PrefixLink *link)
{
	PrefixBucket *bucket = link->bucket;

	dlist_delete(&link->node);
	link->bucket = NULL;
	/* A complete one remembers that there is nothing more. */
	if (!dlist_is_empty(&bucket->entries) || bucket->complete)
		return;
	buckets_delete_item(index->members, buckets_lookup_hash(index->members, bucket, bucket->hash));
	pfree(bucket);
}
