/*
 * transform.h: what the files that cut transform_with_state out share.
 */
#ifndef STREAM_PLAN_TRANSFORM_H
#define STREAM_PLAN_TRANSFORM_H

#include "plan/internal.h"
#include "nodes/pathnodes.h"
#include "operator/transform.h"

typedef struct TransformCut
{
	Compile *c;
	Level *level;
	Query *query;
	int rtindex; /* of the call, and then of the output */
	RangeTblFunction *function;
	FuncExpr *call;
	TransformSpec *spec;
	HandlerShape input;
	Lineage event_time; /* of the rows; kind LINEAGE_NONE: they have none */
	Expr *event_column;
	Node *key;	   /* as written */
	List *left;	   /* FROM items before the call */
	Relids below;  /* their range table indexes, joins included */
	List *quals;   /* conjuncts of WHERE and of the joins taken apart */
	List *entries; /* the range table as it was, for names */
	int ncolumns;  /* of t */
	int depth;	   /* while walking: query levels below this one */
} TransformCut;

/* ---- transform_from.c ---- */

/* Parts FROM: what stands before the call goes below, conditions aside; the items that stay are returned. */
extern List *transform_split_from(TransformCut *t);
/* No longer in FROM, these or all others: nothing may find a stream, or ask for a privilege, there. Indexes stay. */
extern void transform_drop_entries(Query *query, Relids entries, bool others);

#endif
