/*
 * hop.h: the parts of the hop operator, private to hop*.c.
 *
 * State holds panes: an aggregate's groups whose last key is a stretch of time that no window divides. Windows are combined from the panes of their
 * key when they are emitted, and exist only for that moment.
 */
#ifndef STREAM_OPERATOR_HOP_H
#define STREAM_OPERATOR_HOP_H

#include "operator/aggregate.h"
#include "state/keys.h"

/* The panes of one key that a batch has to do with. */
typedef struct PaneList
{
	MinimalTuple key;	 /* without the pane */
	MinimalTuple sample; /* with one */
	uint32 hash;
	char status; /* of the hash */
	int n, max;
	struct Pane
	{
		int64 start;
		StateEntry *entry; /* from a scan of all: good no longer */
	} *panes;
} PaneList;

/* Panes brought together by their keys: for a batch, or for the windows of one end. */
typedef struct PaneIndex
{
	MemoryContext context;
	KeyType *keys;
	struct panelists_hash *lists;
	const Datum *probe_values;
	const bool *probe_nulls;
} PaneIndex;

/* In CurrentMemoryContext; keys: the grouping keys without the window. */
extern PaneIndex *pane_index_create(const StateSchema *keys);
extern void pane_index_clear(PaneIndex *index);
extern void pane_index_add(PaneIndex *index, TupleTableSlot *key, int64 start, StateEntry *entry);
typedef void (*PaneListCallback)(void *arg, PaneList *list);
/* Every list, its panes in order of time. */
extern void pane_index_walk(PaneIndex *index, PaneListCallback callback, void *arg);

typedef struct HopOperator
{
	AggregateOperator aggregate;
	HopSpec *spec;
	int64 pane; /* length */
	Oid range;	/* type of windows and panes */
	/* Rows come in bunches: the pane of the last one, and its windows. */
	struct
	{
		int64 start, end; /* both 0: none */
		int64 first, last;
		Datum range;
	} recent;
	PaneIndex *index;
	TupleTableSlot *key;   /* virtual: a pane's key */
	ExprContext *combined; /* what windows are put together in; its memory is reset with each key */
	Tuplestorestate *out;
} HopOperator;

#define HOP_COLUMN(op) ((op)->aggregate.spec->nkeys - 1) /* of keys, 0-based */

/* Starts of the first and the last window that cover a pane. */
extern void hop_windows_of_pane(HopOperator *op, int64 pane, int64 *first, int64 *last);
/* Emits the windows that cover any pane of the list and have not ended at `ended`. */
extern void hop_slide(HopOperator *op, PaneList *list, TimestampTz ended);
/* One window, of the list's panes. */
extern void hop_emit(HopOperator *op, PaneList *list, int64 start, Cell *cells);

#endif
