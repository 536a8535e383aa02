/*
 * explain.c: the lines of stream.explain_query: what is remembered, when it is let go, and how Postgres runs each stage.
 */
#include "plan/internal.h"

#include "commands/explain.h"
#include "executor/executor.h"
#include "metadata/processor.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "sink/sink.h"
#include "util/compat.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/lsyscache.h"
#include "utils/ruleutils.h"
#include "utils/queryenvironment.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

static char *
interval_text(int64 us)
{
	Interval interval = {.time = us};

	return DatumGetCString(DirectFunctionCall1(interval_out, IntervalPGetDatum(&interval)));
}

static char *
describe_source(SourceDef *def)
{
	if (def->event_time == 0)
		return psprintf("Source %s (%s), no event time", def->name, def->ops->kind);
	if (def->watermark_delay < 0)
		return psprintf("Source %s (%s), event time %s, no watermark", def->name, def->ops->kind,
						NameStr(TupleDescAttr(def->desc, def->event_time - 1)->attname));
	return psprintf("Source %s (%s), event time %s, watermark %s behind", def->name, def->ops->kind,
					NameStr(TupleDescAttr(def->desc, def->event_time - 1)->attname), interval_text(def->watermark_delay));
}

static char *
column_names(TupleDesc desc, int from, int to)
{
	StringInfoData out;

	initStringInfo(&out);
	for (int i = from; i < to; i++)
		appendStringInfo(&out, "%s%s", i > from ? ", " : "", quote_identifier(NameStr(TupleDescAttr(desc, i)->attname)));
	return out.data;
}

static List *
describe_dedup(DedupSpec *spec)
{
	OperatorSpec *base = &spec->base;
	List *lines = list_make1(psprintf("Operator %d: %s (DISTINCT)", base->id, base->ops->name));

	lines = lappend(lines, psprintf("  Keys: %s", column_names(base->input[0], 0, spec->nkeys)));
	if (spec->within >= 0)
		lines = lappend(lines, psprintf("  State: a key is forgotten once the watermark is %s past its first row", interval_text(spec->within)));
	else if (spec->key_closes > 0)
		lines = lappend(lines, "  State: a key is forgotten once the watermark has passed its event time");
	else
		lines = lappend(lines, "  State: grows with the number of keys; no event time with a watermark among them");
	if (spec->event_time > 0)
		lines = lappend(lines, "  Rows behind the watermark are dropped and counted");
	return lines;
}

static List *
describe_aggregate(AggregateSpec *spec)
{
	OperatorSpec *base = &spec->base;
	List *lines = list_make1(psprintf("Operator %d: %s (%s)", base->id, base->ops->name, spec->merges ? "sessions" : "aggregate"));

	if (spec->nkeys > 0)
		lines = lappend(lines, psprintf("  Keys: %s", column_names(base->output, 0, spec->nkeys)));
	if (base->ops == &hop_operator)
		lines = lappend(lines, psprintf("  Windows: put together from panes of %s", interval_text(hop_pane(((HopSpec *) spec)->size, ((HopSpec *) spec)->slide))));
	if (spec->calls != NIL)
		lines = lappend(lines, psprintf("  Aggregates: %s", column_names(base->output, spec->nkeys, spec->nkeys + list_length(spec->calls))));
	if (base->output_mode == OUTPUT_COMPLETE)
		lines = lappend(lines, "  State: every group is kept and written with each batch");
	else if (!base->has_watermark)
		lines = lappend(lines, "  State: grows with the number of groups; no event time with a watermark among the keys");
	else
		lines = lappend(lines, psprintf("  State: a group is %s and let go once the watermark has passed its end; rows that come later are dropped and counted",
										base->output_mode == OUTPUT_APPEND ? "written" : "closed"));
	return lines;
}

static char *
describe_order(BestSpec *spec)
{
	TupleDesc input = spec->base.input[0];
	StringInfoData out;

	initStringInfo(&out);
	for (int i = 0; i < spec->nsort; i++)
		appendStringInfo(&out, "%s%s USING %s%s", i > 0 ? ", " : "",
						 quote_identifier(NameStr(TupleDescAttr(input, spec->nkeys + spec->sort_columns[i])->attname)),
						 get_opname(spec->sort_operators[i]), spec->nulls_first[i] ? " NULLS FIRST" : " NULLS LAST");
	return out.len > 0 ? out.data : "arrival";
}

static List *
describe_best(BestSpec *spec)
{
	OperatorSpec *base = &spec->base;
	List *lines = list_make1(psprintf("Operator %d: %s (best " INT64_FORMAT " of each key)", base->id, base->ops->name, spec->count));

	if (spec->nkeys > 0)
		lines = lappend(lines, psprintf("  Keys: %s", column_names(base->output, 0, spec->nkeys)));
	lines = lappend(lines, psprintf("  Order: %s", describe_order(spec)));
	if (spec->nkept > 0)
		lines = lappend(lines, psprintf("  Kept: %s", column_names(base->input[0], spec->nkeys, spec->nkeys + spec->nkept)));
	lines = lappend(lines, spec->leaves ? "  Rows that are no longer among the best leave the target one by one" : "  A better row takes another one's place in the target");
	if (base->has_watermark)
		lines = lappend(lines, "  State: a key is let go once the watermark has passed its end; rows that come later are dropped and counted");
	else
		lines = lappend(lines, "  State: grows with the number of keys; no event time with a watermark among them");
	return lines;
}

static List *
describe_transform(TransformSpec *spec)
{
	List *lines = list_make1(psprintf("Operator %d: %s (processor %s)", spec->base.id, spec->base.ops->name, spec->processor->name));
	ListCell *lc;

	foreach (lc, spec->processor->variables)
	{
		ProcessorVariable *variable = lfirst(lc);

		lines = lappend(lines, psprintf("  State %s: %s of %s%s%s", variable->name, variable_kind_name(variable->kind), format_type_be(variable->type),
										variable->ttl < 0 ? "" : ", forgotten after ", variable->ttl < 0 ? "" : interval_text(variable->ttl)));
	}
	if (spec->processor->handle_timer)
		lines = lappend(lines, psprintf("  Timers: fire when %s has reached them", spec->event_time > 0 ? "the watermark" : "the clock"));
	if (spec->event_time > 0)
		lines = lappend(lines, "  Rows behind the watermark are dropped and counted");
	return lines;
}

static List *
describe_join(JoinSpec *spec)
{
	static const char *const types[] = {"INNER JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "semi-join"};
	OperatorSpec *base = &spec->base;
	List *lines = list_make1(psprintf("Operator %d: %s (%s)", base->id, base->ops->name, types[spec->type]));

	for (int i = 0; i < 2; i++)
	{
		const char *side = i == 0 ? "Left" : "Right";

		lines = lappend(lines, psprintf("  %s keys: %s", side, column_names(base->input[i], 0, spec->nkeys)));
		lines = lappend(lines, psprintf("  %s state: %s", side, spec->expires[i] > 0 ? "a row waits until the watermark rules out a match" :
																				"grows with every row; no time bound"));
		if (spec->event_time[i] > 0)
			lines = lappend(lines, psprintf("  %s rows behind the watermark are dropped and counted", side));
	}
	return lines;
}

static List *
describe_operator(OperatorSpec *spec)
{
	if (spec->ops == &aggregate_operator || spec->ops == &session_operator || spec->ops == &hop_operator)
		return describe_aggregate((AggregateSpec *) spec);
	if (spec->ops == &best_operator)
		return describe_best((BestSpec *) spec);
	if (spec->ops == &dedup_operator)
		return describe_dedup((DedupSpec *) spec);
	if (spec->ops == &transform_operator)
		return describe_transform((TransformSpec *) spec);
	if (spec->ops == &join_operator)
		return describe_join((JoinSpec *) spec);
	return list_make1(psprintf("Operator %d: %s", spec->id, spec->ops->name));
}

/* Empty relations in place of what operators will hand on: the executor wants to see them even to explain. */
static QueryEnvironment *
explain_environment(StreamPlan *plan)
{
	QueryEnvironment *environment = create_queryEnv();
	ListCell *lc;

	foreach (lc, plan->operators)
	{
		OperatorSpec *spec = lfirst(lc);
		EphemeralNamedRelation relation = palloc0(sizeof(EphemeralNamedRelationData));

		relation->md.name = stage_relation_name(spec->id);
		relation->md.tupdesc = spec->output;
		relation->md.enrtype = ENR_NAMED_TUPLESTORE;
		relation->reldata = tuplestore_begin_heap(false, false, work_mem);
		register_ENR(environment, relation);
	}
	return environment;
}

static List *
describe_stage_plan(StreamPlan *plan, PlannedStmt *planned)
{
	ExplainState *es = NewExplainState();
	QueryDesc *desc;
	List *lines = NIL;
	char *line, *rest;

	es->format = EXPLAIN_FORMAT_TEXT;
	es->costs = false;
	es->verbose = false;
	desc = CreateQueryDesc(planned, plan->source_text, GetActiveSnapshot(), InvalidSnapshot,
						   None_Receiver, NULL, explain_environment(plan), 0);
	ExecutorStart(desc, EXEC_FLAG_EXPLAIN_ONLY);
	ExplainBeginOutput(es);
	ExplainPrintPlan(es, desc);
	ExplainEndOutput(es);
	ExecutorEnd(desc);
	FreeQueryDesc(desc);
	for (line = strtok_r(es->str->data, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
		lines = lappend(lines, pstrdup(line));
	return lines;
}

static bool
same_lines(List *a, List *b)
{
	ListCell *one, *other;

	forboth (one, a, other, b)
		if (strcmp(lfirst(one), lfirst(other)) != 0)
			return false;
	return list_length(a) == list_length(b);
}

/* One plan where all sizes of batches have the same. */
static List *
describe_stage_plans(StreamPlan *plan, Stage *stage)
{
	List *plans[STAGE_SIZES], *lines = NIL;
	bool differ = false;

	for (int size = 0; size < STAGE_SIZES; size++)
	{
		plans[size] = describe_stage_plan(plan, size_plan(plan, stage, size));
		differ |= size > 0 && !same_lines(plans[size], plans[size - 1]);
	}
	for (int size = 0; size < STAGE_SIZES; size++)
	{
		ListCell *lc;

		if (size < STAGE_SIZES - 1 && same_lines(plans[size], plans[size + 1]))
			continue;
		if (differ)
			lines = lappend(lines, psprintf("  Reading %s:", size_name(size) ? size_name(size) : "more"));
		foreach (lc, plans[size])
			lines = lappend(lines, psprintf(differ ? "    %s" : "  %s", (char *) lfirst(lc)));
	}
	return lines;
}

/* ---- the tree: what writes, above what it reads ---- */

#define INDENT_STEP 6

typedef struct Tree
{
	StreamPlan *plan;
	List *lines;
	Bitmapset *told; /* operators that stand in it already */
} Tree;

static void
tree_add(Tree *tree, int indent, const char *line)
{
	tree->lines = lappend(tree->lines, psprintf("%*s%s", indent, "", line));
}

static void tree_add_operator(Tree *tree, int indent, int id);

static void
tree_add_stage(Tree *tree, int indent, int number)
{
	Stage *stage = list_nth(tree->plan->stages, number);
	const char *arrow = indent > 0 ? "->  " : "";
	ListCell *lc;

	tree_add(tree, indent, stage->retracts	? psprintf("%sStage %d, what leaves the target:", arrow, number) :
						   stage->feeds < 0 ? psprintf("%sStage %d, into the sink:", arrow, number) :
											  psprintf("%sStage %d, into operator %d:", arrow, number, stage->feeds));
	indent += strlen(arrow);
	if (tree->plan->parallelism > 1 && stage->sources != NIL)
		tree_add(tree, indent, stage->alone ? psprintf("  Tasks read for it what can be shared: %s", stage->alone) : "  Tasks run it, each over a share of the rows");
	if (stage->statement)
		foreach (lc, describe_stage_plans(tree->plan, stage))
			tree_add(tree, indent, lfirst(lc));
	foreach (lc, stage->reads)
		tree_add_operator(tree, indent + 2, lfirst_int(lc));
}

static void
tree_add_operator(Tree *tree, int indent, int id)
{
	ListCell *lc;
	bool first = true;

	if (bms_is_member(id, tree->told))
	{
		tree_add(tree, indent, psprintf("->  Operator %d, as above", id));
		return;
	}
	tree->told = bms_add_member(tree->told, id);
	foreach (lc, describe_operator(list_nth(tree->plan->operators, id)))
	{
		tree_add(tree, indent, psprintf("%s%s", first ? "->  " : "    ", (char *) lfirst(lc)));
		first = false;
	}
	foreach (lc, tree->plan->stages)
		if (((Stage *) lfirst(lc))->feeds == id)
			tree_add_stage(tree, indent + INDENT_STEP, foreach_current_index(lc));
}

List *
plan_explain(StreamPlan *plan)
{
	Tree tree = {.plan = plan};
	ListCell *lc;

	foreach (lc, plan->sources)
		tree_add(&tree, 0, describe_source(lfirst(lc)));
	foreach (lc, plan->stages)
		if (((Stage *) lfirst(lc))->feeds < 0)
			tree_add_stage(&tree, 0, foreach_current_index(lc));
	return tree.lines;
}
