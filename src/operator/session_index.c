/*
 * session_index.c: key → its sessions in order of time. Lives for a batch: a key's sessions are read from
 * the stores when its first row comes.
 */
#include "operator/session.h"

#include "utils/memutils.h"

static inline bool list_matches(SessionIndex *index, MinimalTuple key, MinimalTuple sought);

/* A NULL key stands for the index's probe. */
#define SH_PREFIX sessions
#define SH_ELEMENT_TYPE SessionList
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
list_matches(SessionIndex *index, MinimalTuple key, MinimalTuple sought)
{
	if (sought)
		return key == sought;
	return key_equals(index->keys, key, index->probe_values, index->probe_nulls);
}

SessionIndex *
session_index_create(const StateSchema *keys)
{
	SessionIndex *index = palloc0(sizeof(SessionIndex));

	index->keys = key_type_create(keys);
	index->context = AllocSetContextCreate(CurrentMemoryContext, "stream session index", ALLOCSET_DEFAULT_SIZES);
	session_index_clear(index);
	return index;
}

void
session_index_clear(SessionIndex *index)
{
	MemoryContextReset(index->context);
	index->lists = sessions_create(index->context, 64, index);
}

SessionList *
session_index_find(SessionIndex *index, TupleTableSlot *key, bool *created)
{
	SessionList *list;
	MemoryContext caller;
	bool found;

	index->probe_values = key->tts_values;
	index->probe_nulls = key->tts_isnull;
	list = sessions_insert_hash(index->lists, NULL, key_hash(index->keys, key->tts_values, key->tts_isnull), &found);
	*created = !found;
	if (found)
		return list;
	caller = MemoryContextSwitchTo(index->context);
	list->key = key_form(index->keys, key->tts_values, key->tts_isnull);
	list->n = 0;
	list->max = 2;
	list->sessions = palloc(sizeof(Session *) * list->max);
	MemoryContextSwitchTo(caller);
	return list;
}

int
session_list_first(SessionList *list, int64 start)
{
	int low = 0, high = list->n;

	/* Mostly it is the last one that grows. */
	if (high > 0 && list->sessions[high - 1]->end < start)
		return high;
	while (low < high)
	{
		int middle = (low + high) / 2;

		if (list->sessions[middle]->end < start)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

Session *
session_list_insert(SessionIndex *index, SessionList *list, int at, int64 start, int64 end)
{
	Session *session = MemoryContextAllocZero(index->context, sizeof(Session));

	session->start = start;
	session->end = end;
	if (list->n == list->max)
	{
		list->max *= 2;
		list->sessions = repalloc_huge(list->sessions, sizeof(Session *) * list->max);
	}
	memmove(list->sessions + at + 1, list->sessions + at, sizeof(Session *) * (list->n - at));
	list->sessions[at] = session;
	list->n++;
	return session;
}

void
session_list_remove(SessionList *list, int at, int n)
{
	memmove(list->sessions + at, list->sessions + at + n, sizeof(Session *) * (list->n - at - n));
	list->n -= n;
}
