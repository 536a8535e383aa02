/*
 * join.h: the parts of the join operator, private to join*.c.
 */
#ifndef STREAM_OPERATOR_JOIN_H
#define STREAM_OPERATOR_JOIN_H

#include "postgres.h"
#include "operator/operator.h"
#include "operator/row_group.h"
#include "state/row_codec.h"

typedef struct Side
{
	StateStore *store;
	RowCodec *codec;	   /* of payloads */
	RowGroup *group;	   /* incoming rows whose turn has not come */
	TupleTableSlot *keys[STATE_EXPECT_MAX]; /* of each of them, for the store: join keys and serial number */
	TupleTableSlot *key;   /* of a stored row */
	TupleTableSlot *row;   /* a stored row as the qual sees it: an input row whose payload is filled */
	TupleTableSlot *payload;
	TupleTableSlot *shown; /* to the state reader */
	int64 next_serial;	   /* of this batch */
	bool preserved;		   /* unmatched rows are emitted with NULLs for the other side */
} Side;

typedef struct StreamJoin
{
	Operator base;
	Side sides[2];
	struct ExprContext *econtext;
	struct ExprState *qual;
	TupleTableSlot *output;
} StreamJoin;

/* ---- join_side.c ---- */
extern void join_side_check(OperatorSpec *base);
extern void join_side_open(StreamJoin *join, int i, int64 query_id, const StateProvider *provider, int64 last_batch);
extern void join_show(Operator *op, StateStore *store, StateEntry *entry, OperatorShow tell, void *arg);

#endif
