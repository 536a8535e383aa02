/*
 * fold.c: a stage whose rows go into groups, run by tasks: plan and grouping go there, groups come back and are taken in the order of the tasks.
 */
#include "task/message.h"

int64
task_fold(TaskPool *pool, List *batches, PlannedStmt *planned, Operator *op)
{
	SourceBatch *first = linitial(batches);
	OrderHead head = {.fold = true,
					  .shares = task_pool_size(pool),
					  .share_rows = first->share_rows,
					  .nsources = list_length(batches),
					  .info = *op->batch};
	StringInfoData message;
	int64 groups = 0;
	ListCell *lc;

	initStringInfo(&message);
	order_write(&message, &head, task_pool_settings(pool), batches);
	message_put_text(&message, nodeToString(planned));
	aggregate_spec_write(op->spec, &message);
	task_pool_order(pool, &message, op->batch);
	pfree(message.data);
	for (int i = 0; i < task_pool_size(pool); i++)
	{
		ByteReader block;

		while (task_pool_receive(pool, i, &block) == MESSAGE_GROUPS)
			for (; block.at < block.end; groups++)
				aggregate_partial_take(op, &block);
		counts_take(&block, batches);
		op->metrics.dropped += (int64) bytes_get_varint(&block);
	}
	foreach (lc, batches)
	{
		SourceBatch *batch = lfirst(lc);

		batch->observer_taken = batch->observed_all = true;
	}
	return groups;
}
