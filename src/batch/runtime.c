/*
 * runtime.c: a query ready to run in this process: compiled plan, open sources, operators with their state, place in the logs.
 * Everything here can be thrown away and made again from the catalog and the logs: that is what a restart is.
 */
#include "batch/runtime.h"

#include "access/xact.h"
#include "executor/spi.h"
#include "foreign/foreign.h"
#include "miscadmin.h"
#include "util/clock.h"
#include "util/failpoint.h"
#include "util/json_build.h"
#include "util/options.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

/* ---- transactions: our own in a worker, the procedure's in the foreground ---- */

/* The lock went with the last transaction: another session may have changed the query, and its state, since it was opened here. */
static void
query_check_unchanged(QueryRuntime *rt)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "stream_ext query check", ALLOCSET_SMALL_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);

	if (!query_is_same(rt->query, query_load_again(rt->query)))
		ereport(ERROR, (errcode(ERRCODE_OBJECT_IN_USE), errmsg("streaming query \"%s\" was changed while it was being run", rt->query->name),
						errdetail("Another session has altered or reset it between two transactions."), errhint("Run it again.")));
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
}

void
runtime_begin(QueryRuntime *rt)
{
	if (rt->session_lock)
		StartTransactionCommand();
	/* Before the snapshot, which must see what whoever held the lock has committed. */
	if (!rt->session_lock && !query_lock(rt->query->id, false))
		ereport(ERROR, (errcode(ERRCODE_OBJECT_IN_USE), errmsg("streaming query \"%s\" is running", rt->query->name),
						errhint("Stop it first with stream.stop_query.")));
	PushActiveSnapshot(GetTransactionSnapshot());
	query_apply_settings(rt->query);
	if (!rt->session_lock)
		query_check_unchanged(rt);
}

void
runtime_commit(QueryRuntime *rt)
{
	PopActiveSnapshot();
	if (rt->session_lock)
		CommitTransactionCommand();
	else
		SPI_commit();
}

/* ---- logs ---- */

static void operators_drop(QueryRuntime *rt);

/* The batch whose state is the present: last_batch, or the open epoch's. */
static int64
state_batch(QueryRuntime *rt)
{
	return rt->epoch_open ? rt->epoch.batch_id : rt->last_batch;
}

static void
epoch_read(QueryRuntime *rt)
{
	MemoryContext old;

	MemoryContextReset(rt->epoch_context);
	old = MemoryContextSwitchTo(rt->epoch_context);
	rt->epoch_open = epoch_log_last(rt->query->id, &rt->epoch);
	MemoryContextSwitchTo(old);
}

void
runtime_read_logs(QueryRuntime *rt)
{
	int64 known = state_batch(rt), known_flush = rt->epoch_open ? rt->epoch.flush : -1;
	MemoryContext old;

	if (rt->logs_known && rt->session_lock)
		return;
	MemoryContextReset(rt->log_context);
	old = MemoryContextSwitchTo(rt->log_context);
	rt->last_batch = -1;
	memset(&rt->last_commit, 0, sizeof(rt->last_commit));
	rt->last_commit.batch_id = -1;
	rt->last_commit.next_watermark = DT_NOBEGIN;
	memset(&rt->last_offsets, 0, sizeof(rt->last_offsets));
	rt->last_offsets.watermark = DT_NOBEGIN;
	if (commit_log_last(rt->query->id, &rt->last_commit))
	{
		rt->last_batch = rt->last_commit.batch_id;
		if (!offset_log_get(rt->query->id, rt->last_batch, &rt->last_offsets))
			ereport(ERROR, (errcode(ERRCODE_DATA_CORRUPTED),
							errmsg("offset log of streaming query \"%s\" lacks batch " INT64_FORMAT, rt->query->name, rt->last_batch),
							errhint("Start afresh with stream.reset_query.")));
		rt->last_batch_at = rt->last_offsets.batch_time;
	}
	rt->pending_fresh = false;
	rt->pending = offset_log_get(rt->query->id, rt->last_batch + 1, &rt->pending_offsets);
	rt->logs_known = true;
	MemoryContextSwitchTo(old);
	epoch_read(rt);
	if (state_batch(rt) != known || (rt->epoch_open ? rt->epoch.flush : -1) != known_flush) /* somebody else ran batches in between */
		operators_drop(rt);
}

/* ---- plan, sources, operators ---- */

static void
plan_drop(QueryRuntime *rt)
{
	if (rt->sink && rt->sink->ops->close)
		rt->sink->ops->close(rt->sink);
	rt->sink = NULL;
	if (rt->plan && rt->plan != rt->spec_plan)
		MemoryContextDelete(rt->plan->context);
	rt->plan = NULL;
}

/* A reader per source of the plan; those whose source has not changed stay open. */
static void
readers_open(QueryRuntime *rt)
{
	MemoryContext old = MemoryContextSwitchTo(rt->context);
	List *old_readers = list_copy(rt->readers), *readers = NIL;
	ListCell *lc, *lc2;

	foreach (lc, rt->plan->sources)
	{
		SourceDef *def = lfirst(lc);
		SourceReader *reader = NULL;

		FAILPOINT("opening");
		foreach (lc2, old_readers)
			if (source_is_unchanged(((SourceReader *) lfirst(lc2))->def, def))
				reader = lfirst(lc2);
		if (reader)
			old_readers = list_delete_ptr(old_readers, reader);
		else
			reader = source_reader_open(rt->context, def, rt->query->id);
		reader->scouts = reader->ops->shares && query_parallelism(&rt->query->options) > 1;
		readers = lappend(readers, reader);
	}
	list_free(rt->readers);
	rt->readers = readers;
	foreach (lc, old_readers)
		source_reader_close(lfirst(lc));
	MemoryContextSwitchTo(old);
}

static void
operators_drop(QueryRuntime *rt)
{
	ListCell *lc;

	foreach (lc, rt->operators)
	{
		Operator *op = lfirst(lc);

		op->ops->close(op);
	}
	rt->operators = NIL;
	MemoryContextReset(rt->operator_context);
	if (rt->spec_plan && rt->spec_plan != rt->plan)
		MemoryContextDelete(rt->spec_plan->context);
	rt->spec_plan = NULL;
}

static void
operators_open(QueryRuntime *rt)
{
	MemoryContext old = MemoryContextSwitchTo(rt->operator_context);
	const StateProvider *provider = state_provider(rt->query->options.state_provider);
	ListCell *lc;

	if (rt->plan->operators != NIL && provider != state_provider_of(rt->query->id))
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("saved state of streaming query \"%s\" is not where option state_provider \"%s\" says", rt->query->name, provider->name),
						errhint("Start afresh with stream.reset_query.")));
	foreach (lc, rt->plan->operators)
	{
		OperatorSpec *spec = lfirst(lc);
		Operator *op = spec->ops->open(spec, rt->query->id, provider, state_batch(rt));

		rt->operators = lappend(rt->operators, op);
	}
	rt->spec_plan = rt->plan;
	MemoryContextSwitchTo(old);
}

/* The saved state must be what the plan's operators would have written. */
static void
signature_check(QueryRuntime *rt)
{
	char *difference = plan_signature_difference(rt->query->signature, rt->plan->signature);

	if (state_batch(rt) >= 0 && difference)
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("saved state of streaming query \"%s\" does not fit its plan any more", rt->query->name),
						errdetail("%s.", difference),
						errhint("A function, type or relation the query uses has changed. Undo that, or start afresh with stream.reset_query.")));
}

static void
runtime_compile(QueryRuntime *rt)
{
	/* The tree the plan is cut from, and what else comes up: it goes with the plan, which is made anew whenever somebody analyzes a table. */
	MemoryContext work = AllocSetContextCreate(CurTransactionContext, "stream_ext compile", ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(work);
	StreamPlan *plan = plan_compile(rt->query, query_view_tree(rt->query));
	SinkDef *def;

	MemoryContextSetParent(plan->context, rt->context);
	MemoryContextSetParent(work, plan->context);
	rt->compiled = false;
	plan_drop(rt);
	rt->plan = plan;
	signature_check(rt);
	MemoryContextSwitchTo(rt->plan->context);
	def = sink_def_load(rt->query);
	rt->sink = def->ops->open(def, &rt->plan->shape);
	plan_stages(rt->plan, rt->sink);
	plan_watch(rt->plan);
	MemoryContextSwitchTo(old);
	readers_open(rt);
	rt->compiled = true;
}

void
runtime_prepare(QueryRuntime *rt)
{
	for (int tries = 0;; tries++)
	{
		if (!rt->compiled || !plan_is_valid(rt->plan))
			runtime_compile(rt);
		plan_lock(rt->plan);
		if (plan_is_valid(rt->plan))
			break;
		if (tries >= 10)
			ereport(ERROR, (errcode(ERRCODE_LOCK_NOT_AVAILABLE),
							errmsg("relations of streaming query \"%s\" keep changing while it is being planned", rt->query->name)));
	}
	if (rt->spec_plan == NULL)
		operators_open(rt);
}

QueryRuntime *
runtime_open(StreamQuery *query, bool session_lock)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "stream_ext query", ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	QueryRuntime *rt = palloc0(sizeof(QueryRuntime));
	QueryRun run;

	rt->context = context;
	rt->log_context = AllocSetContextCreate(context, "stream_ext logs", ALLOCSET_DEFAULT_SIZES);
	rt->epoch_context = AllocSetContextCreate(context, "stream_ext epoch", ALLOCSET_DEFAULT_SIZES);
	rt->batch_context = AllocSetContextCreate(context, "stream_ext batch", ALLOCSET_DEFAULT_SIZES);
	rt->operator_context = AllocSetContextCreate(context, "stream_ext operators", ALLOCSET_DEFAULT_SIZES);
	rt->query = query_load_by_id(query->id, false);
	rt->session_lock = session_lock;
	rt->ignore_limits = rt->query->trigger.kind == TRIGGER_ONCE;
	rt->purged_upto = -1;
	query_run_load(query->id, &run);
	rt->run_id = session_lock && run.run_id ? run.run_id : query_run_new_id();
	query_apply_settings(rt->query);
	runtime_read_logs(rt);
	runtime_prepare(rt);
	MemoryContextSwitchTo(old);
	return rt;
}

static void
tasks_close(QueryRuntime *rt)
{
	TaskPool *tasks = rt->tasks;

	rt->tasks = NULL;
	if (tasks)
		task_pool_close(tasks);
}

/* What they have fetched ahead takes memory, and their clients have things to say that nobody hears. */
#define TASKS_IDLE_US (60 * INT64CONST(1000000))

void
runtime_rest_tasks(QueryRuntime *rt)
{
	if (rt->tasks && clock_monotonic_us() - rt->tasks_used > TASKS_IDLE_US)
		tasks_close(rt);
}

void
runtime_close(QueryRuntime *rt)
{
	ListCell *lc;

	tasks_close(rt);

	foreach (lc, rt->readers)
	{
		SourceReader *reader = lfirst(lc);

		reader->ops->close(reader);
	}
	operators_drop(rt);
	plan_drop(rt);
	MemoryContextDelete(rt->context);
}

void
runtime_forget(QueryRuntime *rt)
{
	tasks_close(rt); /* in whatever they are */
	/* State is read again by the next batch, from what is committed. */
	operators_drop(rt);
	rt->logs_known = false;
	MemoryContextReset(rt->batch_context);
}

void
runtime_fix_ends(QueryRuntime *rt)
{
	MemoryContext old = MemoryContextSwitchTo(rt->context);
	ListCell *lc;

	rt->ceilings = NIL;
	foreach (lc, rt->readers)
	{
		SourceReader *reader = lfirst(lc);

		rt->ceilings = lappend(rt->ceilings, reader->ops->latest(reader));
	}
	MemoryContextSwitchTo(old);
}
