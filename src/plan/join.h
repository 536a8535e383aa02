/*
 * join.h: what join.c and join_condition.c share while one join of two streams is cut out of its level.
 */
#ifndef STREAM_PLAN_JOIN_H
#define STREAM_PLAN_JOIN_H

#include "plan/internal.h"

typedef struct Side
{
	Node *from;			/* part of the level's jointree */
	Bitmapset *rtes;	/* its range table entries */
	List *filters;		/* conditions over this side alone: its WHERE */
	List *own;			/* … that only say whether the row can match: the side is preserved */
	List *keys;			/* expressions, typed alike on both sides */
	List *bounds;		/* TimeBound */
	List *payload;		/* Vars of the level */
	List *visible;		/* … those the level above uses; the others are there for the remaining conditions */
	Expr *event_column; /* its event time, NULL: none with a watermark */
	Lineage event_time;
} Side;

typedef struct JoinCut
{
	Compile *c;
	Level *level;
	Level before; /* the level as it was: the stages' and the columns' home */
	JoinSpec *spec;
	Side sides[2];
	List *residual; /* conditions over both sides that are no keys */
	List *equalities; /* key operators, oids */
	List *collations;
	List *nulls_match; /* whether NULLs are equal: IS NOT DISTINCT FROM */
} JoinCut;

/* ---- join_condition.c ---- */
extern void join_take_conditions(JoinCut *join, Node *on, bool where_commutes);
extern void join_order_keys(JoinCut *join);
extern void join_find_event_columns(JoinCut *join);
extern void join_check(JoinCut *join);

#endif
