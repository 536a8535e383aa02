/*
 * best.h: what the files that cut best rows out share.
 */
#ifndef STREAM_PLAN_BEST_H
#define STREAM_PLAN_BEST_H

#include "plan/internal.h"

/* An expression a row is kept for, with the text its place in the state is decided by. */
typedef struct Kept
{
	Node *expr;
	char *text;
	char *name;
} Kept;

typedef struct BestCut
{
	Compile *c;
	Level *level;
	BestSpec *spec;
	const char *what;
	List *clauses; /* SortGroupClause of the order, those of keys left out */
	CutKeys keys;
	List *kept; /* Kept */
} BestCut;

/* ---- best_rank.c ---- */

/* The row_number() of a query that ranks. */
extern WindowFunc *best_rank(Query *query);

/*
 * Reads n from the conditions of the level above, and takes those away that then hold for every row. What is left of them, and the SELECT list, may
 * ask for the rank again.
 */
extern int64 best_take_count(BestCut *cut);
extern bool best_contains_rank(Node *node);
extern bool best_rank_is_used(BestCut *cut); /* by anything above */
/* SELECT * below is the custom, and rows are kept for long: what the level above does not read is not kept. */
extern void best_drop_unread_columns(BestCut *cut);

#endif
