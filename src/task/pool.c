/*
 * pool.c: the tasks of a query, seen from the process that runs it: started, given orders, listened to, ended.
 * A segment of shared memory per task holds two queues: orders there, results back. Whatever goes wrong with a task is an error of the batch; the pool
 * goes with it, and the batch that comes again starts another. Tasks belong to our lock group, so they wait for no lock of ours.
 */
#include "task/message.h"

#include "libpq/pqmq.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "storage/dsm.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "util/process.h"
#include "utils/memutils.h"

int stream_task_rows = 5000;

typedef struct Task
{
	dsm_segment *segment;
	BackgroundWorkerHandle *handle;
	shm_mq_handle *orders, *results;
	bool busy;
} Task;

struct TaskPool
{
	MemoryContext context;
	char *query_name;
	Jsonb *settings;
	const BatchInfo *info; /* of the batch being worked for */
	int ntasks;
	Task *tasks;
	MemoryContextCallback callback;
};

/* ---- start ---- */

static bool
task_register(Task *task, StreamQuery *query, int number)
{
	TaskLaunch launch = {MyDatabaseId, query->owner, query->id, number};
	BackgroundWorker worker;

	process_describe(&worker, "stream_task_main", "stream_ext task", "stream_ext task %d of query " INT64_FORMAT, number, query->id);
	worker.bgw_main_arg = UInt32GetDatum(dsm_segment_handle(task->segment));
	worker.bgw_notify_pid = MyProcPid;
	memcpy(worker.bgw_extra, &launch, sizeof(launch));
	return RegisterDynamicBackgroundWorker(&worker, &task->handle);
}

/* The segment is left: an idle task goes by itself then, a busy one might not look up for long. */
static void
task_left(dsm_segment *segment, Datum arg)
{
	Task *task = (Task *) DatumGetPointer(arg);

	if (task->handle && task->busy)
		TerminateBackgroundWorker(task->handle);
	task->segment = NULL;
}

/* False: there is no room for one more. */
static bool
task_start(Task *task, StreamQuery *query, int number)
{
	TaskShared *shared;
	shm_mq *orders, *results;

	task->segment = dsm_create(TASK_SEGMENT_BYTES, DSM_CREATE_NULL_IF_MAXSEGMENTS);
	if (task->segment == NULL)
		return false;
	dsm_pin_mapping(task->segment);
	shared = dsm_segment_address(task->segment);
	shared->leader = MyProc;
	shared->leader_pid = MyProcPid;
	orders = shm_mq_create((char *) shared + TASK_ORDERS_AT, TASK_ORDERS_BYTES);
	results = shm_mq_create((char *) shared + TASK_RESULTS_AT, TASK_RESULTS_BYTES);
	shm_mq_set_sender(orders, MyProc);
	shm_mq_set_receiver(results, MyProc);
	if (!task_register(task, query, number))
	{
		dsm_detach(task->segment);
		task->segment = NULL;
		return false;
	}
	on_dsm_detach(task->segment, task_left, PointerGetDatum(task));
	task->orders = shm_mq_attach(orders, task->segment, task->handle);
	task->results = shm_mq_attach(results, task->segment, task->handle);
	return true;
}

static void
pool_leave(void *arg)
{
	TaskPool *pool = arg;

	for (int i = 0; i < pool->ntasks; i++)
		if (pool->tasks[i].segment)
			dsm_detach(pool->tasks[i].segment);
}

TaskPool *
task_pool_open(StreamQuery *query)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "stream_ext tasks", ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	int wanted = query_parallelism(&query->options);
	TaskPool *pool = palloc0(sizeof(TaskPool));

	pool->context = context;
	pool->query_name = pstrdup(query->name);
	pool->settings = DatumGetJsonbPCopy(JsonbPGetDatum(query->settings));
	pool->tasks = palloc0(sizeof(Task) * wanted);
	pool->callback.func = pool_leave;
	pool->callback.arg = pool;
	MemoryContextRegisterResetCallback(context, &pool->callback);
	BecomeLockGroupLeader();
	while (pool->ntasks < wanted && task_start(&pool->tasks[pool->ntasks], query, pool->ntasks + 1))
		pool->ntasks++;
	MemoryContextSwitchTo(old);
	if (pool->ntasks > 0)
		return pool;
	MemoryContextDelete(context);
	return NULL;
}

/* Waits for their end, which comes at once: they are idle, or told to go. No error flies from here. */
void
task_pool_close(TaskPool *pool)
{
	pool_leave(pool);
	HOLD_INTERRUPTS();
	for (int i = 0; i < pool->ntasks; i++)
		(void) WaitForBackgroundWorkerShutdown(pool->tasks[i].handle);
	RESUME_INTERRUPTS();
	SetLatch(MyLatch);
	MemoryContextDelete(pool->context);
}

/* ---- orders and results ---- */

int
task_pool_size(TaskPool *pool)
{
	return pool->ntasks;
}

bool
task_pool_is_busy(TaskPool *pool)
{
	for (int i = 0; i < pool->ntasks; i++)
		if (pool->tasks[i].busy)
			return true;
	return false;
}

Jsonb *
task_pool_settings(TaskPool *pool)
{
	return pool->settings;
}

static void
task_is_gone(TaskPool *pool, int number)
{
	ereport(ERROR, (errcode(ERRCODE_CONNECTION_FAILURE), errmsg("task %d of streaming query \"%s\" ended unexpectedly", number + 1, pool->query_name),
					errhint("The batch is tried again. The server log may tell why the task ended.")));
}

/* It takes no order: perhaps it has left word why. */
static void
task_is_deaf(TaskPool *pool, int number)
{
	ByteReader block;

	(void) task_pool_receive(pool, number, &block);
	task_is_gone(pool, number);
}

void
task_pool_order(TaskPool *pool, StringInfo message, const BatchInfo *info)
{
	pool->info = info;
	for (int i = 0; i < pool->ntasks; i++)
	{
		OrderHead *head = (OrderHead *) (message->data + sizeof(uint64));

		head->share = i;
		pool->tasks[i].busy = true;
		if (shm_mq_send(pool->tasks[i].orders, message->len, message->data, false, true) != SHM_MQ_SUCCESS)
			task_is_deaf(pool, i);
	}
}

/* What the server of the other process would have told its client. A task's death is no reason to die. */
static void
notice_take(TaskPool *pool, int number, const char *bytes, Size length)
{
	StringInfoData text;
	ErrorData error;

	initStringInfo(&text);
	appendBinaryStringInfo(&text, bytes, length);
	pq_parse_errornotice(&text, &error);
	error.elevel = Min(error.elevel, ERROR);
	ThrowErrorData(&error);
	pfree(text.data);
}

MessageKind
task_pool_receive(TaskPool *pool, int number, ByteReader *block)
{
	Task *task = &pool->tasks[number];

	for (;;)
	{
		Size length;
		void *data;

		if (shm_mq_receive(task->results, &length, &data, false) != SHM_MQ_SUCCESS)
			task_is_gone(pool, number);
		block->at = (char *) data + sizeof(uint64);
		block->end = (char *) data + length;
		switch (*(char *) data)
		{
			case 'E':
			case 'N':
				notice_take(pool, number, (char *) data + 1, length - 1);
				break;
			case MESSAGE_LETTER:
				letter_take(block, pool->info);
				break;
			case MESSAGE_DONE:
				task->busy = false;
				SetLatch(MyLatch); /* waiting has used up what others may have set it for */
				return MESSAGE_DONE;
			case MESSAGE_ROWS:
			case MESSAGE_GROUPS:
				return *(char *) data;
			default:
				break; /* the server's own chatter, as the values of its settings */
		}
	}
}
