/*
 * best.h: the parts of the operator that keeps the best rows of keys, private to best*.c.
 */
#ifndef STREAM_OPERATOR_BEST_H
#define STREAM_OPERATOR_BEST_H

#include "operator/operator.h"
#include "state/codec.h"
#include "utils/sortsupport.h"

typedef struct BestRow
{
	MinimalTuple kept;
	uint64 born; /* serial of the batch that brought it */
	bool dropped;
} BestRow;

/* A key's live value. */
typedef struct BestList
{
	int n, max;
	BestRow **rows; /* best first */
} BestList;

/* A key with rows that came in this batch, and the rows it had before. */
typedef struct TouchedKey
{
	StateEntry *entry;
	int nbefore;
	BestRow **before;
} TouchedKey;

typedef struct Best
{
	Operator base;
	BestSpec *spec;
	const StateProvider *provider;
	StateStore *store;
	DatumCodec *codecs; /* of the kept columns */
	SortSupport sort;
	TupleDesc kept;
	TupleTableSlot *probe; /* a row of a list */
	TupleTableSlot *key, *output, *shown;
	MemoryContext row_context, batch_context;
	uint64 serial;
	TouchedKey *touched;
	int64 ntouched, maxtouched;
} Best;

/* ---- best_value.c ---- */
extern BestList *best_list_create(Best *best, MemoryContext context);
extern BestRow *best_row_create(MinimalTuple kept, uint64 born);
extern void best_row_free(BestRow *row);
extern void best_list_insert(BestList *list, int at, BestRow *row);
extern const StateValueOps best_value_ops;

#endif
