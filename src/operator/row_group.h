/*
 * row_group.h: rows held back for a moment, so that their keys' state can be fetched together instead of one after the other.
 * Worth its copies where state is far away: StateProvider.expects says so.
 */
#ifndef STREAM_OPERATOR_ROW_GROUP_H
#define STREAM_OPERATOR_ROW_GROUP_H

#include "postgres.h"
#include "executor/tuptable.h"
#include "operator/operator.h"

typedef struct RowGroup
{
	int n;
	Size bytes; /* of values that are not in the slots themselves */
	TupleTableSlot *rows[STATE_EXPECT_MAX];
} RowGroup;

/* In CurrentMemoryContext. */
extern RowGroup *row_group_create(TupleDesc desc);
/* False: it is full. The slot is deformed; so are the group's. */
extern bool row_group_add(RowGroup *group, TupleTableSlot *slot);
/* Lets go of its rows. */
extern void row_group_clear(RowGroup *group);

/* ---- for operators that look each row up in one store ---- */

typedef void (*RowReceiver)(Operator *op, TupleTableSlot *row);

/* The row to the receiver, at once or with others. */
extern void row_group_receive(RowGroup *group, Operator *op, StateStore *store, RowReceiver receiver, TupleTableSlot *slot);
/* Those held back. */
extern void row_group_drain(RowGroup *group, Operator *op, StateStore *store, RowReceiver receiver);

#endif
