/*
 * session.h: the parts of the session operator, private to session*.c.
 *
 * Open sessions of a key never touch each other, so in order of their starts they are in order of their ends, and those a row brings together
 * are neighbours. What they hold is in the store of the aggregate's groups, under key and bounds. A batch reads the sessions of the keys it meets into
 * an index, where bounds move freely: the store hears of it once, at the end.
 */
#ifndef STREAM_OPERATOR_SESSION_H
#define STREAM_OPERATOR_SESSION_H

#include "operator/aggregate.h"
#include "state/keys.h"

typedef struct Session
{
	int64 start, end;  /* microseconds: [start, end) */
	StateEntry *entry; /* in the store, under the bounds the last batch left; NULL: made in this batch */
	Cell *cells;	   /* while it has no entry */
	uint64 touched;	   /* serial of the batch */
	bool swallowed;	   /* merged into another one in this batch */
	bool closed;	   /* written and let go: rows that touch it are late. Its entry is in the store of closed ones */
} Session;

/* Sessions of one key. */
typedef struct SessionList
{
	MinimalTuple key; /* without the session */
	uint32 hash;
	char status; /* of the hash */
	int n, max;
	Session **sessions; /* by start */
} SessionList;

struct sessions_hash;

typedef struct SessionIndex
{
	MemoryContext context;
	KeyType *keys;
	struct sessions_hash *lists;
	const Datum *probe_values;
	const bool *probe_nulls;
} SessionIndex;

/* In CurrentMemoryContext; keys: the grouping keys without the session. */
extern SessionIndex *session_index_create(const StateSchema *keys);
extern void session_index_clear(SessionIndex *index);
/* The list of a row's key, made empty when there is none. Valid until the next one is made. */
extern SessionList *session_index_find(SessionIndex *index, TupleTableSlot *key, bool *created);

/* The first session that ends at or after `start`: all that [start, end] touches follow from there. */
extern int session_list_first(SessionList *list, int64 start);
extern Session *session_list_insert(SessionIndex *index, SessionList *list, int at, int64 start, int64 end);
/* Takes n sessions out of the list, without freeing them. */
extern void session_list_remove(SessionList *list, int at, int n);

typedef struct Touched
{
	MinimalTuple key;
	Session *session;
} Touched;

typedef struct SessionOperator
{
	AggregateOperator aggregate;
	SessionSpec *spec;
	StateStore *closed; /* by key and bounds, without values; NULL where nothing closes */
	SessionIndex *index; /* of this batch */
	Touched *touched; /* in the batch's memory */
	int64 ntouched, maxtouched;
	TupleTableSlot *key; /* virtual: a key of the stores */
	TupleTableSlot *shown;
} SessionOperator;

#define SESSION_COLUMN(op) ((op)->aggregate.spec->nkeys - 1) /* of keys, 0-based */

/* ---- session.c ---- */

/* The key of an entry, in the aggregate's key slot, with the bounds of its session. */
extern TupleTableSlot *session_entry_key(SessionOperator *op, StateEntry *entry, int64 *start, int64 *end);

/* ---- session_result.c ---- */
extern void session_finish(Operator *base, Tuplestorestate *out);

#endif
