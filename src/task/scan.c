/*
 * scan.c: a source's range read by tasks, in the place of its own scan.
 * Order to all → blocks of rows from each, numbered → merged by number: the order in which one process would read them, whatever the number of tasks.
 */
#include "task/message.h"

#include "utils/memutils.h"

typedef struct ScanInput
{
	uint64 order;
	const char *at, *end; /* rows left of the block */
	bool done;
} ScanInput;

typedef struct TaskScan
{
	TaskPool *pool;
	RowShape shape;
	int ninputs;
	ScanInput *inputs;
	ScanInput *current; /* has rows left, or NULL: the one to go on with must be found */
} TaskScan;

static bool remote_begin(SourceScan *scan);
static bool remote_next(SourceScan *scan, TupleTableSlot *slot);
static void remote_rewind(SourceScan *scan);
static void remote_end(SourceScan *scan);

static const SourceRemote task_remote = {remote_begin, remote_next, remote_rewind, remote_end};

void
task_scan_attach(TaskPool *pool, SourceBatch *batch)
{
	batch->remote = &task_remote;
	batch->remote_arg = pool;
}

static void
order_send(SourceScan *base, TaskScan *scan)
{
	SourceBatch *batch = base->batch, told = *batch;
	OrderHead head = {.fold = false,
					  .shares = scan->ninputs,
					  .share_rows = batch->share_rows,
					  .nsources = 1,
					  .info = *batch->info};
	StringInfoData message;

	told.observer_taken = !base->observer;
	initStringInfo(&message);
	order_write(&message, &head, task_pool_settings(scan->pool), list_make1(&told));
	bytes_put_varint(&message, scan->shape.ncolumns);
	for (int i = 0; i < scan->shape.ncolumns; i++)
		bytes_put_varint(&message, scan->shape.columns[i]);
	task_pool_order(scan->pool, &message, batch->info);
	pfree(message.data);
	memset(scan->inputs, 0, sizeof(ScanInput) * scan->ninputs);
	scan->current = NULL;
}

/* Tasks do one thing at a time. */
static bool
remote_begin(SourceScan *base)
{
	TaskPool *pool = base->batch->remote_arg;
	TaskScan *scan;

	if (task_pool_is_busy(pool))
		return false;
	scan = palloc0(sizeof(TaskScan));
	scan->pool = pool;
	scan->ninputs = task_pool_size(pool);
	scan->inputs = palloc(sizeof(ScanInput) * scan->ninputs);
	row_shape_init(&scan->shape, base->reader->def->desc, base->needed);
	base->state = scan;
	order_send(base, scan);
	return true;
}

/* The next block of an input. */
static void
input_load(SourceScan *base, TaskScan *scan, ScanInput *input)
{
	ByteReader block;

	if (task_pool_receive(scan->pool, input - scan->inputs, &block) == MESSAGE_DONE)
	{
		input->done = true;
		counts_take(&block, list_make1(base->batch));
		return;
	}
	message_get(&block, &input->order, sizeof(input->order));
	input->at = block.at;
	input->end = block.end;
}

/* The input whose rows come next. NULL: there are no more. */
static ScanInput *
input_choose(SourceScan *base, TaskScan *scan)
{
	ScanInput *chosen = NULL;

	for (int i = 0; i < scan->ninputs; i++)
	{
		ScanInput *input = &scan->inputs[i];

		while (!input->done && input->at == input->end)
			input_load(base, scan, input);
		if (!input->done && (chosen == NULL || input->order < chosen->order))
			chosen = input;
	}
	return chosen;
}

static bool
remote_next(SourceScan *base, TupleTableSlot *slot)
{
	TaskScan *scan = base->state;

	if (scan->current == NULL || scan->current->at == scan->current->end)
		scan->current = input_choose(base, scan);
	if (scan->current == NULL)
		return false;
	scan->current->at = row_read(&scan->shape, scan->current->at, slot);
	return true;
}

/* What is still to come of a run that nobody reads to its end. */
static void
run_finish(SourceScan *base, TaskScan *scan)
{
	for (ScanInput *input; (input = input_choose(base, scan)) != NULL;)
		input->at = input->end;
}

static void
remote_rewind(SourceScan *base)
{
	run_finish(base, base->state);
	order_send(base, base->state);
}

static void
remote_end(SourceScan *base)
{
	run_finish(base, base->state);
}
