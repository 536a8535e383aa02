/*
 * semijoin.c: WHERE EXISTS (…) and WHERE x IN (…) over a stream become joins: the subquery's FROM moves into the level, as Postgres's planner does it
 * for tables. Only conditions that stand alone (under AND) and plain subqueries; everything else is refused by check.c.
 */
#include "plan/internal.h"

#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "rewrite/rewriteManip.h"
#include "util/compat.h"

/* LIMIT n with n > 0 changes nothing about whether there is a row. */
static bool
limit_is_harmless(Query *subquery)
{
	Node *count = subquery->limitCount ? eval_const_expressions(NULL, copyObject(subquery->limitCount)) : NULL;

	if (subquery->limitOffset)
		return false;
	return count == NULL || (IsA(count, Const) && (((Const *) count)->constisnull || DatumGetInt64(((Const *) count)->constvalue) > 0));
}

static bool
subquery_is_plain(Query *subquery)
{
	return subquery->commandType == CMD_SELECT && !query_aggregates(subquery) && !subquery->setOperations && !subquery->hasWindowFuncs &&
		   !subquery->hasTargetSRFs && subquery->cteList == NIL && subquery->rowMarks == NIL && limit_is_harmless(subquery) &&
		   subquery->jointree->fromlist != NIL;
}

/* IN: the subquery's columns in place of the parameters that stand for them. */
static Node *
subquery_columns_mutator(Node *node, List *targets)
{
	if (node == NULL)
		return NULL;
	if (IsA(node, Param) && ((Param *) node)->paramkind == PARAM_SUBLINK)
		return copyObject((Node *) ((TargetEntry *) list_nth(targets, ((Param *) node)->paramid - 1))->expr);
	return expression_tree_mutator(node, subquery_columns_mutator, targets);
}

static Node *
single_item(List *fromlist)
{
	return list_length(fromlist) == 1 ? linitial(fromlist) : (Node *) makeFromExpr(fromlist, NULL);
}

static void
pull_up(Query *query, SubLink *sublink)
{
	Query *subquery = castNode(Query, copyObject(sublink->subselect));
	JoinExpr *join = makeNode(JoinExpr);
	List *quals;

	OffsetVarNodes((Node *) subquery, list_length(query->rtable), 0);
	IncrementVarSublevelsUp((Node *) subquery, -1, 1);
	quals = make_ands_implicit((Expr *) subquery->jointree->quals);
	if (sublink->subLinkType == ANY_SUBLINK)
		quals = lappend(quals, subquery_columns_mutator(sublink->testexpr, subquery->targetList));
	compat_add_range_table(query, subquery);
	query->hasSubLinks |= subquery->hasSubLinks;
	join->jointype = JOIN_SEMI;
	join->larg = single_item(query->jointree->fromlist);
	join->rarg = single_item(subquery->jointree->fromlist);
	join->quals = (Node *) make_ands_explicit(quals);
	query->jointree->fromlist = list_make1(join);
}

static bool
can_pull_up(Node *condition)
{
	SubLink *sublink = (SubLink *) condition;

	return IsA(condition, SubLink) && (sublink->subLinkType == EXISTS_SUBLINK || sublink->subLinkType == ANY_SUBLINK) &&
		   query_has_source((Query *) sublink->subselect) && subquery_is_plain((Query *) sublink->subselect);
}

static void
pull_up_level(Query *query)
{
	List *kept = NIL;
	ListCell *lc;

	if (query->setOperations || query->jointree == NULL || query->jointree->quals == NULL || !query_streams(query))
		return;
	foreach (lc, tree_conjuncts(query->jointree->quals))
	{
		if (can_pull_up(lfirst(lc)))
			pull_up(query, lfirst(lc));
		else
			kept = lappend(kept, lfirst(lc));
	}
	query->jointree->quals = kept ? (Node *) make_ands_explicit(kept) : NULL;
}

static bool
pull_up_walker(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, Query))
	{
		pull_up_level((Query *) node);
		return query_tree_walker((Query *) node, pull_up_walker, context, 0);
	}
	return expression_tree_walker(node, pull_up_walker, context);
}

void
semijoin_pull_up(Query *query)
{
	(void) pull_up_walker((Node *) query, NULL);
}
