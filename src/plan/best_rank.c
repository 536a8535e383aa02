/*
 * best_rank.c: which queries ask for the best rows of keys, and for how many: row_number() is told from the conditions of the level above it.
 */
#include "plan/best.h"

#include "access/stratnum.h"
#include "access/sysattr.h"
#include "catalog/pg_type.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "optimizer/tlist.h"
#include "parser/parsetree.h"
#include "util/compat.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"

/* ---- the forms ---- */

/* DISTINCT ON (keys) … ORDER BY. */
bool
query_keeps_best(Query *query)
{
	return query->hasDistinctOn && query->sortClause != NIL;
}

static bool
other_window_walker(Node *node, WindowFunc **first)
{
	if (node == NULL || IsA(node, Query))
		return false;
	if (IsA(node, WindowFunc))
	{
		WindowFunc *f = (WindowFunc *) node;

		if (f->winfnoid != F_ROW_NUMBER || (*first && f->winref != (*first)->winref))
			return true;
		*first = f;
		return false;
	}
	return expression_tree_walker(node, other_window_walker, first);
}

/* Nothing but row_number() over one window, to be compared by the level above. */
bool
query_ranks(Query *query)
{
	WindowFunc *first = NULL;

	return query->hasWindowFuncs && !query_aggregates(query) && query->distinctClause == NIL && !query->hasTargetSRFs &&
		   !other_window_walker((Node *) query->targetList, &first) && first != NULL;
}

WindowFunc *
best_rank(Query *query)
{
	WindowFunc *first = NULL;

	(void) other_window_walker((Node *) query->targetList, &first);
	return first;
}

/* ---- n ---- */

static bool
contains_rank_walker(Node *node, void *context)
{
	if (node == NULL)
		return false;
	return IsA(node, WindowFunc) || expression_tree_walker(node, contains_rank_walker, context);
}

bool
best_contains_rank(Node *node)
{
	return contains_rank_walker(node, NULL);
}

/* rank <strategy> number, whichever side they are written on. */
static bool
read_comparison(Node *condition, Index rtindex, List *subquery_columns, int *strategy, int64 *number)
{
	OpExpr *op = (OpExpr *) condition;
	Node *left, *right;
	Oid operator;
	List *meanings;
	ListCell *lc;

	if (!IsA(condition, OpExpr) || list_length(op->args) != 2)
		return false;
	operator = op->opno;
	left = linitial(op->args);
	right = eval_const_expressions(NULL, copyObject(lsecond(op->args)));
	if (!IsA(left, Var))
	{
		left = lsecond(op->args);
		right = eval_const_expressions(NULL, copyObject(linitial(op->args)));
		operator = get_commutator(operator);
	}
	if (!IsA(left, Var) || ((Var *) left)->varno != rtindex || ((Var *) left)->varlevelsup != 0 || ((Var *) left)->varattno <= 0 ||
		!IsA(get_tle_by_resno(subquery_columns, ((Var *) left)->varattno)->expr, WindowFunc) || !IsA(right, Const) || ((Const *) right)->constisnull ||
		!OidIsValid(operator))
		return false;
	switch (((Const *) right)->consttype)
	{
		case INT2OID:
			*number = DatumGetInt16(((Const *) right)->constvalue);
			break;
		case INT4OID:
			*number = DatumGetInt32(((Const *) right)->constvalue);
			break;
		case INT8OID:
			*number = DatumGetInt64(((Const *) right)->constvalue);
			break;
		default:
			return false;
	}
	meanings = get_op_btree_interpretation(operator);
	foreach (lc, meanings)
		*strategy = compat_strategy((OpBtreeInterpretation *) lfirst(lc));
	return meanings != NIL;
}

static Index
index_in_parent(Level *level)
{
	ListCell *lc;

	foreach (lc, level->parent ? level->parent->query->rtable : NIL)
		if (((RangeTblEntry *) lfirst(lc))->subquery == level->query)
			return foreach_current_index(lc) + 1;
	return 0;
}

static void
refuse_unbounded(BestCut *cut)
{
	ereport(ERROR, (errcode(REFUSE), errmsg("row_number() over a stream must be compared with a constant by the query around it"),
					errdetail("Only the first rows of each key can be kept."),
					errhint("Write SELECT … FROM (SELECT …, row_number() OVER (PARTITION BY k ORDER BY v DESC) AS rn FROM …) x WHERE rn <= 10."),
					check_position(cut->c, best_rank(cut->level->query)->location)));
}

int64
best_take_count(BestCut *cut)
{
	Index rtindex = index_in_parent(cut->level);
	Query *parent = rtindex ? cut->level->parent->query : NULL;
	List *rest = NIL;
	int64 count = 0;
	ListCell *lc;

	foreach (lc, parent ? tree_conjuncts(parent->jointree->quals) : NIL)
	{
		int strategy = 0;
		int64 number, bound;

		if (!read_comparison(lfirst(lc), rtindex, cut->level->query->targetList, &strategy, &number) || strategy == ROWCOMPARE_NE)
		{
			rest = lappend(rest, lfirst(lc));
			continue;
		}
		bound = strategy == BTLessStrategyNumber ? number - 1 : number;
		if (strategy == BTLessStrategyNumber || strategy == BTLessEqualStrategyNumber || strategy == BTEqualStrategyNumber)
			count = count == 0 ? bound : Min(count, bound);
		if ((strategy == BTEqualStrategyNumber && number != 1) || (strategy == BTGreaterStrategyNumber && number > 0) ||
			(strategy == BTGreaterEqualStrategyNumber && number > 1))
			rest = lappend(rest, lfirst(lc));
	}
	if (count < 1 || count > PG_INT32_MAX)
		refuse_unbounded(cut);
	parent->jointree->quals = list_length(rest) > 1 ? (Node *) makeBoolExpr(AND_EXPR, rest, -1) : rest ? linitial(rest) : NULL;
	return count;
}

bool
best_rank_is_used(BestCut *cut)
{
	Index rtindex = index_in_parent(cut->level);
	Query *parent = cut->level->parent->query;
	ListCell *lc;

	foreach (lc, list_concat(pull_var_clause((Node *) parent->targetList, PVC_RECURSE_AGGREGATES | PVC_RECURSE_WINDOWFUNCS | PVC_RECURSE_PLACEHOLDERS),
							 pull_var_clause(parent->jointree->quals, PVC_RECURSE_AGGREGATES | PVC_RECURSE_WINDOWFUNCS | PVC_RECURSE_PLACEHOLDERS)))
	{
		Var *var = lfirst_node(Var, lc);

		if (var->varno == rtindex && (var->varattno <= 0 || best_contains_rank((Node *) get_tle_by_resno(cut->level->query->targetList, var->varattno)->expr)))
			return true;
	}
	return false;
}

void
best_drop_unread_columns(BestCut *cut)
{
	Index rtindex = index_in_parent(cut->level);
	Query *parent = rtindex ? cut->level->parent->query : NULL;
	Bitmapset *read = NULL;
	ListCell *lc;

	if (parent == NULL || parent->hasSubLinks || shape_single_input(parent) == NULL)
		return;
	pull_varattnos((Node *) parent->targetList, rtindex, &read);
	pull_varattnos(parent->jointree->quals, rtindex, &read);
	if (bms_is_member(-FirstLowInvalidHeapAttributeNumber, read)) /* the row as a whole */
		return;
	foreach (lc, cut->level->query->targetList)
	{
		TargetEntry *tle = lfirst(lc);

		if (!tle->resjunk && tle->ressortgroupref == 0 && !bms_is_member(tle->resno - FirstLowInvalidHeapAttributeNumber, read))
			tle->expr = (Expr *) makeNullConst(exprType((Node *) tle->expr), exprTypmod((Node *) tle->expr), exprCollation((Node *) tle->expr));
	}
}
