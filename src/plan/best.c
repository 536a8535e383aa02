/*
 * best.c: takes DISTINCT ON … ORDER BY and row_number() … <= n out of their level: the best n rows of a key so far.
 * Better rows push others out, so both need output mode update and a sink that can take rows back.
 * How rows are told apart in the target is decided when the last stage is known: by their key (and place), where the output shows it, else whole.
 */
#include "plan/internal.h"

#include "access/stratnum.h"
#include "access/sysattr.h"
#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "optimizer/tlist.h"
#include "parser/parsetree.h"
#include "util/compat.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"

/* An expression a row is kept for, with the text its place in the state is decided by. */
typedef struct Kept
{
	Node *expr;
	char *text;
	char *name;
} Kept;

typedef struct BestCut
{
	Compile *c;
	Level *level;
	BestSpec *spec;
	const char *what;
	List *clauses; /* SortGroupClause of the order, those of keys left out */
	List *keys;
	List *key_names;
	Lineage *lineages;
	List *kept; /* Kept */
} BestCut;

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

/* ---- n ---- */

static bool
contains_rank_walker(Node *node, void *context)
{
	if (node == NULL)
		return false;
	return IsA(node, WindowFunc) || expression_tree_walker(node, contains_rank_walker, context);
}

static bool
contains_rank(Node *node)
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
	WindowFunc *first = NULL;

	(void) other_window_walker((Node *) cut->level->query->targetList, &first);
	ereport(ERROR, (errcode(REFUSE), errmsg("row_number() over a stream must be compared with a constant by the query around it"),
					errdetail("Only the first rows of each key can be kept."),
					errhint("Write SELECT … FROM (SELECT …, row_number() OVER (PARTITION BY k ORDER BY v DESC) AS rn FROM …) x WHERE rn <= 10."),
					check_position(cut->c, first->location)));
}

/*
 * Reads n from the conditions of the level above, and takes those away that then hold for every row. What is left of them, and the SELECT list, may
 * ask for the rank again.
 */
static int64
take_count(BestCut *cut)
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

/* Does anything above look at the rank? */
static bool
rank_is_used(BestCut *cut)
{
	Index rtindex = index_in_parent(cut->level);
	Query *parent = cut->level->parent->query;
	ListCell *lc;

	foreach (lc, list_concat(pull_var_clause((Node *) parent->targetList, PVC_RECURSE_AGGREGATES | PVC_RECURSE_WINDOWFUNCS | PVC_RECURSE_PLACEHOLDERS),
							 pull_var_clause(parent->jointree->quals, PVC_RECURSE_AGGREGATES | PVC_RECURSE_WINDOWFUNCS | PVC_RECURSE_PLACEHOLDERS)))
	{
		Var *var = lfirst_node(Var, lc);

		if (var->varno == rtindex && (var->varattno <= 0 || contains_rank((Node *) get_tle_by_resno(cut->level->query->targetList, var->varattno)->expr)))
			return true;
	}
	return false;
}

/* SELECT * below is the custom, and rows are kept for long: what the level above does not read is not kept. */
static void
drop_unread_columns(BestCut *cut)
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

/* ---- keys and order ---- */

static void
collect_keys(BestCut *cut, List *clauses)
{
	List *ordered = cut_ordered_keys(cut->c, cut->level, clauses, cut->what);
	BestSpec *spec = cut->spec;
	int n = list_length(ordered), i = 0;
	ListCell *lc;

	spec->nkeys = n;
	spec->eq_operators = palloc((n + 1) * sizeof(Oid));
	spec->collations = palloc((n + 1) * sizeof(Oid));
	cut->lineages = palloc((n + 1) * sizeof(Lineage));
	foreach (lc, ordered)
	{
		OrderedKey *key = lfirst(lc);

		cut->keys = lappend(cut->keys, key->expr);
		cut->key_names = lappend(cut->key_names, cut_unique_name(cut->key_names, cut_column_name(cut->level->query, key->expr)));
		spec->eq_operators[i] = key->clause->eqop;
		spec->collations[i] = exprCollation(key->expr);
		cut->lineages[i] = lineage_of(cut->c, cut->level, key->expr);
		i++;
	}
}

/* Within a key its own columns do not differ. */
static void
collect_order(BestCut *cut, List *clauses)
{
	ListCell *lc;

	foreach (lc, clauses)
	{
		SortGroupClause *clause = lfirst(lc);

		if (!list_member(cut->keys, get_sortgroupclause_expr(clause, cut->level->query->targetList)))
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

	if (list_member(cut->keys, expr) || kept_index(cut, expr) >= 0)
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
	if (!contains_rank(node) && !IsA(node, List))
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
	List *taken = list_copy(cut->key_names);
	ListCell *lc;

	foreach (lc, query->targetList)
	{
		TargetEntry *tle = lfirst(lc);

		if (tle->resjunk)
			continue;
		if (IsA(tle->expr, Const))
			continue;
		if (contains_rank((Node *) tle->expr))
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

static bool
needs_two_levels(BestCut *cut, List *closing)
{
	ListCell *lc;

	foreach (lc, closing)
		if (!IsA(list_nth(cut->keys, lfirst_int(lc)), Var) && cut->lineages[lfirst_int(lc)].direct == NULL)
			return true;
	return expression_returns_set((Node *) cut->keys);
}

static Query *
make_stage(BestCut *cut)
{
	BestSpec *spec = cut->spec;
	List *closing = cut_closing_keys(cut->c, cut->keys, cut->lineages), *columns = NIL;
	bool two_levels = closing && needs_two_levels(cut, closing);
	ListCell *expr, *name;
	Query *stage;

	forboth (expr, cut->keys, name, cut->key_names)
		cut_add_column(&columns, lfirst(expr), lfirst(name));
	foreach (expr, cut->kept)
		cut_add_column(&columns, ((Kept *) lfirst(expr))->expr, ((Kept *) lfirst(expr))->name);
	spec->base.has_watermark = closing != NIL;
	if (closing && !two_levels)
		spec->closes = cut_add_column(&columns, (Node *) cut_closing_expression(cut->keys, cut->lineages, closing, false), "closes");
	stage = cut_make_input(cut->c, cut->level, columns);
	if (two_levels)
	{
		stage = cut_wrap_input(stage, true);
		spec->closes = cut_add_column(&stage->targetList, (Node *) cut_closing_expression(cut->keys, cut->lineages, closing, true), "closes");
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
	foreach (lc, cut->keys)
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
	List *columns = NIL, *taken = list_copy(cut->key_names);
	ListCell *expr, *name;

	forboth (expr, cut->keys, name, cut->key_names)
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
		output->lineage[i] = cut->lineages[i];
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

	drop_unread_columns(cut);
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
	spec->base.signature = signature_of_best(cut->c, cut->level, spec, cut->keys, kept_expressions(cut));
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
	WindowFunc *first = NULL;
	WindowClause *window;

	query->targetList = (List *) flatten_join_alias_vars(query, (Node *) query->targetList);
	(void) other_window_walker((Node *) query->targetList, &first);
	window = list_nth_node(WindowClause, query->windowClause, first->winref - 1);
	cut.spec->count = take_count(&cut);
	cut.spec->by_place = rank_is_used(&cut);
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
