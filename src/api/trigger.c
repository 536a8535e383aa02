/*
 * trigger.c: which queries may run in epochs. Real-time and continuous triggers pass rows on in pieces, and what a sink or an operator makes of a piece must be
 * what it would make of the whole batch. Said when the query is made, by name, with the way out.
 */
#include "api/query.h"

#include "operator/operator.h"
#include "plan/plan.h"
#include "sink/sink.h"

#define AS_SOON_AS_POSSIBLE "Use stream.processing_time('0 seconds'): a batch starts as soon as data arrives."

/* What its users call it; NULL: it works in pieces. */
static const char *
operator_refused(const OperatorSpec *spec)
{
	if (spec->ops == &aggregate_operator || spec->ops == &hop_operator || spec->ops == &dedup_operator || spec->ops == &transform_operator)
		return NULL;
	if (spec->ops == &join_operator)
		return "a join of streams";
	if (spec->ops == &session_operator)
		return "a session window";
	if (spec->ops == &limit_operator)
		return "LIMIT";
	return psprintf("operator %s", spec->ops->name);
}

static void
check_real_time(StreamQuery *query, StreamPlan *plan)
{
	ListCell *lc;

	if (query->output_mode != OUTPUT_UPDATE)
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						errmsg("trigger real_time of query \"%s\" is not supported in output mode %s", query->name, output_mode_name(query->output_mode)),
						errdetail("Rows flow before it is known whether they are final."), errhint("Use output_mode => 'update'.")));
	foreach (lc, plan->operators)
	{
		const char *what = operator_refused(lfirst(lc));

		if (what)
			ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED), errmsg("%s is not supported with trigger real_time", what),
							errhint(AS_SOON_AS_POSSIBLE)));
	}
}

static void
check_continuous(StreamQuery *query, StreamPlan *plan)
{
	if (query->output_mode == OUTPUT_COMPLETE)
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						errmsg("trigger continuous of query \"%s\" is not supported in output mode complete", query->name),
						errhint("Use output mode append or update.")));
	if (plan->operators != NIL)
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						errmsg("trigger continuous of query \"%s\" supports only queries without state", query->name),
						errdetail("Aggregates, DISTINCT, joins of streams, LIMIT and transform_with_state keep state."),
						errhint("Use stream.real_time() in output mode update, or stream.processing_time('0 seconds').")));
}

void
query_check_trigger(StreamQuery *query, StreamPlan *plan, SinkDef *sink)
{
	TriggerKind kind = query->trigger.kind;

	if (kind != TRIGGER_REAL_TIME && kind != TRIGGER_CONTINUOUS)
		return;
	if (kind == TRIGGER_REAL_TIME)
		check_real_time(query, plan);
	else
		check_continuous(query, plan);
	if (sink->ops->in_pieces == NULL || !sink->ops->in_pieces(sink))
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						errmsg("sink %s of query \"%s\" is not supported with trigger %s", sink->ops->kind, query->name, trigger_kind_name(kind)),
						errdetail("It takes all rows of a batch at once; with this trigger they come in pieces."), errhint(AS_SOON_AS_POSSIBLE)));
}
