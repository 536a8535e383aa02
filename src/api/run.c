/*
 * run.c: batches in the foreground (run_batch, process_all_available), rewind and skip.
 * The procedures commit on their own, so they refuse explicit transaction blocks; and they run as nobody but the owner, because a batch runs user code.
 */
#include "api/query.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "batch/batch.h"
#include "executor/spi.h"
#include "funcapi.h"
#include "metadata/replay.h"
#include "miscadmin.h"
#include "state/store.h"
#include "util/json_build.h"
#include "util/operation.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "worker/worker.h"

PG_FUNCTION_INFO_V1(stream_run_batch);
PG_FUNCTION_INFO_V1(stream_process_all_available);
PG_FUNCTION_INFO_V1(stream_rewind_query);
PG_FUNCTION_INFO_V1(stream_skip_batch);

static void
foreground_check(FunctionCallInfo fcinfo, StreamQuery *query)
{
	CallContext *context = (CallContext *) fcinfo->context;

	if (context == NULL || !IsA(context, CallContext) || context->atomic)
		ereport(ERROR, (errcode(ERRCODE_INVALID_TRANSACTION_TERMINATION),
						errmsg("streaming query \"%s\" cannot be run inside a transaction block", query->name),
						errdetail("A batch commits by itself: its transaction is its checkpoint."),
						errhint("CALL it on its own, outside BEGIN … COMMIT and outside functions.")));
	if (GetUserId() != query->owner || GetSessionUserId() != query->owner)
		ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
						errmsg("streaming query \"%s\" can only be run in the foreground by its owner", query->name),
						errdetail("A batch runs user code, so the session must belong to role \"%s\", not just SET ROLE to it.", query->owner_name),
						errhint("Connect as the owner, or let stream.start_query run it in the background.")));
}

static void
rewind_check_owner(StreamQuery *query)
{
	if (sink_def_load(query)->ops != &table_sink)
		return;
	if (GetUserId() != query->owner || GetSessionUserId() != query->owner)
		ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE), errmsg("streaming query \"%s\" can only be rewound by its owner", query->name),
						errdetail("Its target is looked at and rows may leave it, which runs user code: the session must belong to role \"%s\", not just SET ROLE to it.",
								  query->owner_name),
						errhint("Connect as the owner.")));
}

/* Opens the query in memory that outlives transactions. The transaction of the CALL is still the first one. */
static QueryRuntime *
foreground_open(StreamQuery *query)
{
	MemoryContext old;
	QueryRuntime *rt;

	/* What the caller's procedure has written so far is input too. */
	SPI_commit();
	old = MemoryContextSwitchTo(PortalContext);
	if (!query_lock(query->id, false))
		ereport(ERROR, (errcode(ERRCODE_OBJECT_IN_USE), errmsg("streaming query \"%s\" is running", query->name),
						errhint("Stop it first with stream.stop_query.")));
	PushActiveSnapshot(GetTransactionSnapshot());
	rt = runtime_open(query, false);
	PopActiveSnapshot();
	MemoryContextSwitchTo(old);
	return rt;
}

static Datum
boolean_row(FunctionCallInfo fcinfo, bool value)
{
	TupleDesc desc;
	Datum values[1] = {BoolGetDatum(value)};
	bool nulls[1] = {false};

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		ereport(ERROR, (errcode(ERRCODE_INTERNAL_ERROR), errmsg("run_batch must return a row")));
	return HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc), values, nulls));
}

/* run_batch(name, OUT ran) */
Datum
stream_run_batch(PG_FUNCTION_ARGS)
{
	StreamQuery *query = query_argument(fcinfo, 0);
	QueryRuntime *rt;
	bool ran;

	if (worker_is_running(query->id))
		ereport(ERROR, (errcode(ERRCODE_OBJECT_IN_USE), errmsg("streaming query \"%s\" is running", query->name),
						errhint("Stop it first with stream.stop_query.")));
	foreground_check(fcinfo, query);
	SPI_connect_ext(SPI_OPT_NONATOMIC);
	rt = foreground_open(query);
	ran = batch_run(rt);
	if (ran)
		batch_housekeeping(rt);
	runtime_close(rt);
	SPI_finish();
	return boolean_row(fcinfo, ran);
}

/* process_all_available(name) */
Datum
stream_process_all_available(PG_FUNCTION_ARGS)
{
	StreamQuery *query = query_argument(fcinfo, 0);
	QueryRuntime *rt;

	if (worker_is_running(query->id))
	{
		worker_refuse_early_wait(query->id, query->name);
		worker_wait_idle(query->id);
		return (Datum) 0;
	}
	foreground_check(fcinfo, query);
	SPI_connect_ext(SPI_OPT_NONATOMIC);
	rt = foreground_open(query);
	while (batch_run(rt))
	{
		CHECK_FOR_INTERRUPTS();
		batch_housekeeping(rt);
	}
	batch_leave(rt);
	runtime_close(rt);
	SPI_finish();
	return (Datum) 0;
}

/* Two queries that add to one target number their batches alike. */
static void
target_check_own(StreamQuery *query, SinkDef *def)
{
	char *other = sink_shared_by(query->id, def);

	if (other)
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("query \"%s\" cannot be rewound: query \"%s\" writes to the same target %s", query->name, other, def->target),
						errdetail("Rows of later batches must go, and whose they are cannot be told.")));
}

/* The target's rows of later batches go with the logs, where that takes more than the batches coming again. */
static void
target_rewind(StreamQuery *query, int64 batch_id)
{
	SinkDef *def = sink_def_load(query);
	StreamPlan *plan;

	if (def->ops->rewind == NULL)
		return;
	plan = plan_compile(query, query_view_tree(query));
	if (def->ops == &table_sink && plan->shape.mode != OUTPUT_COMPLETE && !plan->shape.aggregated)
		target_check_own(query, def);
	def->ops->rewind(def, &plan->shape, batch_id);
}

static void
sink_skip(StreamQuery *query, int64 batch_id)
{
	SinkDef *def = sink_def_load(query);

	if (def->ops->skip)
		def->ops->skip(def, batch_id);
}

/* Sources that let go of what is committed. */
static void
rewind_check_sources(StreamQuery *query)
{
	StreamPlan *plan = plan_compile(query, query_view_tree(query));
	ListCell *lc;

	foreach (lc, plan->sources)
	{
		SourceDef *def = lfirst(lc);

		if (def->ops->forgets)
			ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE), errmsg("streaming query \"%s\" cannot be rewound", query->name),
							errdetail("What a batch has committed of %s source %s cannot be read again.", def->ops->kind, def->name),
							errhint("stream.reset_query starts the query afresh.")));
	}
}

/* rewind_query(name, batch_id): back to just after that batch; what is logged beyond comes again, with the same ids over the same ranges. */
Datum
stream_rewind_query(PG_FUNCTION_ARGS)
{
	StreamQuery *query = query_argument_stopped(fcinfo, 0);
	int64 batch_id = PG_GETARG_INT64(1);
	CommitEntry last;
	OffsetEntry entry;
	OwnerScope scope;

	if (!commit_log_last(query->id, &last) || batch_id < 0 || batch_id > last.batch_id)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("streaming query \"%s\" has not committed batch " INT64_FORMAT, query->name, batch_id)));
	if (!offset_log_get(query->id, batch_id, &entry) || batch_id < state_oldest_batch(query->id))
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("batch " INT64_FORMAT " of streaming query \"%s\" is not retained any more", batch_id, query->name),
						errhint("Option min_batches_to_retain says how far back a query can go; stream.reset_query starts afresh.")));
	rewind_check_owner(query);
	query_owner_begin(query, &scope);
	rewind_check_sources(query);
	(void) query_lock_housekeeping(query->id, true);
	operation_show(OPERATION_REWIND_TARGET, query->id, batch_id, 0);
	target_rewind(query, batch_id);
	query_owner_end(&scope);
	commits_truncate_after(query->id, batch_id);
	operation_show(OPERATION_REWIND_STATE, query->id, batch_id, 0);
	state_rewind(query->id, batch_id);
	operation_end();
	PG_RETURN_VOID();
}

static Jsonb *
skipped_progress(StreamQuery *query, int64 batch_id)
{
	JsonBuild b = {NULL, NULL};

	json_object_begin(&b, NULL);
	json_add_text(&b, "id", psprintf(INT64_FORMAT, query->id));
	json_add_text(&b, "name", query->name);
	json_add_int(&b, "batchId", batch_id);
	json_add_int(&b, "numInputRows", 0);
	json_add_bool(&b, "skipped", true);
	json_object_end(&b);
	return json_result(&b);
}

/* Dead letters the batch would have taken stay dead letters. */
static void
replays_forget(StreamQuery *query, OffsetEntry *entry)
{
	int64 *ids;
	int n = replay_ids_read(entry->conf, &ids);

	for (int i = 0; i < n; i++)
		replay_forget(query->id, ids[i]);
}

/* skip_batch(name, batch_id): the batch that cannot succeed is given up: its range counts as read, nothing of it has an effect. */
Datum
stream_skip_batch(PG_FUNCTION_ARGS)
{
	StreamQuery *query = query_argument_stopped(fcinfo, 0);
	int64 batch_id = PG_GETARG_INT64(1);
	CommitEntry commit = {.batch_id = -1, .next_watermark = DT_NOBEGIN};
	OffsetEntry entry;
	OwnerScope scope;

	if (!commit_log_last(query->id, &commit))
		commit.watermarks = DatumGetJsonbP(DirectFunctionCall1(jsonb_in, CStringGetDatum("{}")));
	if (batch_id != commit.batch_id + 1 || !offset_log_get(query->id, batch_id, &entry))
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("batch " INT64_FORMAT " of streaming query \"%s\" is not waiting to be run", batch_id, query->name),
						errdetail("Only the batch that was logged and not committed can be skipped.")));
	query_owner_begin(query, &scope);
	sink_skip(query, batch_id);
	query_owner_end(&scope);
	replays_forget(query, &entry);
	commit.batch_id = batch_id;
	commit_log_add(query->id, &commit);
	progress_add(query->id, batch_id, skipped_progress(query, batch_id));
	query_run_forgive(query->id);
	PG_RETURN_VOID();
}
