/*
 * cut.c: what every operator's cutter does: name columns, make the input stage out of a level, tell when a key closes, and let the level go on
 * reading the operator's output.
 */
#include "plan/internal.h"

#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "optimizer/tlist.h"
#include "parser/parsetree.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

/* ---- names and columns ---- */

char *
cut_unique_name(List *taken, const char *name)
{
	char *result = pstrdup(name);
	int n = 1;

	for (;;)
	{
		ListCell *lc;
		bool found = false;

		foreach (lc, taken)
			found |= strcmp(lfirst(lc), result) == 0;
		if (!found)
			return result;
		result = psprintf("%s_%d", name, n++);
	}
}

/* What the user called it: the state reader shows groups under these names. */
const char *
cut_column_name(Query *query, Node *expr)
{
	ListCell *lc;

	foreach (lc, query->targetList)
	{
		TargetEntry *tle = lfirst(lc);

		if (!tle->resjunk && tle->resname && equal(tle->expr, expr))
			return tle->resname;
	}
	if (IsA(expr, Var) && ((Var *) expr)->varattno > 0 && ((Var *) expr)->varlevelsup == 0)
		return get_rte_attribute_name(rt_fetch(((Var *) expr)->varno, query->rtable), ((Var *) expr)->varattno);
	if (IsA(expr, Aggref))
		return get_func_name(((Aggref *) expr)->aggfnoid);
	if (IsA(expr, FuncExpr))
		return get_func_name(((FuncExpr *) expr)->funcid);
	return "key";
}

int
cut_add_column(List **columns, Node *expr, const char *name)
{
	int resno = list_length(*columns) + 1;

	*columns = lappend(*columns, makeTargetEntry((Expr *) copyObject(expr), resno, pstrdup(name), false));
	return resno;
}

/* Arguments of one column are shared: sum(v), avg(v) and a FILTER on the same condition read what is there. */
int
cut_share_column(List **columns, Node *expr, const char *name)
{
	ListCell *lc;

	foreach (lc, *columns)
		if (equal(((TargetEntry *) lfirst(lc))->expr, expr))
			return ((TargetEntry *) lfirst(lc))->resno;
	return cut_add_column(columns, expr, name);
}

Var *
cut_output_var(Node *expr, int attno, int depth)
{
	return makeVar(1, attno, exprType(expr), exprTypmod(expr), exprCollation(expr), depth);
}

/* ---- keys ---- */

static int
compare_keys(const ListCell *a, const ListCell *b)
{
	return strcmp(((OrderedKey *) lfirst(a))->text, ((OrderedKey *) lfirst(b))->text);
}

/* Keys in the order of their text: state must not depend on how the SELECT list or the clause is written. */
List *
cut_ordered_keys(Compile *c, Level *level, List *clauses, const char *what)
{
	List *result = NIL;
	ListCell *lc;

	foreach (lc, clauses)
	{
		OrderedKey *key = palloc(sizeof(OrderedKey));

		key->clause = lfirst(lc);
		key->expr = (Node *) get_sortgroupclause_tle(key->clause, level->query->targetList)->expr;
		key->text = signature_expression(c, level, key->expr);
		if (!key->clause->hashable)
			ereport(ERROR, (errcode(REFUSE), errmsg("%s over a stream cannot compare type %s", what, format_type_be(exprType(key->expr))),
							errdetail("The type has no hash function."), errhint("Cast it to a type that has one, such as text."), check_position(c, exprLocation(key->expr))));
		result = lappend(result, key);
	}
	list_sort(result, compare_keys);
	return result;
}

/* What an operator wants to know of its keys. */
void
cut_take_keys(Compile *c, Level *level, List *ordered, CutKeys *keys)
{
	int i = 0;
	ListCell *lc;

	memset(keys, 0, sizeof(*keys));
	keys->n = list_length(ordered);
	keys->eq_operators = palloc(keys->n * sizeof(Oid));
	keys->collations = palloc(keys->n * sizeof(Oid));
	keys->lineages = palloc(keys->n * sizeof(Lineage));
	foreach (lc, ordered)
	{
		OrderedKey *key = lfirst(lc);

		keys->exprs = lappend(keys->exprs, key->expr);
		keys->names = lappend(keys->names, cut_unique_name(keys->names, cut_column_name(level->query, key->expr)));
		keys->eq_operators[i] = key->clause->eqop;
		keys->collations[i] = exprCollation(key->expr);
		keys->lineages[i++] = lineage_of(c, level, key->expr);
	}
}

/* ---- the input stage ---- */

static void
check_no_outer_vars(Level *level, Query *stage)
{
	int up = 1;

	for (Level *outer = level->parent; outer; outer = outer->parent, up++)
		if (contain_vars_of_level((Node *) stage, up))
			ereport(ERROR, (errcode(REFUSE), errmsg("an aggregate, DISTINCT or LIMIT over a stream cannot refer to the query around it"),
							errhint("Compute it in a subquery of its own, and join the result.")));
}

/* The level's FROM and WHERE under another SELECT list. */
Query *
cut_make_input(Compile *c, Level *level, List *columns)
{
	Query *stage = copyObject(level->query);

	stage->targetList = columns;
	stage->hasAggs = false;
	stage->hasTargetSRFs = expression_returns_set((Node *) columns);
	stage->hasWindowFuncs = stage->hasDistinctOn = false;
	stage->groupClause = stage->distinctClause = stage->sortClause = stage->windowClause = NIL;
	stage->groupDistinct = false;
	stage->havingQual = NULL;
	stage->limitOffset = stage->limitCount = NULL;
	stage->rowMarks = NIL;
	tree_drop_unused_ctes(stage);
	tree_carry_ctes(c, level, stage);
	check_no_outer_vars(level, stage);
	return stage;
}

/*
 * SELECT * FROM (the input), for what must be computed from its columns. Fenced: expensive columns are computed once, and set-returning ones have
 * been expanded; OFFSET 0 keeps the planner from merging the two levels, and costs nothing.
 */
Query *
cut_wrap_input(Query *input, bool fenced)
{
	Query *outer = makeNode(Query);
	RangeTblEntry *rte = makeNode(RangeTblEntry);
	RangeTblRef *ref = makeNode(RangeTblRef);
	ListCell *lc;

	if (fenced)
		input->limitOffset = (Node *) makeConst(INT8OID, -1, InvalidOid, sizeof(int64), Int64GetDatum(0), false, FLOAT8PASSBYVAL);
	rte->rtekind = RTE_SUBQUERY;
	rte->subquery = input;
	rte->inFromCl = true;
	rte->eref = makeAlias("input", NIL);
	ref->rtindex = 1;
	outer->commandType = CMD_SELECT;
	outer->canSetTag = true;
	outer->rtable = list_make1(rte);
	outer->jointree = makeFromExpr(list_make1(ref), NULL);
	foreach (lc, input->targetList)
	{
		TargetEntry *tle = lfirst(lc);

		rte->eref->colnames = lappend(rte->eref->colnames, makeString(pstrdup(tle->resname)));
		outer->targetList = lappend(outer->targetList, makeTargetEntry((Expr *) makeVarFromTargetEntry(1, tle), tle->resno,
																	   pstrdup(tle->resname), false));
	}
	return outer;
}

/* ---- event time ---- */

/* The keys by which state can be let go: those with event time and a watermark. All must stem from one event-time column. */
List *
cut_closing_keys(Compile *c, List *keys, Lineage *lineages)
{
	List *result = NIL;
	ListCell *lc;

	foreach (lc, keys)
	{
		int i = foreach_current_index(lc);

		if (lineages[i].kind == LINEAGE_NONE || !lineages[i].has_watermark)
			continue;
		if (result && !lineage_same_columns(lineages[linitial_int(result)].columns, lineages[i].columns))
			ereport(ERROR, (errcode(REFUSE), errmsg("keys over two event-time columns are not supported"),
							errdetail("It would not be clear which of them says when a key is complete."),
							errhint("Keep the event time of one of them."), check_position(c, exprLocation(lfirst(lc)))));
		result = lappend_int(result, i);
	}
	return result;
}

/* Must the keys be computed before their end can be told, or is that cheaper? */
bool
cut_needs_two_levels(CutKeys *keys, List *closing)
{
	ListCell *lc;

	foreach (lc, closing)
		if (!IsA(list_nth(keys->exprs, lfirst_int(lc)), Var) && keys->lineages[lfirst_int(lc)].direct == NULL)
			return true;
	return closing && expression_returns_set((Node *) keys->exprs);
}

/* The least of some timestamptz. */
Expr *
cut_first_time(List *times)
{
	MinMaxExpr *least;

	if (list_length(times) == 1)
		return linitial(times);
	least = makeNode(MinMaxExpr);
	least->minmaxtype = TIMESTAMPTZOID;
	least->op = IS_LEAST;
	least->args = times;
	least->location = -1;
	return (Expr *) least;
}

/* When nothing more can come for a row's keys: at the first of their ends. `columns`: the keys are columns 1… of the FROM item 1 already. */
Expr *
cut_closing_expression(List *keys, Lineage *lineages, List *closing, bool columns)
{
	List *parts = NIL;
	ListCell *lc;

	foreach (lc, closing)
	{
		Lineage *lineage = &lineages[lfirst_int(lc)];
		Node *key = list_nth(keys, lfirst_int(lc));

		if (columns)
			key = (Node *) cut_output_var(key, lfirst_int(lc) + 1, 0);
		parts = list_append_unique(parts, !columns && lineage->direct ? copyObject(lineage->direct) :
																		  lineage_apply(lineage->closes, (Expr *) key));
	}
	return cut_first_time(parts);
}

/* ---- the operator's output ---- */

RangeTblEntry *
cut_output_relation(OperatorSpec *spec)
{
	RangeTblEntry *rte = makeNode(RangeTblEntry);

	rte->rtekind = RTE_NAMEDTUPLESTORE;
	rte->enrname = stage_relation_name(spec->id);
	rte->enrtuples = 1000;
	rte->inFromCl = true;
	rte->eref = makeAlias(rte->enrname, NIL);
	for (int i = 0; i < spec->output->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(spec->output, i);

		rte->coltypes = lappend_oid(rte->coltypes, att->atttypid);
		rte->coltypmods = lappend_int(rte->coltypmods, att->atttypmod);
		rte->colcollations = lappend_oid(rte->colcollations, att->attcollation);
		rte->eref->colnames = lappend(rte->eref->colnames, makeString(pstrdup(NameStr(att->attname))));
	}
	return rte;
}

/* The level's FROM and WHERE have gone into the operator: it reads the output instead. Its SELECT list must be rewritten already. */
void
cut_read_output(Query *query, OperatorSpec *spec, Node *qual)
{
	RangeTblRef *ref = makeNode(RangeTblRef);

	ref->rtindex = 1;
	query->rtable = list_make1(cut_output_relation(spec));
	query->jointree = makeFromExpr(list_make1(ref), qual);
	query->hasTargetSRFs = expression_returns_set((Node *) query->targetList);
	query->setOperations = NULL;
	query->constraintDeps = NIL;
	tree_drop_unused_ctes(query);
}

/* SELECT every column of the output, under the names and places of the level's own SELECT list; junk columns go. */
void
cut_select_output(Query *query)
{
	List *tlist = NIL;
	ListCell *lc;

	foreach (lc, query->targetList)
	{
		TargetEntry *tle = lfirst(lc), *copy;

		if (tle->resjunk)
			continue;
		copy = flatCopyTargetEntry(tle);
		copy->expr = (Expr *) cut_output_var((Node *) tle->expr, list_length(tlist) + 1, 0);
		copy->ressortgroupref = 0;
		tlist = lappend(tlist, copy);
	}
	query->targetList = tlist;
	query->hasSubLinks = false;
}

/* Registers a finished spec with its (first) input stage. */
void
cut_add_operator(Compile *c, OperatorSpec *spec, Query *stage, OperatorOutput *output)
{
	spec->ninputs = 1;
	spec->input = palloc(sizeof(TupleDesc));
	spec->input[0] = ExecCleanTypeFromTL(stage->targetList);
	spec->output_mode = c->mode;
	c->plan->operators = lappend(c->plan->operators, spec);
	c->outputs = lappend(c->outputs, output);
	cut_add_stage(c, stage, spec->id, 0);
}

/* Rows below that are taken back later (updated groups) cannot be counted or remembered. */
void
cut_check_final_rows(Compile *c, Query *stage, const char *what)
{
	ListCell *lc;

	foreach (lc, tree_operators_read(stage))
		if (((OperatorOutput *) list_nth(c->outputs, lfirst_int(lc)))->updating)
			ereport(ERROR, (errcode(REFUSE), errmsg("%s over another stateful operator is not supported in output mode %s", what, output_mode_name(c->mode)),
							errdetail("The groups below change from batch to batch and would be counted again."),
							errhint("Use output mode append, with event time among the GROUP BY keys below.")));
}
