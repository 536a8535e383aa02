/*
 * parallel.c: what tasks can do for a query (option parallelism).
 * Rows of a source that can be shared are always fetched and decoded by tasks. The stage above runs there too where its rows go into groups that can be
 * combined, and nothing in it minds which process it runs in.
 */
#include "plan/internal.h"

#include "catalog/pg_class.h"
#include "catalog/pg_proc.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/clauses.h"
#include "utils/lsyscache.h"

static bool
table_minds(Oid relid, Oid target)
{
	char kind = get_rel_relkind(relid);

	return relid == target || kind == RELKIND_FOREIGN_TABLE || get_rel_persistence(relid) == RELPERSISTENCE_TEMP;
}

static bool
table_minds_walker(Node *node, Oid *target)
{
	if (node == NULL)
		return false;
	if (IsA(node, RangeTblEntry))
	{
		RangeTblEntry *rte = (RangeTblEntry *) node;

		return rte->rtekind == RTE_RELATION && !rte_is_source(rte) && table_minds(rte->relid, *target);
	}
	if (IsA(node, Query))
		return query_tree_walker((Query *) node, table_minds_walker, target, QTW_EXAMINE_RTES_BEFORE);
	return expression_tree_walker(node, table_minds_walker, target);
}

static bool
sources_are_shared(StreamPlan *plan, Stage *stage)
{
	ListCell *lc;

	foreach (lc, plan->sources)
	{
		SourceDef *def = lfirst(lc);

		if (list_member_oid(stage->sources, def->relid) && !def->ops->shares)
			return false;
	}
	return stage->sources != NIL;
}

const char *
parallel_obstacle(StreamPlan *plan, Stage *stage, Oid target)
{
	if (stage->reads != NIL || !sources_are_shared(plan, stage))
		return "it reads more than shared sources";
	if (stage->feeds < 0 || !aggregate_has_partials(list_nth(plan->operators, stage->feeds)))
		return "its rows do not go into groups that can be combined";
	if (max_parallel_hazard(stage->query) != PROPARALLEL_SAFE)
		return "it calls a function that is not PARALLEL SAFE";
	if (query_tree_walker(stage->query, table_minds_walker, &target, QTW_EXAMINE_RTES_BEFORE))
		return "it reads a foreign table, a temporary one or the target";
	return NULL;
}

void
parallel_note_sources(StreamPlan *plan)
{
	ListCell *lc;

	foreach (lc, plan->sources)
	{
		SourceDef *def = lfirst(lc);

		if (!def->ops->shares)
			plan->notices = lappend(plan->notices, psprintf("source %s is read by one process: a %s source cannot be shared, whatever option parallelism says",
															def->name, def->ops->kind));
	}
}
