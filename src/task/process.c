/*
 * process.c: a task: a process of the query's owner that does as it is told until its leader is gone.
 * Order → transaction with the leader's snapshot, read only → scan or fold over our share → blocks → commit → what was seen. Errors go to the leader, and
 * end us. Between orders: no transaction, no snapshot, no lock; readers stay open, so that what was fetched ahead is not fetched again.
 */
#include "task/message.h"

#include "access/xact.h"
#include "executor/executor.h"
#include "libpq/pqmq.h"
#include "metadata/dead_letter.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/dsm.h"
#include "storage/ipc.h"
#include "storage/lmgr.h"
#include "storage/proc.h"
#include "tcop/dest.h"
#include "tcop/tcopprot.h"
#include "util/compat.h"
#include "util/failpoint.h"
#include "util/operation.h"
#include "util/process.h"
#include "util/wakeup.h"
#include "utils/memutils.h"
#include "utils/resowner.h"
#include "utils/snapmgr.h"

/* This process. */
static struct
{
	TaskLaunch launch;
	TaskShared *shared;
	shm_mq_handle *orders, *results;
	MemoryContext context, run_context; /* of the process; of one order */
	List *readers;						/* SourceReader */
	StringInfoData letter;
	int64 batch_id;						/* the last one we read of */
} self;

/* An order being carried out. */
typedef struct Run
{
	OrderHead head;
	StreamQuery query; /* its settings */
	List *batches;	   /* SourceBatch, each with the share */
	StringInfoData block;
	int64 dropped;
} Run;

/* ---- sending ---- */

static void
message_send(StringInfo message)
{
	CommandDest dest = whereToSendOutput;
	shm_mq_result result;

	/* An error in the middle, as being told to go, must not be written into half a message. */
	whereToSendOutput = DestNone;
	result = shm_mq_send(self.results, message->len, message->data, false, true);
	whereToSendOutput = dest;
	if (result != SHM_MQ_SUCCESS)
		proc_exit(0);
}

static void
letter_send(const char *source, const char *reason, Jsonb *position, const char *raw, Size raw_len, const char *error)
{
	letter_write(&self.letter, source, reason, position, raw, raw_len, error);
	message_send(&self.letter);
}

/* ---- reading an order ---- */

static SourceReader *
reader_for(const OrderSource *source)
{
	SourceDef *def = source_load(source->relid);
	SourceReader *reader;
	MemoryContext old;
	ListCell *lc;

	def->event_time = source->event_time;
	def->watermark_delay = source->watermark_delay;
	foreach (lc, self.readers)
	{
		reader = lfirst(lc);
		if (source_is_unchanged(reader->def, def))
			return reader;
		if (reader->def->relid == source->relid)
		{
			self.readers = foreach_delete_current(self.readers, lc);
			source_reader_close(reader);
		}
	}
	reader = source_reader_open(self.context, def, self.launch.query_id);
	wakeup_unsubscribe_all(); /* news are for the leader */
	old = MemoryContextSwitchTo(self.context);
	self.readers = lappend(self.readers, reader);
	MemoryContextSwitchTo(old);
	return reader;
}

static SourceBatch *
batch_read(ByteReader *order, Run *run)
{
	SourceBatch *batch = palloc0(sizeof(SourceBatch));
	OrderSource source;

	message_get(order, &source, sizeof(source));
	batch->from = source.from_start ? NULL : message_get_sized(order, NULL);
	batch->to = source.nothing ? NULL : message_get_sized(order, NULL);
	batch->reader = reader_for(&source);
	batch->info = &run->head.info;
	batch->observer_taken = !source.observe;
	batch->max_bad_rows = source.max_bad_rows;
	batch->max_event_time = source.max_event_time;
	batch->share = run->head.share;
	batch->shares = run->head.shares;
	batch->share_rows = run->head.share_rows;
	return batch;
}

/* The transaction begins here: what follows in the order is read in it. */
static void
run_begin(Run *run, ByteReader *order)
{
	Snapshot snapshot;

	message_get(order, &run->head, sizeof(run->head));
	run->head.info.query_name = message_get_text(order);
	run->query.settings = message_get_sized(order, NULL);
	snapshot = RestoreSnapshot(message_get_sized(order, NULL));
	RestoreTransactionSnapshot(snapshot, self.shared->leader);
	PushActiveSnapshot(snapshot);
	query_apply_settings(&run->query);
	XactReadOnly = true; /* the leader is the only writer */
	for (int i = 0; i < run->head.nsources; i++)
		run->batches = lappend(run->batches, batch_read(order, run));
}

/* ---- scan ---- */

static void
block_begin(Run *run, uint64 order)
{
	message_begin(&run->block, MESSAGE_ROWS);
	message_put(&run->block, &order, sizeof(order));
}

static void
scan_run(Run *run, ByteReader *order)
{
	SourceBatch *batch = linitial(run->batches);
	Bitmapset *needed = bms_make_singleton(0);
	TupleTableSlot *slot = MakeSingleTupleTableSlot(batch->reader->def->desc, &TTSOpsVirtual);
	bool any = false;
	uint64 number = 0;
	SourceScan *scan;
	RowShape shape;

	for (int n = bytes_get_varint(order); n > 0; n--)
		needed = bms_add_member(needed, (int) bytes_get_varint(order) + 1);
	row_shape_init(&shape, batch->reader->def->desc, needed);
	scan = source_scan_open(batch->reader, batch, needed);
	while (source_scan_next(scan, slot))
	{
		if (!any || number != scan->order || run->block.len >= TASK_BLOCK_BYTES)
		{
			if (any)
				message_send(&run->block);
			any = true;
			number = scan->order;
			block_begin(run, number);
		}
		row_write(&shape, &run->block, slot);
	}
	if (any)
		message_send(&run->block);
	source_scan_close(scan);
	ExecDropSingleTupleTableSlot(slot);
}

/* ---- fold ---- */

typedef struct FoldReceiver
{
	DestReceiver pub;
	Operator *op;
} FoldReceiver;

static bool
fold_receive(TupleTableSlot *slot, DestReceiver *self)
{
	FoldReceiver *receiver = (FoldReceiver *) self;

	receiver->op->ops->receive(receiver->op, 0, slot);
	return true;
}

static void
fold_startup(DestReceiver *self, int operation, TupleDesc desc)
{
}

static void
fold_nothing(DestReceiver *self)
{
}

static void
group_send(void *arg, const char *bytes, Size length)
{
	Run *run = arg;

	CHECK_FOR_INTERRUPTS();
	if (run->block.len >= TASK_BLOCK_BYTES)
	{
		message_send(&run->block);
		message_begin(&run->block, MESSAGE_GROUPS);
	}
	message_put(&run->block, bytes, length);
}

/* The leader holds them already, and we never wait for what it holds. */
static void
plan_lock_relations(PlannedStmt *planned)
{
	ListCell *lc;

	foreach (lc, planned->rtable)
	{
		RangeTblEntry *rte = lfirst(lc);

		if (rte->rtekind == RTE_RELATION)
			LockRelationOid(rte->relid, rte->rellockmode);
	}
}

static void
plan_run(Run *run, PlannedStmt *planned, Operator *op)
{
	FoldReceiver receiver = {{fold_receive, fold_startup, fold_nothing, fold_nothing, DestNone}, op};
	QueryDesc *desc;

	plan_lock_relations(planned);
	desc = CreateQueryDesc(planned, "", GetActiveSnapshot(), InvalidSnapshot, (DestReceiver *) &receiver, batch_info_params(&run->head.info), NULL, 0);
	ExecutorStart(desc, 0);
	compat_run(desc);
	ExecutorFinish(desc);
	ExecutorEnd(desc);
	FreeQueryDesc(desc);
}

static void
fold_run(Run *run, ByteReader *order)
{
	PlannedStmt *planned = stringToNode(message_get_text(order));
	OperatorSpec *spec = aggregate_spec_read(order);
	Operator *op = spec->ops->open(spec, run->head.info.query_id, &memory_state, -1);
	ListCell *lc;

	op->ops->begin(op, &run->head.info);
	source_set_running(run->batches);
	plan_run(run, planned, op);
	foreach (lc, run->batches)
		source_drain(lfirst(lc));
	source_set_running(NIL);
	message_begin(&run->block, MESSAGE_GROUPS);
	aggregate_partials_give(op, group_send, run);
	message_send(&run->block);
	run->dropped = op->metrics.dropped;
	op->ops->close(op);
}

/* ---- life ---- */

/* All our orders of a batch are one in stream.operations; the report stays until the next batch, for it counts where the batch is shown. */
static void
progress_begin(Run *run)
{
	if (self.batch_id != run->head.info.batch_id)
		operation_show(OPERATION_SHARE, run->head.info.query_id, run->head.info.batch_id, 0);
	self.batch_id = run->head.info.batch_id;
}

static void
progress_end(Run *run)
{
	ListCell *lc;

	foreach (lc, run->batches)
		source_show_progress(lfirst(lc));
}

static void
order_carry_out(const char *bytes, Size length)
{
	ByteReader order = {bytes + sizeof(uint64), bytes + length};
	MemoryContext old = MemoryContextSwitchTo(self.run_context);
	StringInfoData done;
	Run run;

	memset(&run, 0, sizeof(run));
	pgstat_report_activity(STATE_RUNNING, "batch");
	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	MemoryContextSwitchTo(self.run_context);
	initStringInfo(&run.block);
	run_begin(&run, &order);
	progress_begin(&run);
	FAILPOINT("task");
	if (run.head.fold)
		fold_run(&run, &order);
	else
		scan_run(&run, &order);
	progress_end(&run);
	initStringInfo(&done);
	message_begin(&done, MESSAGE_DONE);
	counts_write(&done, run.batches);
	bytes_put_varint(&done, run.dropped);
	PopActiveSnapshot();
	CommitTransactionCommand();
	pgstat_report_stat(false);
	pgstat_report_activity(STATE_IDLE, NULL);
	MemoryContextSwitchTo(self.run_context);
	message_send(&done);
	MemoryContextSwitchTo(old);
	MemoryContextReset(self.run_context);
}

static void
task_connect(dsm_handle handle)
{
	dsm_segment *segment;
	shm_mq *orders, *results;

	self.context = AllocSetContextCreate(TopMemoryContext, "stream task", ALLOCSET_DEFAULT_SIZES);
	self.run_context = AllocSetContextCreate(self.context, "stream task run", ALLOCSET_DEFAULT_SIZES);
	MemoryContextSwitchTo(self.context);
	initStringInfo(&self.letter);
	CurrentResourceOwner = ResourceOwnerCreate(NULL, "stream task");
	segment = dsm_attach(handle);
	if (segment == NULL) /* the leader is gone already */
		proc_exit(0);
	dsm_pin_mapping(segment);
	self.shared = dsm_segment_address(segment);
	orders = (shm_mq *) ((char *) self.shared + TASK_ORDERS_AT);
	results = (shm_mq *) ((char *) self.shared + TASK_RESULTS_AT);
	shm_mq_set_receiver(orders, MyProc);
	shm_mq_set_sender(results, MyProc);
	self.orders = shm_mq_attach(orders, segment, NULL);
	self.results = shm_mq_attach(results, segment, NULL);
	pq_redirect_to_shm_mq(segment, self.results);
	if (!BecomeLockGroupMember(self.shared->leader, self.shared->leader_pid))
		proc_exit(0);
	process_connect(self.launch.database, self.launch.owner); /* read only is set for each run, after its settings */
	process_set("application_name", psprintf("stream_ext: task %d of query " INT64_FORMAT, self.launch.number, self.launch.query_id));
	process_set("log_min_messages", "panic"); /* the leader says what there is to say */
	dead_letter_divert(letter_send);
}

void
stream_task_main(Datum arg)
{
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, die);
	memcpy(&self.launch, MyBgworkerEntry->bgw_extra, sizeof(TaskLaunch));
	BackgroundWorkerUnblockSignals();
	self.batch_id = -1;
	task_connect(DatumGetUInt32(arg));
	pgstat_report_activity(STATE_IDLE, NULL);
	for (;;)
	{
		Size length;
		void *bytes;

		if (shm_mq_receive(self.orders, &length, &bytes, false) != SHM_MQ_SUCCESS)
			break;
		CHECK_FOR_INTERRUPTS();
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
		}
		order_carry_out(bytes, length);
	}
	proc_exit(0);
}
