/*
 * row_group.c: copies of a few rows, in the order they came.
 */
#include "operator/row_group.h"

#include "executor/executor.h"
#include "utils/memutils.h"

#define GROUP_BYTES (256 * 1024) /* more is neither near nor needed */

RowGroup *
row_group_create(TupleDesc desc)
{
	RowGroup *group = palloc0(sizeof(RowGroup));

	for (int i = 0; i < STATE_EXPECT_MAX; i++)
		group->rows[i] = MakeSingleTupleTableSlot(desc, &TTSOpsVirtual);
	return group;
}

bool
row_group_add(RowGroup *group, TupleTableSlot *slot)
{
	TupleTableSlot *row = ExecCopySlot(group->rows[group->n++], slot);
	char *values = ((VirtualTupleTableSlot *) row)->data;

	if (values)
		group->bytes += GetMemoryChunkSpace(values);
	return group->n < STATE_EXPECT_MAX && group->bytes < GROUP_BYTES;
}

void
row_group_clear(RowGroup *group)
{
	for (int i = 0; i < group->n; i++)
		ExecClearTuple(group->rows[i]);
	group->n = 0;
	group->bytes = 0;
}

void
row_group_drain(RowGroup *group, Operator *op, StateStore *store, RowReceiver receiver)
{
	if (group->n == 0)
		return;
	store->provider->expect(store, group->rows, group->n, STATE_USE_KEY);
	for (int i = 0; i < group->n; i++)
		receiver(op, group->rows[i]);
	row_group_clear(group);
}

void
row_group_receive(RowGroup *group, Operator *op, StateStore *store, RowReceiver receiver, TupleTableSlot *slot)
{
	slot_getallattrs(slot);
	if (group->n == 0 && !store->provider->expects(store))
		receiver(op, slot);
	else if (!row_group_add(group, slot))
		row_group_drain(group, op, store, receiver);
}
