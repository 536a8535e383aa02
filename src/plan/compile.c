/*
 * compile.c: a SELECT becomes stages and operators.
 * Levels are cut depth first, so that operators come in the order of execution: what is left of the top level at the end is the last stage, for the sink.
 */
#include "plan/internal.h"

#include "executor/executor.h"
#include "nodes/nodeFuncs.h"
#include "utils/memutils.h"

int
cut_add_stage(Compile *c, Query *query, int feeds, int input)
{
	Stage *stage = palloc0(sizeof(Stage));

	stage->query = query;
	stage->feeds = feeds;
	stage->input = input;
	stage->reads = tree_operators_read(query);
	c->plan->stages = lappend(c->plan->stages, stage);
	return list_length(c->plan->stages) - 1;
}

/* Subqueries first; then what is stateful at this level. */
void
cut_query(Compile *c, Level *level)
{
	bool limits_result = c->mode == OUTPUT_COMPLETE && query_is_aggregated(level->query); /* Postgres's own LIMIT, anew in each batch */
	ListCell *lc;

	if (!query_streams(level->query))
		return;
	foreach (lc, level->query->rtable)
	{
		RangeTblEntry *rte = lfirst(lc);

		if (rte->rtekind == RTE_SUBQUERY)
		{
			Level below = {rte->subquery, level};

			cut_query(c, &below);
		}
	}
	cut_joins(c, level);
	if (query_transforms(level->query))
		cut_transform(c, level);
	if (query_aggregates(level->query))
		cut_aggregate(c, level);
	if (level->query->hasWindowFuncs)
		cut_ranked(c, level);
	if (query_keeps_best(level->query))
		cut_best(c, level);
	else if (level->query->distinctClause)
		cut_distinct(c, level);
	if (level->query->limitCount && !limits_result)
		cut_limit(c, level);
}

static void
note_watermarks(StreamPlan *plan)
{
	ListCell *lc;

	foreach (lc, plan->operators)
		plan->uses_watermark |= ((OperatorSpec *) lfirst(lc))->has_watermark;
}

/* What an operator cannot keep or call is refused now, not by the first batch. */
static void
check_operators(StreamPlan *plan)
{
	ListCell *lc;

	foreach (lc, plan->operators)
	{
		OperatorSpec *spec = lfirst(lc);

		if (spec->ops->check)
			spec->ops->check(spec);
	}
}

StreamPlan *
plan_compile(const StreamQuery *query, Query *tree)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "stream plan", ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	StreamPlan *plan = palloc0(sizeof(StreamPlan));
	Compile c = {.plan = plan, .source_text = query->text, .mode = query->output_mode, .options = &query->options};
	Level top = {NULL, NULL};

	plan->context = context;
	plan->parallelism = query_parallelism(&query->options);
	plan->source_text = pstrdup(query->text);
	top.query = prepare_query(&c, tree);
	plan->analyzed = copyObject(top.query);
	check_query(&c, top.query);
	cut_query(&c, &top);
	check_operators(plan);
	check_output(&c, top.query);
	shape_build(&c, &top);
	retract_build(&c, &top);
	tree_drop_unused_ctes(top.query);
	cut_add_stage(&c, top.query, -1, 0);
	plan->signature = signature_combine(plan->operators);
	note_watermarks(plan);
	notice_collect(&c, &top);
	MemoryContextSwitchTo(old);
	return plan;
}
