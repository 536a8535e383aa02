/*
 * tree.c: walking query trees: which FROM items stream, what a column stems from, which CTEs a piece still needs.
 * "Streams" means rows that arrive by the batch: a marked source, an operator's output, or a subquery over such.
 */
#include "plan/internal.h"

#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "parser/parsetree.h"
#include "rewrite/rewriteManip.h"
#include "util/compat.h"

#define STAGE_PREFIX "stream_operator_"

char *
stage_relation_name(int operator_index)
{
	return psprintf(STAGE_PREFIX "%d", operator_index);
}

bool
rte_is_source(RangeTblEntry *rte)
{
	return rte->rtekind == RTE_RELATION && rte->enrname != NULL && strcmp(rte->enrname, STREAM_SCAN_MARK) == 0;
}

int
rte_operator(RangeTblEntry *rte)
{
	if (rte->rtekind != RTE_NAMEDTUPLESTORE || strncmp(rte->enrname, STAGE_PREFIX, strlen(STAGE_PREFIX)) != 0)
		return -1;
	return atoi(rte->enrname + strlen(STAGE_PREFIX));
}

static bool
has_source_walker(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, RangeTblEntry))
		return rte_is_source((RangeTblEntry *) node) || rte_operator((RangeTblEntry *) node) >= 0;
	if (IsA(node, Query))
		return query_tree_walker((Query *) node, has_source_walker, context, QTW_EXAMINE_RTES_BEFORE);
	return expression_tree_walker(node, has_source_walker, context);
}

bool
query_has_source(Query *query)
{
	return has_source_walker((Node *) query, NULL);
}

bool
rte_streams(RangeTblEntry *rte)
{
	if (rte->rtekind == RTE_SUBQUERY)
		return query_streams(rte->subquery);
	return rte_is_source(rte) || rte_operator(rte) >= 0;
}

bool
query_streams(Query *query)
{
	ListCell *lc;

	foreach (lc, query->rtable)
		if (rte_streams(lfirst(lc)))
			return true;
	return false;
}

bool
query_aggregates(Query *query)
{
	return query->hasAggs || query->groupClause != NIL || query->groupingSets != NIL || query->havingQual != NULL;
}

bool
query_is_aggregated(Query *query)
{
	ListCell *lc;

	if (query_aggregates(query))
		return true;
	foreach (lc, query->rtable)
	{
		RangeTblEntry *rte = lfirst(lc);

		if (rte_is_source(rte) || (rte->rtekind == RTE_SUBQUERY && query_streams(rte->subquery) && !query_is_aggregated(rte->subquery)))
			return false;
	}
	return true;
}

static void
collect_streams(Query *query, Node *node, List **result)
{
	ListCell *lc;

	if (node == NULL)
		return;
	if (IsA(node, RangeTblRef))
	{
		int index = ((RangeTblRef *) node)->rtindex;

		if (rte_streams(rt_fetch(index, query->rtable)))
			*result = lappend_int(*result, index);
	}
	else if (IsA(node, JoinExpr))
	{
		collect_streams(query, ((JoinExpr *) node)->larg, result);
		collect_streams(query, ((JoinExpr *) node)->rarg, result);
	}
	else
		foreach (lc, castNode(FromExpr, node)->fromlist)
			collect_streams(query, lfirst(lc), result);
}

List *
tree_streams_in_from(Query *query)
{
	List *result = NIL;

	collect_streams(query, (Node *) query->jointree, &result);
	return result;
}

static void
collect_conjuncts(Node *node, List **result)
{
	ListCell *lc;

	if (node == NULL)
		return;
	if (IsA(node, List))
		foreach (lc, (List *) node)
			collect_conjuncts(lfirst(lc), result);
	else if (is_andclause(node))
		collect_conjuncts((Node *) ((BoolExpr *) node)->args, result);
	else
		*result = lappend(*result, node);
}

List *
tree_conjuncts(Node *quals)
{
	List *result = NIL;

	collect_conjuncts(quals, &result);
	return result;
}

bool
tree_is_over(Node *expr, Bitmapset *rtes)
{
	Bitmapset *used = pull_varnos(NULL, expr);

	return !bms_is_empty(used) && bms_is_subset(used, rtes);
}

bool
tree_streams_below(Query *query, Node *node)
{
	List *streams = NIL;

	collect_streams(query, node, &streams);
	return streams != NIL;
}

static bool
operators_read_walker(Node *node, List **result)
{
	if (node == NULL)
		return false;
	if (IsA(node, RangeTblEntry))
	{
		int index = rte_operator((RangeTblEntry *) node);

		if (index >= 0)
			*result = list_append_unique_int(*result, index);
		return false;
	}
	if (IsA(node, Query))
		return query_tree_walker((Query *) node, operators_read_walker, result, QTW_EXAMINE_RTES_BEFORE);
	return expression_tree_walker(node, operators_read_walker, result);
}

List *
tree_operators_read(Query *query)
{
	List *result = NIL;

	operators_read_walker((Node *) query, &result);
	return result;
}

/* ---- columns ---- */

RangeTblEntry *
tree_var_rte(Level *level, Var *var, Level **at)
{
	for (Index up = var->varlevelsup; up > 0; up--)
	{
		if (level->parent == NULL)
			return NULL;
		level = level->parent;
	}
	*at = level;
	return rt_fetch(var->varno, level->query->rtable);
}

static void
collect_origins(Level *parent, Query *query, AttrNumber attno, List **result)
{
	Level *level = palloc(sizeof(Level));
	ListCell *lc;
	bool legs = false;

	level->query = query;
	level->parent = parent;
	if (query->setOperations)
	{
		/* every subquery of a set operation is one of its legs, with the same columns */
		foreach (lc, query->rtable)
		{
			RangeTblEntry *rte = lfirst(lc);

			if (rte->rtekind == RTE_SUBQUERY)
			{
				collect_origins(level, rte->subquery, attno, result);
				legs = true;
			}
		}
	}
	if (!legs)
	{
		Origin *origin = palloc(sizeof(Origin));

		origin->level = level;
		origin->expr = (Node *) get_tle_by_resno(query->targetList, attno)->expr;
		*result = lappend(*result, origin);
	}
}

List *
tree_output_origins(Level *level, AttrNumber resno)
{
	List *result = NIL;

	collect_origins(level->parent, level->query, resno, &result);
	return result;
}

List *
tree_origins(Level *level, Var *var)
{
	Level *at;
	RangeTblEntry *rte = tree_var_rte(level, var, &at);
	List *result = NIL;
	Origin *origin;

	if (rte == NULL || var->varattno <= 0)
		return NIL;
	if (rte->rtekind == RTE_SUBQUERY)
	{
		collect_origins(at, rte->subquery, var->varattno, &result);
		return result;
	}
	origin = palloc(sizeof(Origin));
	origin->level = at;
	if (rte->rtekind == RTE_JOIN)
		origin->expr = list_nth(rte->joinaliasvars, var->varattno - 1);
	else if (rte->rtekind == RTE_FUNCTION && list_length(rte->functions) == 1 && var->varattno == 1 &&
			 linitial_node(RangeTblFunction, rte->functions)->funccolcount == 1)
		origin->expr = linitial_node(RangeTblFunction, rte->functions)->funcexpr;
	else
		return NIL;
	return list_make1(origin);
}

/* ---- CTEs ---- */

typedef struct CteContext
{
	const char *name;
	int depth;
	int references;
} CteContext;

static bool
count_cte_walker(Node *node, CteContext *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, RangeTblEntry))
	{
		RangeTblEntry *rte = (RangeTblEntry *) node;

		if (rte->rtekind == RTE_CTE && rte->ctelevelsup == context->depth && strcmp(rte->ctename, context->name) == 0 &&
			!rte->self_reference)
			context->references++;
		return false;
	}
	if (IsA(node, Query))
	{
		bool result;

		context->depth++;
		result = query_tree_walker((Query *) node, count_cte_walker, context, QTW_EXAMINE_RTES_BEFORE);
		context->depth--;
		return result;
	}
	return expression_tree_walker(node, count_cte_walker, context);
}

/* Both halves of a cut level start with all its CTEs; the planner would make init plans of those left without a reader. */
void
tree_drop_unused_ctes(Query *query)
{
	bool dropped = true;
	ListCell *lc;

	while (dropped)
	{
		dropped = false;
		foreach (lc, query->cteList)
		{
			CommonTableExpr *cte = lfirst(lc);
			CteContext context = {cte->ctename, -1, 0};

			count_cte_walker((Node *) query, &context);
			cte->cterefcount = context.references;
			if (context.references == 0)
			{
				query->cteList = foreach_delete_current(query->cteList, lc);
				dropped = true;
			}
		}
	}
	query->hasRecursive = query->hasRecursive && query->cteList != NIL;
}

typedef struct CarryContext
{
	Level *level; /* of the stage, in the whole query */
	int depth;	  /* below the stage's top */
} CarryContext;

/* Makes `(WITH <the CTEs of that level> SELECT * FROM cte)` of a reference to a CTE above the stage. */
static void
carry_reference(RangeTblEntry *rte, Level *owner, int up)
{
	Query *query = makeNode(Query);
	RangeTblEntry *inner = copyObject(rte);
	RangeTblRef *ref = makeNode(RangeTblRef);
	ListCell *type, *typmod, *collation, *name;
	int resno = 0;

	query->commandType = CMD_SELECT;
	query->canSetTag = true;
	query->cteList = copyObject(owner->query->cteList);
	query->hasRecursive = owner->query->hasRecursive;
	/* CTEs refer to each other one level up, which stays right; what they take from further up moves away by the new depth */
	foreach (name, query->cteList)
		IncrementVarSublevelsUp(((CommonTableExpr *) lfirst(name))->ctequery, up + 1, 2);
	inner->ctelevelsup = 0;
	ref->rtindex = 1;
	query->rtable = list_make1(inner);
	query->jointree = makeFromExpr(list_make1(ref), NULL);
	forfour(type, rte->coltypes, typmod, rte->coltypmods, collation, rte->colcollations, name, rte->eref->colnames)
	{
		Var *var = makeVar(1, ++resno, lfirst_oid(type), lfirst_int(typmod), lfirst_oid(collation), 0);

		query->targetList = lappend(query->targetList, makeTargetEntry((Expr *) var, resno, strVal(lfirst(name)), false));
	}
	tree_drop_unused_ctes(query);
	rte->rtekind = RTE_SUBQUERY;
	rte->subquery = query;
	rte->ctename = NULL;
	rte->ctelevelsup = 0;
	rte->coltypes = rte->coltypmods = rte->colcollations = NIL;
}

static bool
carry_ctes_walker(Node *node, CarryContext *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, RangeTblEntry))
	{
		RangeTblEntry *rte = (RangeTblEntry *) node;

		if (rte->rtekind == RTE_CTE && (int) rte->ctelevelsup > context->depth)
		{
			Level *owner = context->level;

			for (int up = rte->ctelevelsup - context->depth; up > 0 && owner; up--)
				owner = owner->parent;
			if (owner)
			{
				carry_reference(rte, owner, rte->ctelevelsup);
				return carry_ctes_walker((Node *) rte->subquery, context);
			}
		}
		return false;
	}
	if (IsA(node, Query))
	{
		bool result;

		context->depth++;
		result = query_tree_walker((Query *) node, carry_ctes_walker, context, QTW_EXAMINE_RTES_AFTER);
		context->depth--;
		return result;
	}
	return expression_tree_walker(node, carry_ctes_walker, context);
}

/* A stage stands alone: CTEs (of tables; streaming ones are inlined) that it reads from levels above come along. */
void
tree_carry_ctes(Compile *c, Level *level, Query *stage)
{
	CarryContext context = {level, -1};

	carry_ctes_walker((Node *) stage, &context);
}

/* Columns of joins by the name of the join: as those they stand for, wherever the level uses them. */
void
tree_flatten_aliases(Query *query)
{
	ListCell *lc;

	query->targetList = (List *) flatten_join_alias_vars(query, (Node *) query->targetList);
	query->havingQual = flatten_join_alias_vars(query, query->havingQual);
	query->jointree = (FromExpr *) flatten_join_alias_vars(query, (Node *) query->jointree);
	foreach (lc, query->rtable)
	{
		RangeTblEntry *rte = lfirst(lc);

		if (rte->rtekind == RTE_SUBQUERY && rte->lateral)
			rte->subquery = (Query *) flatten_join_alias_vars(query, (Node *) rte->subquery);
		else if (rte->rtekind == RTE_FUNCTION)
			rte->functions = (List *) flatten_join_alias_vars(query, (Node *) rte->functions);
		else if (rte->rtekind == RTE_VALUES)
			rte->values_lists = (List *) flatten_join_alias_vars(query, (Node *) rte->values_lists);
	}
}
