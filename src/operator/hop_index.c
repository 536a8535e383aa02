/*
 * hop_index.c: panes brought together by their keys.
 */
#include "operator/hop.h"

#include "util/compat.h"
#include "utils/memutils.h"

static inline bool list_matches(PaneIndex *index, MinimalTuple key, MinimalTuple sought);

/* A NULL key stands for the index's probe. */
#define SH_PREFIX panelists
#define SH_ELEMENT_TYPE PaneList
#define SH_KEY_TYPE MinimalTuple
#define SH_KEY key
#define SH_SCOPE static inline
#define SH_HASH_KEY(table, key) 0 /* never asked: hashes are given and stored */
#define SH_EQUAL(table, a, b) list_matches((table)->private_data, a, b)
#define SH_STORE_HASH
#define SH_GET_HASH(table, list) (list)->hash
#define SH_DECLARE
#define SH_DEFINE
#include "lib/simplehash.h"

static inline bool
list_matches(PaneIndex *index, MinimalTuple key, MinimalTuple sought)
{
	return sought ? key == sought : key_equals(index->keys, key, index->probe_values, index->probe_nulls);
}

PaneIndex *
pane_index_create(const StateSchema *keys)
{
	PaneIndex *index = palloc0(sizeof(PaneIndex));

	index->keys = key_type_create(keys);
	index->context = AllocSetContextCreate(CurrentMemoryContext, "stream panes", ALLOCSET_DEFAULT_SIZES);
	pane_index_clear(index);
	return index;
}

void
pane_index_clear(PaneIndex *index)
{
	MemoryContextReset(index->context);
	index->lists = panelists_create(index->context, 64, index);
}

void
pane_index_add(PaneIndex *index, TupleTableSlot *key, int64 start, StateEntry *entry)
{
	MemoryContext caller;
	PaneList *list;
	bool found;

	index->probe_values = key->tts_values;
	index->probe_nulls = key->tts_isnull;
	list = panelists_insert_hash(index->lists, NULL, key_hash(index->keys, key->tts_values, key->tts_isnull), &found);
	caller = MemoryContextSwitchTo(index->context);
	if (!found)
	{
		list->key = key_form(index->keys, key->tts_values, key->tts_isnull);
		list->sample = heap_copy_minimal_tuple(entry->key);
		list->n = 0;
		list->max = 4;
		list->panes = palloc(sizeof(struct Pane) * list->max);
	}
	else if (list->n == list->max)
	{
		list->max *= 2;
		list->panes = repalloc_huge(list->panes, sizeof(struct Pane) * list->max);
	}
	list->panes[list->n].start = start;
	list->panes[list->n++].entry = entry;
	MemoryContextSwitchTo(caller);
}

static int
compare_panes(const void *a, const void *b)
{
	int64 left = ((const struct Pane *) a)->start, right = ((const struct Pane *) b)->start;

	return left < right ? -1 : (left > right ? 1 : 0);
}

void
pane_index_walk(PaneIndex *index, PaneListCallback callback, void *arg)
{
	panelists_iterator iterator;
	PaneList *list;

	panelists_start_iterate(index->lists, &iterator);
	while ((list = panelists_iterate(index->lists, &iterator)))
	{
		qsort(list->panes, list->n, sizeof(struct Pane), compare_panes);
		callback(arg, list);
	}
}
