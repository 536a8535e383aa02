/*
 * execute.c: runs a batch: its sources' ranges → stages (Postgres's executor) → operators → sink. No commit, no log.
 * Whatever the plan reads, every row of the ranges is seen exactly once before this returns.
 */
#include "batch/step.h"

#include "access/xact.h"
#include "executor/executor.h"
#include "metadata/dead_letter.h"
#include "metadata/replay.h"
#include "miscadmin.h"
#include "util/clock.h"
#include "util/compat.h"
#include "util/failpoint.h"
#include "util/operation.h"
#include "utils/queryenvironment.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

typedef struct StageReceiver
{
	DestReceiver pub;
	Operator *op;
	int input;
	Sink *sink;
	int64 rows;
} StageReceiver;

static bool
operator_receive(TupleTableSlot *slot, DestReceiver *self)
{
	StageReceiver *r = (StageReceiver *) self;

	r->op->ops->receive(r->op, r->input, slot);
	return true;
}

static bool
sink_receive(TupleTableSlot *slot, DestReceiver *self)
{
	StageReceiver *r = (StageReceiver *) self;

	r->sink->ops->receive(r->sink, slot);
	r->rows++;
	return true;
}

static bool
sink_retract(TupleTableSlot *slot, DestReceiver *self)
{
	StageReceiver *r = (StageReceiver *) self;

	r->sink->ops->retract(r->sink, slot);
	return true;
}

static void
receiver_startup(DestReceiver *self, int operation, TupleDesc desc)
{
}

static void
receiver_nothing(DestReceiver *self)
{
}

/* Operators' outputs a stage reads, as ephemeral relations. */
static QueryEnvironment *
stage_environment(QueryRuntime *rt, Stage *stage, Tuplestorestate **outputs)
{
	QueryEnvironment *env = create_queryEnv();
	ListCell *lc;

	foreach (lc, stage->reads)
	{
		int i = lfirst_int(lc);
		EphemeralNamedRelation enr = palloc0(sizeof(EphemeralNamedRelationData));

		enr->md.name = stage_relation_name(i);
		enr->md.tupdesc = ((OperatorSpec *) list_nth(rt->plan->operators, i))->output;
		enr->md.enrtype = ENR_NAMED_TUPLESTORE;
		enr->md.enrtuples = tuplestore_tuple_count(outputs[i]);
		enr->reldata = outputs[i];
		register_ENR(env, enr);
	}
	return env;
}

/* How many rows a stage is going to read: of operators it is known, of sources expected. -1: nobody knows. */
static double
stage_rows(Stage *stage, Tuplestorestate **outputs)
{
	double rows = 0;
	ListCell *lc;

	foreach (lc, stage->reads)
		rows += tuplestore_tuple_count(outputs[lfirst_int(lc)]);
	foreach (lc, stage->sources)
	{
		SourceBatch *batch = source_running(lfirst_oid(lc));

		if (batch == NULL || batch->to == NULL)
			continue;
		if (batch->reader->rows_expected < 0)
			return -1;
		rows += batch->reader->rows_expected;
	}
	return rows;
}

/* ---- tasks ---- */

/* Below that many rows they cost more than they do. Where nobody knows how many there are, there may be many. */
static bool
batch_is_worth_tasks(SourceBatch *batch)
{
	return batch->to != NULL && batch->reader->ops->shares &&
		   (batch->reader->rows_expected < 0 || batch->reader->rows_expected >= stream_task_rows);
}

/* Rows of a source without partitions go to the shares by turns; few at a time where batches are small. */
#define SHARE_ROWS 1024

static void
tasks_attach(QueryRuntime *rt, BatchRun *run)
{
	ListCell *lc;

	if (query_parallelism(&rt->query->options) <= 1)
		return;
	foreach (lc, run->sources)
	{
		SourceBatch *batch = lfirst(lc);

		batch->share_rows = Max(1, Min(SHARE_ROWS, stream_task_rows / 8));
		if (!batch_is_worth_tasks(batch))
			continue;
		if (rt->tasks == NULL)
		{
			MemoryContext old = MemoryContextSwitchTo(rt->context);

			rt->tasks = task_pool_open(rt->query);
			MemoryContextSwitchTo(old);
		}
		if (rt->tasks == NULL)
			return;
		rt->tasks_used = clock_monotonic_us();
		task_scan_attach(rt->tasks, batch);
	}
}

/* Where groups are nearly as many as rows, they cost more on their way than rows do. Looked at again after so many batches. */
#define ROWS_PER_GROUP 3
#define UNFOLDED_BATCHES 64

static void
stage_fold(QueryRuntime *rt, Stage *stage, List *batches, PlannedStmt *planned)
{
	int64 rows = 0, groups = task_fold(rt->tasks, batches, planned, list_nth(rt->operators, stage->feeds));
	ListCell *lc;

	foreach (lc, batches)
		rows += ((SourceBatch *) lfirst(lc))->rows;
	if (groups * ROWS_PER_GROUP > rows && stream_task_rows > 0)
		stage->unfolded = UNFOLDED_BATCHES;
}

/* The ranges of a stage that tasks run; NIL: it runs here. */
static List *
stage_shared_batches(Stage *stage)
{
	List *batches = NIL;
	bool any = false;
	ListCell *lc;

	if (stage->alone || (stage->unfolded > 0 && stage->unfolded-- > 0))
		return NIL;
	foreach (lc, stage->sources)
	{
		SourceBatch *batch = source_running(lfirst_oid(lc));

		if (batch == NULL || batch->letters != NIL || (batch->to != NULL && batch->remote == NULL))
			return NIL;
		any |= batch->to != NULL;
		batches = lappend(batches, batch);
	}
	return any ? batches : NIL;
}

/* Runs one stage; rows that reached the sink are returned. */
static int64
stage_run(QueryRuntime *rt, BatchRun *run, Stage *stage, Tuplestorestate **outputs)
{
	StageReceiver receiver = {{operator_receive, receiver_startup, receiver_nothing, receiver_nothing, DestNone}, NULL, stage->input, rt->sink, 0};
	DestReceiver *dest = (DestReceiver *) &receiver;
	PlannedStmt *planned = plan_stage(rt->plan, stage, stage_rows(stage, outputs));
	bool wrapped = planned->commandType != CMD_SELECT;
	List *shared = stage_shared_batches(stage);
	QueryDesc *desc;
	int64 rows;

	if (shared != NIL)
	{
		stage_fold(rt, stage, shared, planned);
		return 0;
	}
	if (stage->feeds >= 0)
		receiver.op = list_nth(rt->operators, stage->feeds);
	else if (stage->retracts)
		receiver.pub.receiveSlot = sink_retract;
	else if (wrapped)
		dest = None_Receiver;
	else
		receiver.pub.receiveSlot = sink_receive;
	PushCopiedSnapshot(GetActiveSnapshot());
	UpdateActiveSnapshotCommandId();
	desc = CreateQueryDesc(planned, rt->query->text, GetActiveSnapshot(), InvalidSnapshot, dest, batch_info_params(&run->info),
						   stage_environment(rt, stage, outputs), 0);
	ExecutorStart(desc, 0);
	compat_run(desc);
	rows = wrapped ? (int64) desc->estate->es_processed : receiver.rows;
	ExecutorFinish(desc);
	ExecutorEnd(desc);
	FreeQueryDesc(desc);
	PopActiveSnapshot();
	CommandCounterIncrement();
	return rows;
}

/* Stages in order; an operator emits when all its inputs have run. */
static void
stages_run(QueryRuntime *rt, BatchRun *run)
{
	int n = list_length(rt->operators);
	Tuplestorestate **outputs = palloc0(sizeof(Tuplestorestate *) * (n + 1));
	int *fed = palloc0(sizeof(int) * (n + 1));
	ListCell *lc;

	foreach (lc, rt->operators)
	{
		Operator *op = lfirst(lc);

		memset(&op->metrics, 0, sizeof(op->metrics));
		op->out = outputs[foreach_current_index(lc)] = tuplestore_begin_heap(false, false, work_mem);
		operator_begin_stores(op, run->info.batch_id);
		op->ops->begin(op, &run->info);
	}
	foreach (lc, rt->plan->stages)
	{
		Stage *stage = lfirst(lc);
		int64 rows = stage_run(rt, run, stage, outputs);
		Operator *op;

		if (stage->feeds < 0)
		{
			run->rows_out += rows;
			continue;
		}
		op = list_nth(rt->operators, stage->feeds);
		if (++fed[stage->feeds] < op->spec->ninputs)
			continue;
		op->ops->finish(op, outputs[stage->feeds]);
	}
	for (int i = 0; i < n; i++)
		tuplestore_end(outputs[i]);
}

List *
batch_sources(QueryRuntime *rt, BatchRun *run)
{
	List *batches = NIL;
	int64 skew = rt->query->options.max_event_time_skew;
	ListCell *lc;

	foreach (lc, rt->readers)
	{
		SourceReader *reader = lfirst(lc);
		SourceBatch *batch = palloc0(sizeof(SourceBatch));

		batch->reader = reader;
		batch->info = &run->info;
		batch->from = position_get(run->offsets.starts, reader->def->name);
		batch->to = position_get(run->offsets.offsets, reader->def->name);
		if (batch->from && batch->to && compareJsonbContainers(&batch->from->root, &batch->to->root) == 0)
			batch->to = NULL;
		run->info.has_data = run->info.has_data || batch->to != NULL;
		batch->max_bad_rows = rt->query->options.max_bad_rows_per_batch;
		batch->max_event_time = skew >= 0 ? run->info.batch_time + skew : DT_NOEND;
		batches = lappend(batches, batch);
	}
	return batches;
}

static SourceBatch *
letter_batch(List *batches, DeadLetter *letter)
{
	ListCell *lc;

	foreach (lc, batches)
	{
		SourceBatch *batch = lfirst(lc);

		if (letter->source && strcmp(batch->reader->def->name, letter->source) == 0 && batch->reader->ops->scan_again)
			return batch;
	}
	return NULL;
}

/* Dead letters that come again with this batch, to their sources. */
static void
letters_load(QueryRuntime *rt, BatchRun *run)
{
	int64 *ids;
	int n = replay_ids_read(run->offsets.conf, &ids);

	for (int i = 0; i < n; i++)
	{
		DeadLetter *letter;
		SourceBatch *batch;
		SourceLetter *again;

		/* After a rewind a batch may have succeeded with what was asked for again after it had failed. */
		if (!replay_is_waiting(rt->query->id, ids[i]))
			continue;
		letter = dead_letter_get(ids[i]);
		batch = letter ? letter_batch(run->sources, letter) : NULL;
		if (batch == NULL)
		{
			/* Altered meanwhile: it stays what it is. */
			replay_forget(rt->query->id, ids[i]);
			continue;
		}
		again = palloc0(sizeof(SourceLetter));
		again->id = letter->id;
		again->position = letter->position;
		again->raw = letter->raw;
		again->raw_len = letter->raw_len;
		batch->letters = lappend(batch->letters, again);
		run->info.has_data = true;
	}
}

/* An aborted batch leaves no running sources behind. */
static void
running_sources_reset(XactEvent event, void *arg)
{
	if (event == XACT_EVENT_ABORT || event == XACT_EVENT_COMMIT)
		source_set_running(NIL);
}

static void
running_sources_register(void)
{
	static bool done = false;

	if (!done)
		RegisterXactCallback(running_sources_reset, NULL);
	done = true;
}

void
batch_execute(QueryRuntime *rt, BatchRun *run)
{
	ListCell *lc;
	int64 start = clock_monotonic_us();

	running_sources_register();
	run->sources = batch_sources(rt, run);
	letters_load(rt, run);
	tasks_attach(rt, run);
	source_set_running(run->sources);
	operation_show(OPERATION_BATCH, run->info.query_id, run->info.batch_id, 0);
	rt->sink->batch = &run->info;
	rt->sink->rows = rt->sink->rows_bad = 0;
	if (rt->sink->ops->begin)
		rt->sink->ops->begin(rt->sink, &run->info);
	stages_run(rt, run);
	foreach (lc, run->sources)
		source_drain(lfirst(lc));
	source_set_running(NIL);
	operation_end();
	FAILPOINT("executed");
	if (rt->sink->ops->finish)
		rt->sink->ops->finish(rt->sink);
	run->rows_out -= rt->sink->rows_bad;
	FAILPOINT("sunk");
	run->durations.add_batch = clock_monotonic_us() - start;
}
