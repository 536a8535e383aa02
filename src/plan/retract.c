/*
 * retract.c: rows that leave the target in update mode: sessions that grew or were swallowed, rows pushed out of a top n, groups that HAVING or a
 * WHERE above them no longer lets through, groups that a join above them makes other rows of. A stage of its own beside the last one tells their
 * keys to the sink before the batch's rows come. It is made from the last stage: where that one asks "does this row qualify?", this one asks "is it
 * gone, or does it not?".
 */
#include "plan/internal.h"

#include "catalog/pg_type.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "parser/parsetree.h"

typedef struct Retract
{
	Compile *c;
	OperatorOutput *output; /* of the operator all rows come from */
} Retract;

static int
input_index(Query *query)
{
	return linitial_node(RangeTblRef, query->jointree->fromlist)->rtindex;
}

static Node *
either(Node *a, Node *b)
{
	if (a == NULL || b == NULL)
		return a ? a : b;
	return (Node *) makeBoolExpr(OR_EXPR, list_make2(a, b), -1);
}

static Node *
both(Node *a, Node *b)
{
	if (a == NULL || b == NULL)
		return a ? a : b;
	return (Node *) makeBoolExpr(AND_EXPR, list_make2(a, b), -1);
}

static Node *
is_not_true(Node *condition)
{
	BooleanTest *test = makeNode(BooleanTest);

	test->arg = (Expr *) condition;
	test->booltesttype = IS_NOT_TRUE;
	test->location = -1;
	return (Node *) test;
}

static Node *
change_column(Retract *r, int rtindex)
{
	return (Node *) makeVar(rtindex, r->output->change, BOOLOID, -1, InvalidOid, 0);
}

/* ---- the two queries ---- */

/* Down to the level that reads the operator: rows that leave are no rows of the result. */
static void
keep_present(Retract *r, Query *query)
{
	RangeTblEntry *rte = shape_single_input(query);
	Node *present;

	if (rte->rtekind == RTE_SUBQUERY)
	{
		keep_present(r, rte->subquery);
		return;
	}
	present = (Node *) makeBoolExpr(NOT_EXPR, list_make1(change_column(r, input_index(query))), -1);
	query->jointree->quals = both(present, query->jointree->quals);
}

/* By whole rows: rows that left and had qualified. */
static void
keep_gone(Retract *r, Query *query)
{
	RangeTblEntry *rte = shape_single_input(query);

	if (rte->rtekind == RTE_SUBQUERY)
		keep_gone(r, rte->subquery);
	else
		query->jointree->quals = both(change_column(r, input_index(query)), query->jointree->quals);
}

/*
 * By key: when a row of this level is not in the result, as a condition of the level around it. Inner conditions come first: OR stops there, so
 * nothing is computed from rows that would not have got that far.
 */
static Node *
absence(Retract *r, Query *query)
{
	RangeTblEntry *rte = shape_single_input(query);
	int rtindex = input_index(query);
	Node *gone = NULL, *quals = query->jointree->quals;

	query->jointree->quals = NULL;
	if (rte->rtekind == RTE_SUBQUERY)
	{
		Node *below = absence(r, rte->subquery);

		if (below)
		{
			List *columns = rte->subquery->targetList;
			int resno = list_length(columns) + 1;

			rte->subquery->targetList = lappend(columns, makeTargetEntry((Expr *) below, resno, pstrdup("absent"), false));
			rte->eref->colnames = lappend(rte->eref->colnames, makeString(pstrdup("absent")));
			gone = (Node *) makeVar(rtindex, resno, BOOLOID, -1, InvalidOid, 0);
		}
	}
	else if (r->output->change)
		gone = change_column(r, rtindex);
	return either(gone, quals ? is_not_true(quals) : NULL);
}

/* Results of rows that are gone are not known, and not asked for. */
static void
blank_results(Query *query, Bitmapset *key)
{
	ListCell *lc;

	foreach (lc, query->targetList)
	{
		TargetEntry *tle = lfirst(lc);
		Node *expr = (Node *) tle->expr;

		if (!tle->resjunk && !bms_is_member(tle->resno, key))
			tle->expr = (Expr *) makeNullConst(exprType(expr), exprTypmod(expr), exprCollation(expr));
	}
}

/* ---- is the session in the output? ---- */

static bool
depends_on(Query *query, Node *expr, AttrNumber column)
{
	RangeTblEntry *rte = shape_single_input(query);
	ListCell *lc;

	foreach (lc, pull_var_clause(expr, PVC_RECURSE_AGGREGATES | PVC_RECURSE_PLACEHOLDERS))
	{
		Var *var = lfirst_node(Var, lc);

		if (rte->rtekind != RTE_SUBQUERY && var->varattno == column)
			return true;
		if (rte->rtekind == RTE_SUBQUERY && var->varattno > 0 &&
			depends_on(rte->subquery, (Node *) get_tle_by_resno(rte->subquery->targetList, var->varattno)->expr, column))
			return true;
	}
	return false;
}

static void
check_key_shown(Retract *r, Query *final, SinkShape *shape)
{
	ListCell *lc;

	foreach (lc, final->targetList)
	{
		TargetEntry *tle = lfirst(lc);

		if (bms_is_member(tle->resno, shape->key) && depends_on(final, (Node *) tle->expr, r->output->nkeys))
			return;
	}
	ereport(ERROR, (errcode(REFUSE), errmsg("the session must be in the output of the query in output mode update"),
					errdetail("Without its bounds the sessions of a key would replace each other in the target."),
					errhint("Add stream.session(ts, gap), or its lower() and upper(), to the SELECT list.")));
}

/* ---- all of it ---- */

static bool
has_conditions(Query *query)
{
	RangeTblEntry *rte = shape_single_input(query);

	return query->jointree->quals != NULL || (rte->rtekind == RTE_SUBQUERY && has_conditions(rte->subquery));
}

static void
check_reached(Compile *c, Query *final)
{
	ListCell *lc;

	foreach (lc, tree_operators_read(final))
	{
		OperatorOutput *output = list_nth(c->outputs, lfirst_int(lc));

		if (output->leaving)
			ereport(ERROR, (errcode(REFUSE), errmsg("a join or UNION ALL above %s is not supported in output mode update", output->leaving),
							errdetail("Which rows of the result leave the target could not be told from those that leave below."),
							errhint("Join below, in the FROM clause of the same SELECT, or join when you read the target.")));
	}
}

/* Groups that are joined with tables: the rows of all that come out leave first. */
static void
take_back_groups(Compile *c, Level *final, SinkShape *shape)
{
	List *operators = tree_operators_read(final->query), *columns;
	int index = operators ? linitial_int(operators) : -1, resno = 0;
	OperatorOutput *output;
	Query *gone;
	ListCell *lc;

	if (list_length(operators) != 1)
		return;
	output = list_nth(c->outputs, index);
	if (!output->aggregated || !shape_finds_groups(c, final, shape, index, &columns))
		return;
	gone = makeNode(Query);
	gone->commandType = CMD_SELECT;
	gone->canSetTag = true;
	foreach (lc, columns)
	{
		TargetEntry *tle = copyObject(list_nth_node(TargetEntry, final->query->targetList, resno));
		Node *expr = (Node *) tle->expr;

		tle->resno = ++resno;
		tle->ressortgroupref = 0;
		tle->expr = lfirst(lc) ? lfirst(lc) : (Expr *) makeNullConst(exprType(expr), exprTypmod(expr), exprCollation(expr));
		gone->targetList = lappend(gone->targetList, tle);
	}
	cut_read_output(gone, list_nth(c->plan->operators, index), NULL);
	shape->retracts = true;
	((Stage *) list_nth(c->plan->stages, cut_add_stage(c, gone, -1, 0)))->retracts = true;
}

void
retract_build(Compile *c, Level *final)
{
	SinkShape *shape = &c->plan->shape;
	int index = shape_operator_below(final->query);
	Retract r = {.c = c};
	Query *gone;
	int stage;

	if (c->mode != OUTPUT_UPDATE)
		return;
	if (index < 0)
	{
		check_reached(c, final->query);
		take_back_groups(c, final, shape);
		return;
	}
	r.output = list_nth(c->outputs, index);
	if (!r.output->aggregated || (r.output->leaving == NULL && (!has_conditions(final->query) || !shape->key_is_unique)))
		return;
	if (r.output->session)
		check_key_shown(&r, final->query, shape);
	shape->leaving = r.output->leaving;
	if (r.output->change == 0 && !has_conditions(final->query))
		return; /* rows only take the place of others */
	shape->retracts = true;
	gone = copyObject(final->query);
	if (r.output->change)
		keep_present(&r, final->query);
	if (shape->whole_rows)
		keep_gone(&r, gone);
	else
	{
		gone->jointree->quals = absence(&r, gone);
		blank_results(gone, shape->key);
	}
	tree_drop_unused_ctes(gone);
	stage = cut_add_stage(c, gone, -1, 0);
	((Stage *) list_nth(c->plan->stages, stage))->retracts = true;
}
