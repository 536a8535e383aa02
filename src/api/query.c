/*
 * query.c: create, alter, drop, reset, rewind, skip, explain.
 * Everything is checked when it is said, not when it first runs: a query that was created can run.
 */
#include "api/query.h"

#include "access/xact.h"
#include "batch/batch.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "funcapi.h"
#include "metadata/attempt.h"
#include "metadata/change_slot.h"
#include "metadata/dead_letter.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "operator/operator.h"
#include "state/store.h"
#include "util/compat.h"
#include "util/heap.h"
#include "util/json_build.h"
#include "util/options.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "worker/worker.h"

PG_FUNCTION_INFO_V1(stream_create_query);
PG_FUNCTION_INFO_V1(stream_alter_query);
PG_FUNCTION_INFO_V1(stream_drop_query);
PG_FUNCTION_INFO_V1(stream_reset_query);
PG_FUNCTION_INFO_V1(stream_explain_query);

static char *
text_argument(FunctionCallInfo fcinfo, int argno, const char *what)
{
	if (PG_ARGISNULL(argno))
		ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("%s must not be null", what)));
	return text_to_cstring(PG_GETARG_TEXT_PP(argno));
}

StreamQuery *
query_argument(FunctionCallInfo fcinfo, int argno)
{
	StreamQuery *query = query_load(text_argument(fcinfo, argno, "name of a streaming query"), false);

	query_check_owner(query);
	return query;
}

StreamQuery *
query_argument_stopped(FunctionCallInfo fcinfo, int argno)
{
	StreamQuery *query = query_argument(fcinfo, argno);

	query_check_stopped(query);
	return query_load_again(query);
}

void
query_check_stopped(StreamQuery *query)
{
	if (worker_is_running(query->id) || !query_lock(query->id, false))
		ereport(ERROR, (errcode(ERRCODE_OBJECT_IN_USE), errmsg("streaming query \"%s\" is running", query->name),
						errhint("Stop it first with stream.stop_query.")));
}

/* Nothing is new in it but aggregates, of operators that can take them. */
static bool
plan_extends(StreamPlan *plan, Jsonb *saved)
{
	ListCell *lc;

	if (!plan_signature_extends(saved, plan->signature))
		return false;
	foreach (lc, plan->operators)
	{
		OperatorSpec *spec = lfirst(lc);

		if (spec->ops->extend == NULL && plan_signature_calls(saved, plan->signature, foreach_current_index(lc)) != NIL)
			return false;
	}
	return true;
}

/* Saved state against a new plan: 55000 with what differs. */
static void
query_check_compatible(StreamQuery *query, StreamPlan *plan, bool new_aggregates)
{
	CommitEntry commit;
	EpochEntry epoch;
	char *difference;
	bool extends;

	if (!commit_log_last(query->id, &commit) && !epoch_log_last(query->id, &epoch))
		return;
	difference = plan_signature_difference(query->signature, plan->signature);
	if (difference == NULL)
		return;
	extends = plan_extends(plan, query->signature);
	if (extends && new_aggregates)
		return;
	ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					errmsg("new text of streaming query \"%s\" is incompatible with its saved state", query->name), errdetail("%s.", difference),
					extends ? errhint("With new_aggregates => true new aggregates start empty in the windows that are open. Else start afresh with "
									  "stream.reset_query first, or make a new query.")
							: errhint("Start afresh with stream.reset_query first, or make a new query.")));
}

/* May its owner read what it names? Checked again by every batch; a query that cannot run is not made. */
static bool
rights_check_walker(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (!IsA(node, Query))
		return expression_tree_walker(node, rights_check_walker, context);
	(void) compat_check_permissions((Query *) node);
	return query_tree_walker((Query *) node, rights_check_walker, context, 0);
}

/* Triggers that end by themselves wait for nobody. */
static void
check_limits(StreamQuery *query)
{
	QueryOptions *options = &query->options;

	if (query->trigger.kind == TRIGGER_PROCESSING_TIME && options->max_rows_per_batch > 0 && options->min_rows_per_batch > options->max_rows_per_batch)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("min_rows_per_batch of query \"%s\" exceeds max_rows_per_batch", query->name),
						errdetail("It would wait for " INT64_FORMAT " rows and take " INT64_FORMAT " of them.", options->min_rows_per_batch,
								  options->max_rows_per_batch)));
}

/* Compiles the tree and lets the sink make its target: all that can be wrong with a query is found here. State it may have saved comes first. */
static StreamPlan *
query_check(StreamQuery *query, Query *tree, bool new_aggregates)
{
	StreamPlan *plan = plan_compile(query, copyObject(tree));
	SinkDef *def = sink_def_load(query);
	Sink *sink;
	ListCell *lc;

	check_limits(query);
	if (query->signature)
		query_check_compatible(query, plan, new_aggregates);
	query_check_trigger(query, plan, def);
	sink_check_shape(def, &plan->shape);
	def->ops->create(def, &plan->shape);
	query->sink = sink_def_to_datum(def);
	CommandCounterIncrement();
	sink = def->ops->open(def, &plan->shape);
	foreach (lc, plan->sources)
	{
		SourceDef *source = lfirst(lc);
		Oid base = source->ops->base_relation ? source->ops->base_relation(source) : InvalidOid;

		if (OidIsValid(base) && def->ops->target_relation && def->ops->target_relation(sink) == base)
			ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
							errmsg("streaming query \"%s\" would write to the table that its source %s reads", query->name, source->name),
							errhint("Choose another target.")));
	}
	plan_stages(plan, sink);
	query->signature = plan->signature;
	return plan;
}

static void
raise_notices(StreamPlan *plan)
{
	ListCell *lc;

	foreach (lc, plan->notices)
		ereport(NOTICE, (errmsg("%s", (char *) lfirst(lc))));
}

/* Not an error: whoever writes to a topic may be the one who makes it. */
static void
warn_absent(StreamPlan *plan)
{
	ListCell *lc;

	foreach (lc, plan->sources)
	{
		SourceDef *source = lfirst(lc);
		char *absent = source->ops->absent ? source->ops->absent(source) : NULL;

		if (absent)
			ereport(WARNING, (errcode(ERRCODE_FDW_TABLE_NOT_FOUND), errmsg("source %s is to read %s, which does not exist", source->name, absent),
							  errdetail("The query waits for it."), errhint("If the name is wrong, correct it with stream.alter_source.")));
	}
}

/* create_query(name, query, sink, output_mode, trigger, options, start, if_not_exists) → id */
Datum
stream_create_query(PG_FUNCTION_ARGS)
{
	StreamQuery *query = palloc0(sizeof(StreamQuery));
	StreamQuery *existing;
	StreamPlan *plan;
	QueryRun created = {.status = "created"};
	Query *tree;

	query->name = text_argument(fcinfo, 0, "name of a streaming query");
	query->text = text_argument(fcinfo, 1, "text of a streaming query");
	if (query->name[0] == '\0')
		ereport(ERROR, (errcode(ERRCODE_INVALID_NAME), errmsg("name of a streaming query must not be empty")));
	existing = query_load(query->name, true);
	if (existing)
	{
		bool skip = !PG_ARGISNULL(7) && PG_GETARG_BOOL(7);

		ereport(skip ? NOTICE : ERROR, (errcode(ERRCODE_DUPLICATE_OBJECT), errmsg("streaming query \"%s\" already exists%s", query->name,
																				  skip ? ", skipping" : "")));
		PG_RETURN_INT64(existing->id);
	}
	if (PG_ARGISNULL(2))
		ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("sink of streaming query \"%s\" must not be null", query->name),
						errhint("Use stream.to_table('target').")));
	query->sink = PG_GETARG_DATUM(2);
	query->output_mode = output_mode_parse(PG_ARGISNULL(3) ? "append" : text_to_cstring(PG_GETARG_TEXT_PP(3)));
	query->trigger_datum = PG_ARGISNULL(4) ? (Datum) 0 : PG_GETARG_DATUM(4);
	if (PG_ARGISNULL(4))
		ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("trigger of streaming query \"%s\" must not be null", query->name)));
	query->trigger = trigger_from_datum(query->trigger_datum);
	query->options_json = PG_ARGISNULL(5) ? DatumGetJsonbP(DirectFunctionCall1(jsonb_in, CStringGetDatum("{}"))) : PG_GETARG_JSONB_P(5);
	query_options_read(query);
	query->owner = GetUserId();
	query->owner_name = GetUserNameFromId(query->owner, false);
	query->settings = query_capture_settings();
	query->starts = DatumGetJsonbP(DirectFunctionCall1(jsonb_in, CStringGetDatum("{}")));
	worker_check_owner(query);

	tree = query_text_analyze(query->text);
	(void) rights_check_walker((Node *) tree, NULL);
	query->id = query_next_id();
	query_view_create(query, tree);
	plan = query_check(query, tree, false);
	state_create(query->id, state_provider(query->options.state_provider));
	query_insert(query);
	query_run_store(query->id, &created);
	raise_notices(plan);
	warn_absent(plan);
	if (PG_ARGISNULL(6) || PG_GETARG_BOOL(6))
		worker_request_start(query->id);
	PG_RETURN_INT64(query->id);
}

/* ---- alter ---- */

/* Options are merged; a JSON null takes one away. */
static Jsonb *
options_merge(Jsonb *old, Jsonb *changes)
{
	Datum merged = DirectFunctionCall2(jsonb_concat, JsonbPGetDatum(old), JsonbPGetDatum(changes));

	return DatumGetJsonbP(DirectFunctionCall1(jsonb_strip_nulls, merged));
}

/* The state goes to the provider that the options name now. */
static void
state_move(StreamQuery *query, StreamPlan *plan)
{
	const StateProvider *provider = state_provider(query->options.state_provider);
	CommitEntry commit = {-1};
	List *operators = NIL, *stores = NIL;
	ListCell *lc;

	if (provider == state_provider_of(query->id))
		return;
	(void) query_lock_housekeeping(query->id, true);
	(void) commit_log_last(query->id, &commit);
	state_create(query->id, provider);
	foreach (lc, provider == &table_state ? plan->operators : NIL)
	{
		OperatorSpec *spec = lfirst(lc);
		Operator *op = spec->ops->open(spec, query->id, provider, commit.batch_id);

		operators = lappend(operators, op);
		stores = list_concat(stores, op->stores);
	}
	state_convert(query->id, provider, stores, commit.batch_id);
	foreach (lc, operators)
	{
		Operator *op = lfirst(lc);

		op->ops->close(op);
	}
}

/* Aggregates that are new start empty in every group that is saved. In memory: state in place goes there, and back when it is moved. */
static void
state_extend(StreamQuery *query, StreamPlan *saved, StreamPlan *plan)
{
	CommitEntry commit;
	ListCell *lc;

	if (!commit_log_last(query->id, &commit) || !plan_extends(plan, saved->signature))
		return;
	(void) query_lock_housekeeping(query->id, true);
	if (state_provider_of(query->id) == &table_state)
		state_convert(query->id, &memory_state, NIL, commit.batch_id);
	foreach (lc, plan->operators)
	{
		OperatorSpec *spec = lfirst(lc);
		List *places = plan_signature_calls(saved->signature, plan->signature, foreach_current_index(lc));
		Operator *op;

		if (places == NIL)
			continue;
		op = spec->ops->open(spec, query->id, &memory_state, commit.batch_id);
		spec->ops->extend(op, list_nth(saved->operators, foreach_current_index(lc)), places);
		state_replace(linitial(op->stores), commit.batch_id);
		op->ops->close(op);
	}
}

/* What was kept for sources that the query does not read any more; one that comes back begins anew. */
static void
sources_forget(StreamQuery *query, StreamPlan *plan)
{
	List *names = NIL;
	ListCell *lc;

	foreach (lc, plan->sources)
		names = lappend(names, ((SourceDef *) lfirst(lc))->name);
	foreach (lc, change_slots_keep(query->id, names))
		query->starts = DatumGetJsonbP(DirectFunctionCall2(jsonb_delete, JsonbPGetDatum(query->starts), CStringGetTextDatum(lfirst(lc))));
}

/* alter_query(name, query, sink, trigger, options, new_aggregates) */
Datum
stream_alter_query(PG_FUNCTION_ARGS)
{
	StreamQuery *query = query_argument_stopped(fcinfo, 0);
	bool new_aggregates = !PG_ARGISNULL(5) && PG_GETARG_BOOL(5);
	OwnerScope scope;
	Query *tree;
	StreamPlan *plan, *saved = NULL;

	query_owner_begin(query, &scope);
	if (!PG_ARGISNULL(1))
	{
		if (new_aggregates)
			saved = plan_compile(query, query_view_tree(query));
		query->text = text_to_cstring(PG_GETARG_TEXT_PP(1));
		tree = query_text_analyze(query->text);
	}
	else
		tree = query_view_tree(query);
	if (!PG_ARGISNULL(2))
		query->sink = PG_GETARG_DATUM(2);
	if (!PG_ARGISNULL(3))
	{
		query->trigger_datum = PG_GETARG_DATUM(3);
		query->trigger = trigger_from_datum(query->trigger_datum);
	}
	if (!PG_ARGISNULL(4))
	{
		query->options_json = options_merge(query->options_json, PG_GETARG_JSONB_P(4));
		query_options_read(query);
	}
	plan = query_check(query, tree, new_aggregates);
	if (saved)
		state_extend(query, saved, plan);
	state_move(query, plan);
	sources_forget(query, plan);
	if (!PG_ARGISNULL(1))
	{
		query_view_drop(query);
		query_view_create(query, tree);
	}
	query_owner_end(&scope);
	query_update(query);
	raise_notices(plan);
	PG_RETURN_VOID();
}

void
query_make_again(StreamQuery *query)
{
	OwnerScope scope;
	Query *tree;
	StreamPlan *plan;

	query_owner_begin(query, &scope);
	tree = query_text_analyze(query->text);
	query_view_create(query, tree);
	plan = query_check(query, tree, false);
	query_owner_end(&scope);
	query_update(query);
	raise_notices(plan);
}

/* ---- drop, reset ---- */

/* Stopped, and locked against those who would start or drop it. NULL: there is none. */
static StreamQuery *
query_to_drop(const char *name, bool missing_ok)
{
	StreamQuery *query = query_load(name, missing_ok);

	if (query == NULL)
		return NULL;
	query_check_owner(query);
	worker_stop(query->id);
	return missing_ok ? query_load_by_id(query->id, true) : query_load_again(query);
}

/* drop_query(name, if_exists) */
Datum
stream_drop_query(PG_FUNCTION_ARGS)
{
	char *name = text_argument(fcinfo, 0, "name of a streaming query");
	StreamQuery *query = query_to_drop(name, !PG_ARGISNULL(1) && PG_GETARG_BOOL(1));

	if (query == NULL)
	{
		ereport(NOTICE, (errmsg("streaming query \"%s\" does not exist, skipping", name)));
		PG_RETURN_VOID();
	}
	if (!query_lock(query->id, false))
		ereport(ERROR, (errcode(ERRCODE_OBJECT_IN_USE), errmsg("streaming query \"%s\" is being run by another session", query->name)));
	(void) query_lock_housekeeping(query->id, true);
	query_view_drop(query);
	logs_truncate(query->id);
	state_delete(query->id);
	dead_letters_delete(query->id, 0);
	attempts_delete(query->id);
	query_delete(query->id);
	PG_RETURN_VOID();
}

/* reset_query(name) */
Datum
stream_reset_query(PG_FUNCTION_ARGS)
{
	StreamQuery *query = query_argument_stopped(fcinfo, 0);
	OwnerScope scope;

	(void) query_lock_housekeeping(query->id, true);
	logs_truncate(query->id);
	state_delete(query->id);
	state_create(query->id, state_provider(query->options.state_provider));
	query->signature = NULL;
	query_options_read(query);
	query_owner_begin(query, &scope);
	query->signature = plan_compile(query, query_view_tree(query))->signature;
	query_owner_end(&scope);
	query->starts = DatumGetJsonbP(DirectFunctionCall1(jsonb_in, CStringGetDatum("{}")));
	query->incarnation++;
	query_update(query);
	query_run_forgive(query->id);
	PG_RETURN_VOID();
}

/* explain_query(name) → lines */
Datum
stream_explain_query(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	StreamQuery *query = query_argument(fcinfo, 0);
	OwnerScope scope;
	StreamPlan *plan;
	SinkDef *def;
	List *lines;
	ListCell *lc;

	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	query_owner_begin(query, &scope);
	plan = plan_compile(query, query_view_tree(query));
	def = sink_def_load(query);
	plan_stages(plan, def->ops->open(def, &plan->shape));
	lines = lcons(psprintf("Sink %s, %s mode", def->ops->describe(def), output_mode_name(query->output_mode)), plan_explain(plan));
	query_owner_end(&scope);
	foreach (lc, lines)
	{
		Datum value = CStringGetTextDatum((char *) lfirst(lc));
		bool isnull = false;

		tuplestore_putvalues(result->setResult, result->setDesc, &value, &isnull);
	}
	return (Datum) 0;
}
