/*
 * shape.c: what the sink is told of the rows to come: columns, and in update mode the key rows replace each other by.
 * The key is every output column that says which group a row belongs to: no aggregate in it, nothing that changes with the batch.
 */
#include "plan/internal.h"

#include "access/htup_details.h"
#include "executor/executor.h"
#include "lib/stringinfo.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "parser/parsetree.h"
#include "utils/fmgroids.h"

#define KEY_NUMBER(op, column) ((op) * MaxTupleAttributeNumber + (column))

/* What an output column is made of. */
typedef struct Facts
{
	Compile *c;
	Level *level;
	int depth;		 /* levels of sublinks entered */
	bool key;		 /* a group key */
	Bitmapset *keys; /* which: KEY_NUMBER(operator, column) */
	bool aggregate;	 /* an aggregate's result */
	bool expanded;	 /* an aggregate's result, made several rows of by a set-returning function */
	bool changing;	 /* the batch's time or number, a volatile function */
} Facts;

static bool facts_walker(Node *node, Facts *facts);

static void
facts_of_rte(RangeTblEntry *rte, AttrNumber attno, Facts *facts)
{
	ListCell *lc;

	(void) facts_walker((Node *) rte->functions, facts);
	foreach (lc, rte->values_lists)
		(void) facts_walker(attno > 0 ? list_nth(lfirst_node(List, lc), attno - 1) : (Node *) lfirst(lc), facts);
}

static void
facts_of_var(Var *var, Facts *facts)
{
	Var here = *var;
	List *origins;
	Level *at = NULL;
	RangeTblEntry *rte;
	ListCell *lc;
	int index;

	here.varlevelsup -= facts->depth;
	rte = tree_var_rte(facts->level, &here, &at);
	if (rte == NULL)
		return;
	index = rte_operator(rte);
	if (index >= 0)
	{
		OperatorOutput *output = list_nth(facts->c->outputs, index);

		if (here.varattno > 0 && here.varattno <= output->nkeys)
		{
			facts->key = true;
			facts->keys = bms_add_member(facts->keys, KEY_NUMBER(index, here.varattno));
		}
		facts->aggregate |= here.varattno == 0 || here.varattno > output->nkeys;
		return;
	}
	origins = tree_origins(facts->level, &here);
	if (origins == NIL)
		facts_of_rte(rte, here.varattno, facts);
	foreach (lc, origins)
	{
		Origin *origin = lfirst(lc);
		Facts below = {.c = facts->c, .level = origin->level};

		(void) facts_walker(origin->expr, &below);
		facts->key |= below.key;
		facts->keys = bms_add_members(facts->keys, below.keys);
		facts->aggregate |= below.aggregate;
		facts->expanded |= below.expanded;
		facts->changing |= below.changing;
	}
}

static bool
returns_set(Node *node)
{
	return (IsA(node, FuncExpr) && ((FuncExpr *) node)->funcretset) || (IsA(node, OpExpr) && ((OpExpr *) node)->opretset);
}

static void
facts_of_set(Node *call, Facts *facts)
{
	Facts arguments = *facts;

	arguments.aggregate = false;
	(void) expression_tree_walker(call, facts_walker, &arguments);
	arguments.expanded |= arguments.aggregate;
	arguments.aggregate |= facts->aggregate;
	*facts = arguments;
}

static bool
facts_walker(Node *node, Facts *facts)
{
	if (node == NULL)
		return false;
	if (IsA(node, Var))
	{
		if ((int) ((Var *) node)->varlevelsup >= facts->depth)
			facts_of_var((Var *) node, facts);
		return false;
	}
	if (IsA(node, Param) && ((Param *) node)->paramkind == PARAM_EXTERN)
		facts->changing = true;
	if (returns_set(node))
	{
		facts_of_set(node, facts);
		return false;
	}
	if (IsA(node, Query))
	{
		bool result;

		facts->depth++;
		result = query_tree_walker((Query *) node, facts_walker, facts, 0);
		facts->depth--;
		return result;
	}
	return expression_tree_walker(node, facts_walker, facts);
}

static Facts
facts_of(Compile *c, Level *level, Node *expr)
{
	Facts facts = {.c = c, .level = level};

	(void) facts_walker(expr, &facts);
	facts.changing |= contain_volatile_functions(expr);
	return facts;
}

/* ---- is the key unique? ---- */

/* The one FROM item of a level that neither multiplies nor merges rows; NULL when there is more to it. */
RangeTblEntry *
shape_single_input(Query *query)
{
	if (query->setOperations || query->hasTargetSRFs || list_length(query->jointree->fromlist) != 1 ||
		!IsA(linitial(query->jointree->fromlist), RangeTblRef))
		return NULL;
	return rt_fetch(linitial_node(RangeTblRef, query->jointree->fromlist)->rtindex, query->rtable);
}

/* lower(w), upper(w) or window_time(w): gives the w. */
static Node *
bound_argument(Node *expr)
{
	FuncExpr *f = (FuncExpr *) expr;

	if (IsA(expr, FuncExpr) && (f->funcid == F_LOWER_ANYRANGE || f->funcid == F_UPPER_ANYRANGE || is_stream_function(f->funcid, "window_time")))
		return linitial(f->args);
	return NULL;
}

/* Windows that are all equally long are told by either end. */
static bool
bounds_tell(OperatorOutput *output, AttrNumber column)
{
	Lineage *lineage = &output->lineage[column - 1];

	return lineage->kind == LINEAGE_WINDOW && lineage->length != NULL && !lineage->session;
}

/* Follows a plain column down to the operator's; 0 when it is anything else. */
static AttrNumber
plain_operator_column(Query *query, Node *expr)
{
	RangeTblEntry *rte = shape_single_input(query);

	if (rte == NULL || !IsA(expr, Var) || ((Var *) expr)->varlevelsup > 0 || ((Var *) expr)->varattno <= 0)
		return 0;
	if (rte_operator(rte) >= 0)
		return ((Var *) expr)->varattno;
	if (rte->rtekind == RTE_SUBQUERY)
		return plain_operator_column(rte->subquery, (Node *) get_tle_by_resno(rte->subquery->targetList, ((Var *) expr)->varattno)->expr);
	return 0;
}

int
shape_operator_below(Query *query)
{
	RangeTblEntry *rte = shape_single_input(query);

	if (rte == NULL)
		return -1;
	return rte->rtekind == RTE_SUBQUERY ? shape_operator_below(rte->subquery) : rte_operator(rte);
}

/* The same through an end of a window, where that tells the window. */
static AttrNumber
told_operator_column(OperatorOutput *output, Query *query, Node *expr)
{
	RangeTblEntry *rte = shape_single_input(query);
	Node *window = bound_argument(expr);
	AttrNumber column;

	if (window)
	{
		column = plain_operator_column(query, window);
		return column > 0 && bounds_tell(output, column) ? column : 0;
	}
	if (rte && rte->rtekind == RTE_SUBQUERY && IsA(expr, Var) && ((Var *) expr)->varlevelsup == 0 && ((Var *) expr)->varattno > 0)
		return told_operator_column(output, rte->subquery, (Node *) get_tle_by_resno(rte->subquery->targetList, ((Var *) expr)->varattno)->expr);
	return plain_operator_column(query, expr);
}

/* Columns of the operator that the output tells. */
static Bitmapset *
shown_columns(OperatorOutput *output, Query *final)
{
	Bitmapset *seen = NULL;
	ListCell *lc;

	foreach (lc, final->targetList)
	{
		TargetEntry *tle = lfirst(lc);

		if (!tle->resjunk)
			seen = bms_add_member(seen, told_operator_column(output, final, (Node *) tle->expr));
	}
	return seen;
}

static bool
key_is_unique(Compile *c, Query *final)
{
	int index = shape_operator_below(final);
	OperatorOutput *output = index >= 0 ? list_nth(c->outputs, index) : NULL;
	Bitmapset *seen;

	if (output == NULL)
		return false;
	seen = shown_columns(output, final);
	for (int i = 1; i <= output->nkeys; i++)
		if (!bms_is_member(i, seen))
			return false;
	return true;
}

/* ---- update mode ---- */

static bool
reads_aggregate(Compile *c, Query *query)
{
	ListCell *lc;

	foreach (lc, tree_operators_read(query))
		if (((OperatorOutput *) list_nth(c->outputs, lfirst_int(lc)))->aggregated)
			return true;
	return false;
}

static bool
union_of_aggregates(Compile *c, Query *query)
{
	ListCell *lc;

	if (query->setOperations)
		return true;
	foreach (lc, query->rtable)
	{
		RangeTblEntry *rte = lfirst(lc);

		if (rte->rtekind == RTE_SUBQUERY && reads_aggregate(c, rte->subquery) && union_of_aggregates(c, rte->subquery))
			return true;
	}
	return false;
}

/* Keys that no output column tells: groups that differ in them alone have one key in the target. */
static char *
hidden_keys(Compile *c, Query *final, Bitmapset *shown)
{
	StringInfoData names;
	ListCell *lc;

	initStringInfo(&names);
	foreach (lc, tree_operators_read(final))
	{
		int index = lfirst_int(lc);
		OperatorOutput *output = list_nth(c->outputs, index);
		OperatorSpec *spec = list_nth(c->plan->operators, index);

		for (int i = 1; output->aggregated && i <= output->nkeys; i++)
			if (!bms_is_member(KEY_NUMBER(index, i), shown))
				appendStringInfo(&names, "%s\"%s\"", names.len ? ", " : "", NameStr(TupleDescAttr(spec->output, i - 1)->attname));
	}
	return names.len ? names.data : NULL;
}

static void
find_update_key(Compile *c, Level *final, SinkShape *shape)
{
	ListCell *lc;
	Bitmapset *shown = NULL;
	bool grouped = false, keys_shown = false;

	foreach (lc, tree_operators_read(final->query))
	{
		OperatorOutput *output = list_nth(c->outputs, lfirst_int(lc));

		grouped |= output->aggregated && output->nkeys > 0;
	}
	if (union_of_aggregates(c, final->query))
		ereport(ERROR, (errcode(REFUSE), errmsg("UNION ALL over aggregates is not supported in output mode update"),
						errdetail("Groups of its branches that have equal keys would replace each other."),
						errhint("Write one query per branch, or aggregate above the UNION ALL.")));
	foreach (lc, final->query->targetList)
	{
		TargetEntry *tle = lfirst(lc);
		Facts facts;

		if (tle->resjunk)
			continue;
		facts = facts_of(c, final, (Node *) tle->expr);
		if (facts.expanded && shape->expanded == NULL)
			shape->expanded = tle->resname;
		keys_shown |= facts.key && !facts.aggregate;
		shown = bms_add_members(shown, facts.keys);
		if (!facts.aggregate && !facts.changing)
			shape->key = bms_add_member(shape->key, tle->resno);
	}
	if (grouped && !keys_shown)
		ereport(ERROR, (errcode(REFUSE), errmsg("none of the GROUP BY keys is in the output of the query"),
						errdetail("In output mode update rows replace earlier ones with the same key."),
						errhint("Add the GROUP BY keys to the SELECT list.")));
	shape->key_is_unique = key_is_unique(c, final->query);
	c->hidden_keys = hidden_keys(c, final->query, shown);
}

/* Does a condition above an aggregate decide which of its groups come out? */
bool
shape_filters_groups(Compile *c, Level *level)
{
	ListCell *lc;

	if (!reads_aggregate(c, level->query))
		return false;
	if (facts_of(c, level, (Node *) level->query->jointree).aggregate)
		return true;
	foreach (lc, level->query->rtable)
	{
		RangeTblEntry *rte = lfirst(lc);
		Level below = {rte->subquery, level};

		if (rte->rtekind == RTE_SUBQUERY && shape_filters_groups(c, &below))
			return true;
	}
	return false;
}

/* An expression of the level over the operator's output alone, where it is a group key, an end of one that is a window, or a constant; else NULL. */
static Node *
group_column(Compile *c, Level *level, Node *expr, int index, AttrNumber *column)
{
	OperatorOutput *output = list_nth(c->outputs, index);
	Node *window = bound_argument(expr);
	RangeTblEntry *rte;
	Level *at = NULL;
	Var *var = (Var *) expr;
	List *origins;

	if (window)
	{
		FuncExpr *end = (FuncExpr *) copyObject(expr);

		window = group_column(c, level, window, index, column);
		end->args = list_make1(window);
		return window && *column > 0 && bounds_tell(output, *column) ? (Node *) end : NULL;
	}
	if (IsA(expr, Const))
		return copyObject(expr);
	if (!IsA(expr, Var) || (rte = tree_var_rte(level, var, &at)) == NULL)
		return NULL;
	if (rte_operator(rte) == index)
	{
		*column = var->varattno;
		return var->varattno > 0 && var->varattno <= output->nkeys
			? (Node *) makeVar(1, var->varattno, var->vartype, var->vartypmod, var->varcollid, 0) : NULL;
	}
	origins = tree_origins(level, var);
	if (list_length(origins) != 1 || (rte->rtekind == RTE_SUBQUERY && !list_member_int(tree_operators_read(rte->subquery), index)))
		return NULL;
	return group_column(c, ((Origin *) linitial(origins))->level, ((Origin *) linitial(origins))->expr, index, column);
}

/*
 * Groups that are joined with something above them: can what a group comes out as change otherwise than row by row? Then all of its rows leave, by the
 * columns that tell its keys, before those of a batch come. `columns` gets the expressions for them, NULL for the others. false: it cannot, or nothing tells.
 */
bool
shape_finds_groups(Compile *c, Level *final, SinkShape *shape, int index, List **columns)
{
	bool varies = shape_filters_groups(c, final);
	Bitmapset *told = NULL, *groups = NULL;
	ListCell *lc;

	*columns = NIL;
	foreach (lc, final->query->targetList)
	{
		TargetEntry *tle = lfirst(lc);
		AttrNumber column = 0;
		Node *expr = tle->resjunk ? NULL : group_column(c, final, (Node *) tle->expr, index, &column);

		if (tle->resjunk)
			continue;
		*columns = lappend(*columns, expr);
		if (expr)
			groups = bms_add_member(groups, tle->resno);
		if (expr && column > 0)
			told = bms_add_member(told, column);
		if (expr == NULL)
			varies |= bms_is_member(tle->resno, shape->key);
	}
	if (!varies || bms_num_members(told) < ((OperatorOutput *) list_nth(c->outputs, index))->nkeys)
		return false;
	shape->whole_groups = true;
	shape->groups = groups;
	return true;
}

/* Rows without a key are found again by all that does not change with the batch. */
static void
find_whole_rows(Compile *c, Level *final, SinkShape *shape, int nkeys)
{
	ListCell *lc;

	shape->whole_rows = true;
	foreach (lc, final->query->targetList)
	{
		TargetEntry *tle = lfirst(lc);
		AttrNumber column;

		if (tle->resjunk || facts_of(c, final, (Node *) tle->expr).changing)
			continue;
		shape->key = bms_add_member(shape->key, tle->resno);
		column = plain_operator_column(final->query, (Node *) tle->expr);
		if (column > 0 && column <= nkeys)
			shape->lookup = bms_add_member(shape->lookup, tle->resno);
	}
}

/* The best rows of keys: do they have a key in the output? */
static bool
rows_are_keyed(Compile *c, Level *final, SinkShape *shape)
{
	int index = shape_operator_below(final->query);
	OperatorOutput *output = index >= 0 ? list_nth(c->outputs, index) : NULL;

	if (output == NULL || !output->best)
		return true;
	shape->replaces = best_decide(c, output, index, shown_columns(output, final->query));
	if (shape->replaces)
		return true;
	find_whole_rows(c, final, shape, output->nkeys);
	return false;
}

void
shape_build(Compile *c, Level *final)
{
	SinkShape *shape = &c->plan->shape;

	shape->desc = ExecCleanTypeFromTL(final->query->targetList);
	shape->mode = c->mode;
	shape->aggregated = reads_aggregate(c, final->query);
	if (c->mode == OUTPUT_UPDATE && shape->aggregated)
	{
		shape->aggregated = rows_are_keyed(c, final, shape);
		if (shape->aggregated)
			find_update_key(c, final, shape);
	}
}
