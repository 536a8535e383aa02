/*
 * best.c: takes DISTINCT ON … ORDER BY and row_number() … <= n out of their level: the best n rows of a key so far.
 * Better rows push others out, so both need output mode update and a sink that can take rows back.
 * How rows are told apart in the target is decided when the last stage is known: by their key (and place), where the output shows it, else whole.
 */
#include "plan/best.h"

#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "optimizer/tlist.h"
#include "parser/parsetree.h"
#include "util/compat.h"
#include "utils/lsyscache.h"

/* ---- keys and order ---- */

static void
collect_keys(BestCut *cut, List *clauses)
{
	cut_take_keys(cut->c, cut->level, cut_ordered_keys(cut->c, cut->level, clauses, cut->what), &cut->keys);
	cut->spec->nkeys = cut->keys.n;
	cut->spec->eq_operators = cut->keys.eq_operators;
	cut->spec->collations = cut->keys.collations;
}

/* Within a key its own columns do not differ. */
static void
collect_order(BestCut *cut, List *clauses)
{
	ListCell *lc;

	foreach (lc, clauses)
	{
		SortGroupClause *clause = lfirst(lc);

		if (!list_member(cut->keys.exprs, get_sortgroupclause_expr(clause, cut->level->query->targetList)))
			cut->clauses = lappend(cut->clauses, clause);
	}
}

/* ---- what is kept of a row ---- */

static int
kept_index(BestCut *cut, Node *expr)
{
	ListCell *lc;

	foreach (lc, cut->kept)
		if (equal(((Kept *) lfirst(lc))->expr, expr))
			return foreach_current_index(lc);
	return -1;
}

static void
keep(BestCut *cut, Node *expr)
{
	Kept *kept;

	if (list_member(cut->keys.exprs, expr) || kept_index(cut, expr) >= 0)
		return;
	kept = palloc(sizeof(Kept));
	kept->expr = expr;
	kept->text = signature_expression(cut->c, cut->level, expr);
	cut->kept = lappend(cut->kept, kept);
}

/* Expressions over the rank are computed above the operator, all others below. */
static bool
keep_below_rank_walker(Node *node, BestCut *cut)
{
	if (node == NULL || IsA(node, WindowFunc))
		return false;
	if (!best_contains_rank(node) && !IsA(node, List))
	{
		if (!IsA(node, Const))
			keep(cut, node);
		return false;
	}
	return expression_tree_walker(node, keep_below_rank_walker, cut);
}

static int
compare_kept(const ListCell *a, const ListCell *b)
{
	return strcmp(((Kept *) lfirst(a))->text, ((Kept *) lfirst(b))->text);
}

static void
collect_kept(BestCut *cut)
{
	Query *query = cut->level->query;
	List *taken = list_copy(cut->keys.names);
	ListCell *lc;

	foreach (lc, query->targetList)
	{
		TargetEntry *tle = lfirst(lc);

		if (tle->resjunk)
			continue;
		if (IsA(tle->expr, Const))
			continue;
		if (best_contains_rank((Node *) tle->expr))
			(void) keep_below_rank_walker((Node *) tle->expr, cut);
		else
			keep(cut, (Node *) tle->expr);
	}
	foreach (lc, cut->clauses)
		keep(cut, get_sortgroupclause_expr(lfirst(lc), query->targetList));
	list_sort(cut->kept, compare_kept);
	foreach (lc, cut->kept)
	{
		Kept *kept = lfirst(lc);

		kept->name = cut_unique_name(taken, cut_column_name(query, kept->expr));
		taken = lappend(taken, kept->name);
	}
	cut->spec->nkept = list_length(cut->kept);
}

static void
set_order(BestCut *cut)
{
	BestSpec *spec = cut->spec;
	int n = list_length(cut->clauses);
	ListCell *lc;

	spec->sort_columns = palloc((n + 1) * sizeof(int));
	spec->sort_operators = palloc((n + 1) * sizeof(Oid));
	spec->sort_collations = palloc((n + 1) * sizeof(Oid));
	spec->nulls_first = palloc((n + 1) * sizeof(bool));
	foreach (lc, cut->clauses)
	{
		SortGroupClause *clause = lfirst(lc);
		Node *expr = get_sortgroupclause_expr(clause, cut->level->query->targetList);

		spec->sort_columns[spec->nsort] = kept_index(cut, expr);
		spec->sort_operators[spec->nsort] = clause->sortop;
		spec->sort_collations[spec->nsort] = exprCollation(expr);
		spec->nulls_first[spec->nsort++] = clause->nulls_first;
	}
}

/* ---- the input stage ---- */

static Query *
make_stage(BestCut *cut)
{
	BestSpec *spec = cut->spec;
	List *closing = cut_closing_keys(cut->c, cut->keys.exprs, cut->keys.lineages), *columns = NIL;
	bool two_levels = cut_needs_two_levels(&cut->keys, closing);
	ListCell *expr, *name;
	Query *stage;

	forboth (expr, cut->keys.exprs, name, cut->keys.names)
		cut_add_column(&columns, lfirst(expr), lfirst(name));
	foreach (expr, cut->kept)
		cut_add_column(&columns, ((Kept *) lfirst(expr))->expr, ((Kept *) lfirst(expr))->name);
	spec->base.has_watermark = closing != NIL;
	if (closing && !two_levels)
		spec->closes = cut_add_column(&columns, (Node *) cut_closing_expression(cut->keys.exprs, cut->keys.lineages, closing, false), "closes");
	stage = cut_make_input(cut->c, cut->level, columns);
	if (two_levels)
	{
		stage = cut_wrap_input(stage, true);
		spec->closes = cut_add_column(&stage->targetList, (Node *) cut_closing_expression(cut->keys.exprs, cut->keys.lineages, closing, true), "closes");
	}
	return stage;
}

/* ---- the level that stays ---- */

static Node *
replace_mutator(Node *node, BestCut *cut)
{
	ListCell *lc;
	int index;

	if (node == NULL)
		return NULL;
	if (IsA(node, WindowFunc))
		return (Node *) cut_output_var(node, cut->spec->nkeys + 1, 0);
	foreach (lc, cut->keys.exprs)
		if (equal(lfirst(lc), node))
			return (Node *) cut_output_var(node, foreach_current_index(lc) + 1, 0);
	index = kept_index(cut, node);
	if (index >= 0)
		return (Node *) cut_output_var(node, cut->spec->nkeys + 2 + index, 0);
	return expression_tree_mutator(node, replace_mutator, cut);
}

static void
rewrite_level(BestCut *cut)
{
	Query *query = cut->level->query;
	List *columns = NIL;
	ListCell *lc;

	foreach (lc, query->targetList)
	{
		TargetEntry *tle = lfirst(lc), *copy;

		if (tle->resjunk)
			continue;
		copy = flatCopyTargetEntry(tle);
		copy->expr = (Expr *) replace_mutator((Node *) tle->expr, cut);
		copy->ressortgroupref = 0;
		columns = lappend(columns, copy);
	}
	query->targetList = columns;
	query->distinctClause = query->sortClause = query->windowClause = query->cteList = NIL;
	query->hasDistinctOn = query->hasWindowFuncs = query->hasSubLinks = false;
	cut_read_output(query, &cut->spec->base, NULL);
}

static TupleDesc
output_desc(BestCut *cut)
{
	List *columns = NIL, *taken = list_copy(cut->keys.names);
	ListCell *expr, *name;

	forboth (expr, cut->keys.exprs, name, cut->keys.names)
		cut_add_column(&columns, lfirst(expr), lfirst(name));
	foreach (expr, cut->kept)
		taken = lappend(taken, ((Kept *) lfirst(expr))->name);
	cut_add_column(&columns, (Node *) makeNullConst(INT8OID, -1, InvalidOid), cut_unique_name(taken, "row_number"));
	foreach (expr, cut->kept)
		cut_add_column(&columns, ((Kept *) lfirst(expr))->expr, ((Kept *) lfirst(expr))->name);
	cut_add_column(&columns, makeBoolConst(true, false), "leaves");
	return ExecCleanTypeFromTL(columns);
}

static OperatorOutput *
describe_output(BestCut *cut)
{
	OperatorOutput *output = palloc0(sizeof(OperatorOutput));

	output->best = true;
	output->nkeys = cut->spec->nkeys;
	output->aggregated = output->updating = true;
	output->leaving = cut->what;
	output->lineage = palloc0(cut->spec->base.output->natts * sizeof(Lineage));
	for (int i = 0; i < cut->spec->nkeys; i++)
	{
		output->lineage[i] = cut->keys.lineages[i];
		output->lineage[i].direct = NULL;
	}
	return output;
}

static List *
kept_expressions(BestCut *cut)
{
	List *result = NIL;
	ListCell *lc;

	foreach (lc, cut->kept)
		result = lappend(result, ((Kept *) lfirst(lc))->expr);
	return result;
}

/* ---- all of it ---- */

static void
best_cut(BestCut *cut, List *keys, List *order)
{
	BestSpec *spec = cut->spec;
	Query *stage;

	best_drop_unread_columns(cut);
	collect_keys(cut, keys);
	collect_order(cut, order);
	collect_kept(cut);
	set_order(cut);
	stage = make_stage(cut);
	cut_check_final_rows(cut->c, stage, cut->what);
	check_not_volatile(cut->c, stage, cut->what);
	spec->base.ops = &best_operator;
	spec->base.id = list_length(cut->c->plan->operators);
	spec->base.output = output_desc(cut);
	spec->base.signature = signature_of_best(cut->c, cut->level, spec, cut->keys.exprs, kept_expressions(cut));
	cut_add_operator(cut->c, &spec->base, stage, describe_output(cut));
	rewrite_level(cut);
}

/* SELECT DISTINCT ON (keys) … ORDER BY keys, order. */
void
cut_best(Compile *c, Level *level)
{
	Query *query = level->query;
	BestCut cut = {.c = c, .level = level, .spec = palloc0(sizeof(BestSpec)), .what = "the best rows per key (DISTINCT ON with ORDER BY)"};

	query->targetList = (List *) flatten_join_alias_vars(query, (Node *) query->targetList);
	cut.spec->count = 1;
	best_cut(&cut, query->distinctClause, query->sortClause);
}

/* SELECT …, row_number() OVER (PARTITION BY keys ORDER BY order) below a condition on it. */
void
cut_ranked(Compile *c, Level *level)
{
	Query *query = level->query;
	BestCut cut = {.c = c, .level = level, .spec = palloc0(sizeof(BestSpec)), .what = "the top rows per key (row_number)"};
	WindowClause *window;

	query->targetList = (List *) flatten_join_alias_vars(query, (Node *) query->targetList);
	window = list_nth_node(WindowClause, query->windowClause, best_rank(query)->winref - 1);
	cut.spec->count = best_take_count(&cut);
	cut.spec->by_place = best_rank_is_used(&cut);
	best_cut(&cut, window->partitionClause, window->orderClause);
}

/*
 * How rows are told apart in the target, now that it is known what is shown of them. With the key in the output, and the place where there are
 * several, rows take each other's place; else each is a row by itself, and those that are no longer among the best leave.
 */
bool
best_decide(Compile *c, OperatorOutput *output, int index, Bitmapset *shown)
{
	BestSpec *spec = list_nth(c->plan->operators, index);
	bool keyed = spec->count == 1 || bms_is_member(spec->nkeys + 1, shown);

	for (int i = 1; i <= spec->nkeys; i++)
		keyed = keyed && bms_is_member(i, shown);
	spec->leaves = !keyed;
	spec->by_place = spec->by_place || keyed;
	if (keyed)
		output->nkeys = spec->nkeys + (spec->count > 1 ? 1 : 0);
	else
		output->change = spec->base.output->natts;
	return keyed;
}
