/*
 * outer.c: what query trees have said since PostgreSQL 16 and 18, and did not before: which outer joins may have made a column NULL (varnullingrels), and
 * that a column is one of GROUP BY (RTE_GROUP). Both follow from the rest of the tree, so all of plan/ works on trees without them; what goes to the
 * planner gets the first back.
 * Danger: the planner refuses a tree, or answers wrongly, where a Var does not name just the joins between it and its relation.
 */
#include "plan/internal.h"

#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "parser/parsetree.h"
#include "util/compat.h"

#if PG_VERSION_NUM >= 160000

/* ---- taking it away ---- */

#if PG_VERSION_NUM >= 180000
typedef struct GroupContext
{
	Index group; /* the entry's number */
	List *exprs;
	int depth;
} GroupContext;

/* A column of GROUP BY has lost where it stands in the text; the entry knows where it stands first. */
static bool
locate_walker(Node *node, GroupContext *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, Var))
	{
		Var *var = (Var *) node;

		if (var->varno == context->group && var->varlevelsup == context->depth && var->location < 0)
			var->location = exprLocation(list_nth(context->exprs, var->varattno - 1));
		return false;
	}
	if (IsA(node, Query))
	{
		bool found;

		context->depth++;
		found = query_tree_walker((Query *) node, locate_walker, context, 0);
		context->depth--;
		return found;
	}
	return expression_tree_walker(node, locate_walker, context);
}

static void
locate_group_columns(Query *query)
{
	GroupContext context = {.group = list_length(query->rtable)};
	RangeTblEntry *rte;

	/* It is the last that the parser adds. */
	while ((rte = rt_fetch(context.group, query->rtable))->rtekind != RTE_GROUP)
		context.group--;
	context.exprs = rte->groupexprs;
	(void) locate_walker((Node *) query->targetList, &context);
	(void) locate_walker(query->havingQual, &context);
}

static void
drop_group_relation(Query *query)
{
	ListCell *lc;

	if (!query->hasGroupRTE)
		return;
	locate_group_columns(query);
	query->targetList = (List *) flatten_group_exprs(NULL, query, (Node *) query->targetList);
	query->havingQual = flatten_group_exprs(NULL, query, query->havingQual);
	query->hasGroupRTE = false;
	foreach (lc, query->rtable)
	{
		RangeTblEntry *rte = lfirst(lc);

		if (rte->rtekind != RTE_GROUP)
			continue;
		rte->rtekind = RTE_RESULT; /* in no FROM: it only keeps the numbers of the others */
		rte->groupexprs = NIL;
	}
}
#else
#define drop_group_relation(query) ((void) 0)
#endif

static bool
plain_walker(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, Var))
		((Var *) node)->varnullingrels = NULL;
	if (IsA(node, Query))
	{
		drop_group_relation((Query *) node);
		return query_tree_walker((Query *) node, plain_walker, context, 0);
	}
	return expression_tree_walker(node, plain_walker, context);
}

void
tree_drop_nulling(Query *query)
{
	(void) plain_walker((Node *) query, NULL);
}

/* ---- giving it back ---- */

typedef struct NullingContext
{
	Query *query;
	Relids *nulled_by; /* of each relation of the query, at the place reached */
	int depth;		   /* below the query */
} NullingContext;

static bool
nulling_walker(Node *node, NullingContext *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, Var))
	{
		Var *var = (Var *) node;

		if ((int) var->varlevelsup == context->depth)
			var->varnullingrels = bms_copy(context->nulled_by[var->varno]);
		return false;
	}
	if (IsA(node, Query))
	{
		context->depth++;
		(void) query_tree_walker((Query *) node, nulling_walker, context, 0);
		context->depth--;
		return false;
	}
	return expression_tree_walker(node, nulling_walker, context);
}

static void
null_by(NullingContext *context, Node *side, int join)
{
	int index = -1;
	Relids relations = get_relids_in_jointree(side, true);

	while ((index = bms_next_member(relations, index)) >= 0)
		context->nulled_by[index] = bms_add_member(context->nulled_by[index], join);
}

/* As the parser goes: what is in an item sees the joins finished so far, a join's condition those below it, its columns itself as well. */
static void
walk_from(NullingContext *context, Node *item)
{
	ListCell *lc;

	if (item == NULL)
		return;
	if (IsA(item, RangeTblRef))
		(void) range_table_entry_walker(rt_fetch(((RangeTblRef *) item)->rtindex, context->query->rtable), nulling_walker, context, 0);
	else if (IsA(item, FromExpr))
	{
		foreach (lc, ((FromExpr *) item)->fromlist)
			walk_from(context, lfirst(lc));
		(void) nulling_walker(((FromExpr *) item)->quals, context);
	}
	else
	{
		JoinExpr *join = castNode(JoinExpr, item);

		walk_from(context, join->larg);
		walk_from(context, join->rarg);
		(void) nulling_walker(join->quals, context);
		if (join->rtindex == 0)
			return;
		if (join->jointype == JOIN_LEFT || join->jointype == JOIN_FULL)
			null_by(context, join->rarg, join->rtindex);
		if (join->jointype == JOIN_RIGHT || join->jointype == JOIN_FULL)
			null_by(context, join->larg, join->rtindex);
		(void) range_table_entry_walker(rt_fetch(join->rtindex, context->query->rtable), nulling_walker, context, 0);
	}
}

static bool
nulling_levels_walker(Node *node, void *unused)
{
	if (node == NULL)
		return false;
	if (IsA(node, Query))
	{
		Query *query = (Query *) node;
		NullingContext context = {query, palloc0((list_length(query->rtable) + 1) * sizeof(Relids)), 0};
		Query rest = *query;

		walk_from(&context, (Node *) query->jointree);
		rest.jointree = NULL;
		(void) query_tree_walker(&rest, nulling_walker, &context, QTW_IGNORE_RANGE_TABLE);
		return query_tree_walker(query, nulling_levels_walker, NULL, 0);
	}
	return expression_tree_walker(node, nulling_levels_walker, NULL);
}

void
tree_add_nulling(Query *query)
{
	(void) nulling_levels_walker((Node *) query, NULL);
}

#else

void
tree_drop_nulling(Query *query)
{
}

void
tree_add_nulling(Query *query)
{
}

#endif
