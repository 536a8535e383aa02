/*
 * batch.c: one batch: plan → log → execute → sink → commit.
 *
 * Two transactions. The first logs offsets/N: from then on batch N means exactly that range. The second runs it: output, state and commits/N become visible
 * together or not at all. When output goes only to this database the first commit is asynchronous: the second flushes it. When more data already waits,
 * offsets/N+1 rides in the second, and the next batch needs one transaction only.
 */
#include "batch/batch.h"

#include "access/xact.h"
#include "batch/progress.h"
#include "batch/runtime.h"
#include "batch/watermark.h"
#include "executor/executor.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "util/clock.h"
#include "util/failpoint.h"
#include "util/json_build.h"
#include "util/options.h"
#include "utils/fmgrprotos.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/queryenvironment.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

/* ---- plan: what is the next batch? ---- */

static Position *
position_get(Jsonb *positions, const char *source)
{
	return jsonb_get_object(positions, source);
}

/* When timers or expired state ask for a batch by the clock. */
static TimestampTz
operators_next_due(QueryRuntime *rt)
{
	TimestampTz due = DT_NOEND;
	ListCell *lc;

	if (!rt->query->options.no_data_batches || rt->last_batch < 0)
		return DT_NOEND;
	foreach (lc, rt->operators)
	{
		Operator *op = lfirst(lc);

		if (op->ops->next_due)
			due = Min(due, op->ops->next_due(op));
	}
	return due;
}

static bool
no_data_batch_due(QueryRuntime *rt)
{
	ListCell *lc;

	if (!rt->query->options.no_data_batches || rt->last_batch < 0)
		return false;
	if (operators_next_due(rt) <= clock_now())
		return true;
	foreach (lc, rt->operators)
	{
		Operator *op = lfirst(lc);

		if (op->ops->wants_batch(op, rt->last_offsets.watermark, rt->last_commit.next_watermark))
			return true;
	}
	return false;
}

/* Rows wait for min_rows_per_batch: not yet, unless max_trigger_delay has passed since the last batch. */
static bool
rows_are_too_few(QueryRuntime *rt, int64 waiting)
{
	QueryOptions *o = &rt->query->options;

	rt->due_at = 0;
	if (o->min_rows_per_batch == 0 || rt->last_batch < 0 || rt->ignore_limits || rt->ceilings != NIL || waiting < 0 || waiting == 0 ||
		waiting >= o->min_rows_per_batch)
		return false;
	rt->due_at = rt->last_offsets.batch_time + o->max_trigger_delay;
	return clock_now() < rt->due_at;
}

/* Where a source without an entry in the log starts: fixed at the first look, so that "latest" means the same after a restart. */
static Position *
start_position(QueryRuntime *rt, SourceReader *reader)
{
	Position *start = position_get(rt->query->starts, reader->def->name);
	JsonBuild b = {NULL, NULL};
	MemoryContext old;

	if (start)
		return start;
	start = reader->ops->initial(reader);
	if (start == NULL)
		return NULL;
	json_object_begin(&b, NULL);
	json_add_json(&b, reader->def->name, start);
	json_object_end(&b);
	old = MemoryContextSwitchTo(rt->context);
	rt->query->starts = DatumGetJsonbP(DirectFunctionCall2(jsonb_concat, JsonbPGetDatum(rt->query->starts), JsonbPGetDatum(json_result(&b))));
	MemoryContextSwitchTo(old);
	query_update(rt->query);
	return start;
}

typedef struct PlannedRange
{
	Position *from, *to; /* to NULL: no rows */
} PlannedRange;

/* Asks every source for its next range. True when one has something. */
static bool
ranges_plan(QueryRuntime *rt, PlannedRange *ranges, JsonBuild *behind)
{
	QueryOptions *o = &rt->query->options;
	ReadLimit limit = {rt->ignore_limits ? 0 : o->max_rows_per_batch, rt->ignore_limits ? 0 : o->max_bytes_per_batch,
					   rt->ignore_limits ? 0 : o->min_rows_per_batch, rt->ignore_limits};
	bool any = false;
	int64 waiting = 0;
	ListCell *lc;
	int i = 0;

	rt->more = false;
	foreach (lc, rt->readers)
	{
		SourceReader *reader = lfirst(lc);
		Position *ceiling = rt->ceilings ? list_nth(rt->ceilings, i) : NULL;
		SourceAdvance advance;

		ranges[i].from = position_get(rt->last_offsets.offsets, reader->def->name);
		if (ranges[i].from == NULL)
			ranges[i].from = start_position(rt, reader);
		advance = reader->ops->advance(reader, ranges[i].from, ceiling, &limit);
		ranges[i].to = advance.end;
		any = any || advance.end != NULL;
		rt->more = rt->more || advance.more;
		if (advance.rows_waiting < 0 || waiting < 0)
			waiting = advance.end || waiting < 0 ? -1 : waiting;
		else
			waiting += advance.rows_waiting;
		if (advance.behind)
			json_add_json(behind, reader->def->name, advance.behind);
		i++;
	}
	return any && !rows_are_too_few(rt, waiting);
}

/* offsets/N for what there is to do, or false: nothing. Starts and ends per source; a source without news keeps its place. */
static bool
batch_plan(QueryRuntime *rt, OffsetEntry *entry)
{
	PlannedRange *ranges = palloc0(sizeof(PlannedRange) * (list_length(rt->readers) + 1));
	JsonBuild behind = {NULL, NULL}, starts = {NULL, NULL}, ends = {NULL, NULL}, conf = {NULL, NULL};
	bool has_data;
	ListCell *lc;
	int i = 0;

	json_object_begin(&behind, NULL);
	has_data = ranges_plan(rt, ranges, &behind);
	json_object_end(&behind);
	if (!has_data && !no_data_batch_due(rt))
		return false;

	json_object_begin(&starts, NULL);
	json_object_begin(&ends, NULL);
	foreach (lc, rt->readers)
	{
		SourceReader *reader = lfirst(lc);
		Position *to = has_data && ranges[i].to ? ranges[i].to : ranges[i].from;

		if (ranges[i].from)
			json_add_json(&starts, reader->def->name, ranges[i].from);
		if (to)
			json_add_json(&ends, reader->def->name, to);
		i++;
	}
	json_object_end(&starts);
	json_object_end(&ends);
	json_object_begin(&conf, NULL);
	json_add_json(&conf, "behind", json_result(&behind));
	if (rt->last_batch < 0) /* the same for all batches of an incarnation */
		json_add_json(&conf, "settings", rt->query->settings);
	json_object_end(&conf);

	entry->batch_id = rt->last_batch + 1;
	entry->starts = json_result(&starts);
	entry->offsets = json_result(&ends);
	entry->watermark = rt->last_commit.next_watermark;
	entry->late_watermark = rt->last_offsets.watermark;
	entry->batch_time = Max(clock_now(), rt->last_offsets.batch_time); /* the clock may step back; a query's time does not */
	entry->conf = json_result(&conf);
	return true;
}

/* Entries outlive the batch that made them: they are the start of the next. */
static Jsonb *
json_copy(Jsonb *json)
{
	return json ? (Jsonb *) memcpy(palloc(VARSIZE(json)), json, VARSIZE(json)) : NULL;
}

static OffsetEntry
offset_entry_copy(const OffsetEntry *entry)
{
	OffsetEntry copy = *entry;

	copy.starts = json_copy(entry->starts);
	copy.offsets = json_copy(entry->offsets);
	copy.conf = json_copy(entry->conf);
	return copy;
}

/* ---- log ---- */

/* Plans and logs the next batch; it is durable, or at least ordered before the batch's own commit, when this returns true. */
static bool
batch_log(QueryRuntime *rt, BatchDurations *durations)
{
	OffsetEntry entry;
	MemoryContext old = MemoryContextSwitchTo(rt->batch_context);
	int64 start = clock_monotonic_us();

	FAILPOINT("triggered");
	if (!batch_plan(rt, &entry))
	{
		MemoryContextSwitchTo(old);
		return false;
	}
	durations->latest_offset = clock_monotonic_us() - start;
	FAILPOINT("planned");
	offset_log_add(rt->query->id, &entry);
	MemoryContextSwitchTo(rt->log_context);
	rt->pending_offsets = offset_entry_copy(&entry);
	MemoryContextSwitchTo(old);
	return true;
}

/* ---- execute ---- */

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

/* Runs one stage; rows that reached the sink are returned. */
static int64
stage_run(QueryRuntime *rt, BatchRun *run, Stage *stage, Tuplestorestate **outputs)
{
	StageReceiver receiver = {{operator_receive, receiver_startup, receiver_nothing, receiver_nothing, DestNone}, NULL, stage->input, rt->sink, 0};
	DestReceiver *dest = (DestReceiver *) &receiver;
	bool wrapped = stage->planned->commandType != CMD_SELECT;
	QueryDesc *desc;
	int64 rows;

	if (stage->feeds >= 0)
		receiver.op = list_nth(rt->operators, stage->feeds);
	else if (wrapped)
		dest = None_Receiver;
	else
		receiver.pub.receiveSlot = sink_receive;
	PushCopiedSnapshot(GetActiveSnapshot());
	UpdateActiveSnapshotCommandId();
	desc = CreateQueryDesc(stage->planned, rt->query->text, GetActiveSnapshot(), InvalidSnapshot, dest, batch_info_params(&run->info),
						   stage_environment(rt, stage, outputs), 0);
	ExecutorStart(desc, 0);
	ExecutorRun(desc, ForwardScanDirection, 0, true);
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

static List *
source_batches(QueryRuntime *rt, BatchRun *run)
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
		batch->max_event_time = skew >= 0 ? run->info.batch_time + skew : DT_NOEND;
		batches = lappend(batches, batch);
	}
	return batches;
}

static void
batch_execute(QueryRuntime *rt, BatchRun *run)
{
	ListCell *lc;
	int64 start = clock_monotonic_us();

	run->sources = source_batches(rt, run);
	source_set_running(run->sources);
	rt->sink->batch = &run->info;
	rt->sink->rows = 0;
	if (rt->sink->ops->begin)
		rt->sink->ops->begin(rt->sink, &run->info);
	stages_run(rt, run);
	foreach (lc, run->sources)
		source_drain(lfirst(lc));
	source_set_running(NIL);
	FAILPOINT("executed");
	if (rt->sink->ops->finish)
		rt->sink->ops->finish(rt->sink);
	FAILPOINT("sunk");
	run->durations.add_batch = clock_monotonic_us() - start;
}

/* ---- commit ---- */

/* State and commits/N into the batch's transaction. */
static void
batch_record(QueryRuntime *rt, BatchRun *run, CommitEntry *commit)
{
	ListCell *lc;

	memset(commit, 0, sizeof(*commit));
	commit->batch_id = run->info.batch_id;
	commit->rows_late = rt->last_commit.rows_late;
	commit->rows_bad = rt->last_commit.rows_bad;
	foreach (lc, rt->operators)
	{
		Operator *op = lfirst(lc);

		op->ops->flush(op);
		commit->rows_late += op->metrics.dropped;
	}
	foreach (lc, run->sources)
		commit->rows_bad += ((SourceBatch *) lfirst(lc))->rows_bad;
	watermark_advance(&rt->query->options, run->sources, jsonb_get_object(run->offsets.conf, "behind"), &rt->last_commit,
					  run->info.batch_time, commit);
	commit_log_add(rt->query->id, commit);
	progress_add(rt->query->id, run->info.batch_id, progress_build(rt, run));
}

/* The batch is done: what it was told and left behind is where the next one starts. Still before the commit, undone by runtime_forget. */
static void
runtime_advance(QueryRuntime *rt, BatchRun *run, CommitEntry *commit)
{
	MemoryContext fresh = AllocSetContextCreate(rt->context, "stream_ext logs", ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(fresh);

	rt->last_offsets = offset_entry_copy(&run->offsets);
	rt->last_commit = *commit;
	rt->last_commit.watermarks = json_copy(commit->watermarks);
	rt->last_batch = run->info.batch_id;
	rt->last_batch_at = run->info.batch_time;
	rt->pending = false;
	MemoryContextSwitchTo(old);
	MemoryContextDelete(rt->log_context);
	rt->log_context = fresh;
}

/* Does more data wait already? Then the next batch's offsets ride along. Not in the foreground, where a trigger is one batch and no more. */
static bool
next_may_ride(QueryRuntime *rt)
{
	ListCell *lc;

	if (!rt->session_lock || (rt->query->trigger.kind != TRIGGER_AVAILABLE_NOW &&
							  (rt->query->trigger.kind != TRIGGER_PROCESSING_TIME || rt->query->trigger.period > 0)))
		return false;
	if (rt->more)
		return true;
	foreach (lc, rt->readers)
	{
		SourceReader *reader = lfirst(lc);

		if (reader->ops->has_news && reader->ops->has_news(reader))
			return true;
	}
	return false;
}

static void
batch_finished(QueryRuntime *rt, BatchRun *run)
{
	ListCell *lc;

	foreach (lc, rt->operators)
	{
		Operator *op = lfirst(lc);

		op->ops->committed(op);
	}
	foreach (lc, run->sources)
	{
		SourceBatch *batch = lfirst(lc);

		if (batch->to && batch->reader->ops->acknowledge)
			batch->reader->ops->acknowledge(batch->reader, batch->to);
		rt->last_rows += batch->rows + batch->rows_bad;
	}
	rt->last_duration_us = clock_monotonic_us() - run->durations.started;
}

static void
batch_run_begin(QueryRuntime *rt, BatchRun *run)
{
	run->offsets = rt->pending_offsets;
	run->info.query_id = rt->query->id;
	run->info.query_name = rt->query->name;
	run->info.batch_id = run->offsets.batch_id;
	run->info.batch_time = run->offsets.batch_time;
	run->info.late_watermark = run->offsets.late_watermark;
	run->info.evict_watermark = run->offsets.watermark;
	run->info.output_mode = rt->query->output_mode;
	run->info.late_to_dead_letter = strcmp(rt->query->options.late_rows, "dead_letter") == 0;
}

/* An aborted batch leaves no running sources behind. */
static void
running_sources_reset(XactEvent event, void *arg)
{
	if (event == XACT_EVENT_ABORT || event == XACT_EVENT_COMMIT)
		source_set_running(NIL);
}

static void
batch_init_once(void)
{
	static bool done = false;

	if (!done)
		RegisterXactCallback(running_sources_reset, NULL);
	done = true;
}

bool
batch_run(QueryRuntime *rt)
{
	BatchRun run;
	CommitEntry commit;
	MemoryContext old;

	batch_init_once();
	memset(&run, 0, sizeof(run));
	MemoryContextReset(rt->batch_context);
	run.durations.started = clock_monotonic_us();
	rt->last_rows = 0;

	runtime_begin(rt);
	runtime_read_logs(rt);
	runtime_prepare(rt);
	run.durations.query_planning = clock_monotonic_us() - run.durations.started;
	if (!rt->pending)
	{
		int64 start;

		if (!batch_log(rt, &run.durations))
		{
			runtime_commit(rt);
			return false;
		}
		if (rt->sink->ops->in_database)
			(void) set_config_option("synchronous_commit", "off", PGC_USERSET, PGC_S_SESSION, GUC_ACTION_LOCAL, true, 0, false);
		start = clock_monotonic_us();
		runtime_commit(rt);
		rt->pending = true;
		run.durations.wal_commit = clock_monotonic_us() - start;
		FAILPOINT("logged");
		runtime_begin(rt);
		if (!rt->session_lock)
			runtime_read_logs(rt);
		runtime_prepare(rt);
	}

	old = MemoryContextSwitchTo(rt->batch_context);
	batch_run_begin(rt, &run);
	batch_execute(rt, &run);
	batch_record(rt, &run, &commit);
	runtime_advance(rt, &run, &commit);
	if (next_may_ride(rt))
		rt->pending = batch_log(rt, &run.durations);
	MemoryContextSwitchTo(old);
	runtime_commit(rt);
	FAILPOINT("committed");
	batch_finished(rt, &run);
	return true;
}

bool
batch_is_due(QueryRuntime *rt)
{
	return rt->pending || !rt->logs_known || no_data_batch_due(rt) || (rt->due_at != 0 && clock_now() >= rt->due_at);
}

TimestampTz
batch_next_due(QueryRuntime *rt)
{
	return Min(rt->due_at != 0 ? rt->due_at : DT_NOEND, operators_next_due(rt));
}

void
batch_housekeeping(QueryRuntime *rt)
{
	int64 retain = rt->query->options.min_batches_to_retain;
	int64 upto = rt->last_batch - retain;
	bool fold = false;
	ListCell *lc;

	foreach (lc, rt->operators)
	{
		Operator *op = lfirst(lc);

		fold = fold || (op->ops->fold_due && op->ops->fold_due(op));
	}
	/* In steps of a quarter of what is kept, so that hardly any batch is followed by a purge. */
	if (!fold && upto - rt->purged_upto < Max(retain / 4, 16))
		return;
	runtime_begin(rt);
	if (fold)
		state_fold(rt->query->id, rt->last_batch, retain);
	if (upto > rt->purged_upto)
		logs_purge(rt->query->id, upto);
	rt->purged_upto = Max(upto, rt->purged_upto);
	(void) set_config_option("synchronous_commit", "off", PGC_USERSET, PGC_S_SESSION, GUC_ACTION_LOCAL, true, 0, false);
	runtime_commit(rt);
}
