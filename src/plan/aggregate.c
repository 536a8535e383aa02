/*
 * aggregate.c: takes a GROUP BY out of its level. What is below (FROM, WHERE, keys, arguments) becomes the operator's input stage; the level itself
 * goes on in place, reading the operator's output, its keys and aggregates replaced by columns.
 * Danger: a column the level may use only because it depends on a key (GROUP BY primary key) is no key here, and is refused.
 */
#include "plan/internal.h"

#include "catalog/pg_aggregate.h"
#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "optimizer/tlist.h"
#include "parser/parsetree.h"
#include "rewrite/rewriteManip.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

/* A call with the text its place in the state is decided by. */
typedef struct OrderedCall
{
	AggregateCall call;
	char *text;
} OrderedCall;

typedef struct Cut
{
	Compile *c;
	Level *level;
	AggregateSpec *spec;
	int operator_index;
	List *keys;		   /* expressions */
	List *key_names;   /* char * */
	List *calls;	   /* AggregateCall, aggref normalised to its own level */
	List *call_names;  /* char * */
	List *columns;	   /* TargetEntry: the input */
	Lineage *lineages; /* of the keys */
	int depth;		   /* while walking: query levels below this one */
} Cut;

/* ---- names ---- */

static char *
unique_name(List *taken, const char *name)
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
static const char *
output_name(Query *query, Node *expr)
{
	ListCell *lc;

	foreach (lc, query->targetList)
	{
		TargetEntry *tle = lfirst(lc);

		if (!tle->resjunk && tle->resname && equal(tle->expr, expr))
			return tle->resname;
	}
	if (IsA(expr, Var) && ((Var *) expr)->varattno > 0)
		return get_rte_attribute_name(rt_fetch(((Var *) expr)->varno, query->rtable), ((Var *) expr)->varattno);
	if (IsA(expr, Aggref))
		return get_func_name(((Aggref *) expr)->aggfnoid);
	if (IsA(expr, FuncExpr))
		return get_func_name(((FuncExpr *) expr)->funcid);
	return "key";
}

/* ---- keys ---- */

static void
collect_keys(Cut *cut)
{
	Query *query = cut->level->query;
	int n = list_length(query->groupClause), i = 0;
	AggregateSpec *spec = cut->spec;
	ListCell *lc;

	spec->nkeys = n;
	spec->eq_operators = palloc(n * sizeof(Oid));
	spec->collations = palloc(n * sizeof(Oid));
	cut->lineages = palloc(n * sizeof(Lineage));
	foreach (lc, query->groupClause)
	{
		SortGroupClause *clause = lfirst(lc);
		Node *key = (Node *) get_sortgroupclause_tle(clause, query->targetList)->expr;

		if (!clause->hashable)
			ereport(ERROR, (errcode(REFUSE), errmsg("cannot group a stream by type %s", format_type_be(exprType(key))),
							errdetail("The type has no hash function."), check_position(cut->c, exprLocation(key))));
		cut->keys = lappend(cut->keys, key);
		cut->key_names = lappend(cut->key_names, unique_name(cut->key_names, output_name(query, key)));
		spec->eq_operators[i] = clause->eqop;
		spec->collations[i] = exprCollation(key);
		cut->lineages[i] = lineage_of(cut->c, cut->level, key);
		i++;
	}
}

/* ---- aggregates ---- */

static Aggref *
normalise(Aggref *aggref, int depth)
{
	Aggref *copy = copyObject(aggref);

	if (depth > 0)
		IncrementVarSublevelsUp((Node *) copy, -depth, depth);
	return copy;
}

static int
find_call(Cut *cut, Aggref *aggref)
{
	ListCell *lc;

	foreach (lc, cut->calls)
		if (equal(((AggregateCall *) lfirst(lc))->aggref, aggref))
			return foreach_current_index(lc);
	return -1;
}

static bool
collect_calls_walker(Node *node, Cut *cut)
{
	if (node == NULL)
		return false;
	if (IsA(node, Aggref) && (int) ((Aggref *) node)->agglevelsup == cut->depth)
	{
		Aggref *aggref = normalise((Aggref *) node, cut->depth);

		if (AGGKIND_IS_ORDERED_SET(aggref->aggkind))
			ereport(ERROR, (errcode(REFUSE), errmsg("ordered-set aggregate %s is not supported over a stream", get_func_name(aggref->aggfnoid)),
							errhint("Aggregate into a table, and ask the table."), check_position(cut->c, aggref->location)));
		if (find_call(cut, aggref) < 0)
		{
			OrderedCall *ordered = palloc0(sizeof(OrderedCall));

			ordered->call.aggref = aggref;
			cut->calls = lappend(cut->calls, ordered);
		}
		return false; /* aggregates do not nest */
	}
	if (IsA(node, Query))
	{
		bool result;

		cut->depth++;
		result = query_tree_walker((Query *) node, collect_calls_walker, cut, 0);
		cut->depth--;
		return result;
	}
	return expression_tree_walker(node, collect_calls_walker, cut);
}

/* State must not depend on how the SELECT list is written: calls are kept in the order of their text. */
static int
compare_calls(const ListCell *a, const ListCell *b)
{
	return strcmp(((OrderedCall *) lfirst(a))->text, ((OrderedCall *) lfirst(b))->text);
}

static void
collect_calls(Cut *cut)
{
	Query *query = cut->level->query;
	ListCell *lc;

	collect_calls_walker((Node *) query->targetList, cut);
	collect_calls_walker(query->havingQual, cut);
	foreach (lc, cut->calls)
	{
		OrderedCall *ordered = lfirst(lc);

		ordered->text = signature_expression(cut->c, cut->level, (Node *) ordered->call.aggref);
	}
	list_sort(cut->calls, compare_calls);
	foreach (lc, cut->calls)
	{
		Node *aggref = (Node *) ((AggregateCall *) lfirst(lc))->aggref;
		List *taken = list_concat(list_copy(cut->key_names), cut->call_names);

		cut->call_names = lappend(cut->call_names, unique_name(taken, output_name(query, aggref)));
	}
}

/* ---- the input stage ---- */

static int
add_column(Cut *cut, Node *expr, const char *name)
{
	int resno = list_length(cut->columns) + 1;

	cut->columns = lappend(cut->columns, makeTargetEntry((Expr *) copyObject(expr), resno, pstrdup(name), false));
	return resno;
}

/* Arguments of one column are shared: sum(v), avg(v) and a FILTER on the same condition read what is there. */
static int
share_column(Cut *cut, Node *expr, const char *name)
{
	ListCell *lc;

	foreach (lc, cut->columns)
		if (equal(((TargetEntry *) lfirst(lc))->expr, expr))
			return ((TargetEntry *) lfirst(lc))->resno;
	return add_column(cut, expr, name);
}

static void
add_call_columns(Cut *cut, AggregateCall *call, int number)
{
	ListCell *lc;

	call->nargs = list_length(call->aggref->args);
	foreach (lc, call->aggref->args)
	{
		Node *arg = (Node *) ((TargetEntry *) lfirst(lc))->expr;
		char *name = psprintf("arg_%d", number);

		if (call->nargs == 1)
			call->first_arg = share_column(cut, arg, name);
		else if (foreach_current_index(lc) == 0)
			call->first_arg = add_column(cut, arg, name);
		else
			add_column(cut, arg, name);
	}
	if (call->aggref->aggfilter)
		call->filter = share_column(cut, (Node *) call->aggref->aggfilter, psprintf("filter_%d", number));
}

static bool
has_outer_vars(Level *level, Query *stage)
{
	int up = 1;

	for (Level *outer = level->parent; outer; outer = outer->parent, up++)
		if (contain_vars_of_level((Node *) stage, up))
			return true;
	return false;
}

static Query *
make_input(Cut *cut)
{
	Query *stage = copyObject(cut->level->query);

	stage->targetList = cut->columns;
	stage->hasAggs = false;
	stage->hasTargetSRFs = expression_returns_set((Node *) cut->columns);
	stage->hasWindowFuncs = stage->hasDistinctOn = false;
	stage->groupClause = stage->distinctClause = stage->sortClause = stage->windowClause = NIL;
	stage->groupDistinct = false;
	stage->havingQual = NULL;
	stage->limitOffset = stage->limitCount = NULL;
	stage->rowMarks = NIL;
	tree_drop_unused_ctes(stage);
	tree_carry_ctes(cut->c, cut->level, stage);
	return stage;
}

/*
 * SELECT *, when it closes FROM (the input): set-returning keys must have been expanded before their end can be told, and expensive keys are
 * computed once. OFFSET 0 keeps the planner from merging the two levels, and costs nothing.
 */
static Query *
wrap_input(Query *input)
{
	Query *outer = makeNode(Query);
	RangeTblEntry *rte = makeNode(RangeTblEntry);
	RangeTblRef *ref = makeNode(RangeTblRef);
	ListCell *lc;

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

static void
refuse_append(Cut *cut)
{
	ListCell *lc;
	bool bare = false;
	int location = cut->keys ? exprLocation(linitial(cut->keys)) : -1;

	for (int i = 0; i < cut->spec->nkeys; i++)
		bare |= cut->lineages[i].kind != LINEAGE_NONE;
	foreach (lc, cut->c->plan->sources)
		bare |= list_length(cut->c->plan->sources) == 1 && ((SourceDef *) lfirst(lc))->watermark_delay < 0;
	if (bare)
		ereport(ERROR, (errcode(REFUSE), errmsg("an aggregate in append mode needs a watermark"),
						errdetail("Without one no group is ever known to be complete."),
						errhint("Give the source an event_time and a watermark_delay (or use option watermarks), or use output mode update or complete."),
						check_position(cut->c, location)));
	ereport(ERROR, (errcode(REFUSE), errmsg("an aggregate in append mode needs event time with a watermark among its GROUP BY keys"),
					errdetail("Without it no group is ever known to be complete."),
					errhint("Group by the event-time column, or by stream.tumble, stream.hop, date_trunc or date_bin of it; or use output mode update or complete."),
					check_position(cut->c, location)));
}

/* The keys that let groups close. All must stem from one event-time column. */
static List *
closing_keys(Cut *cut)
{
	List *result = NIL;

	for (int i = 0; i < cut->spec->nkeys; i++)
	{
		Lineage *lineage = &cut->lineages[i];

		if (lineage->session)
			ereport(ERROR, (errcode(REFUSE), errmsg("session windows are not supported yet"),
							errhint("Use stream.tumble or stream.hop."),
							check_position(cut->c, exprLocation(list_nth(cut->keys, i)))));
		if (lineage->kind == LINEAGE_NONE || !lineage->has_watermark)
			continue;
		if (result && !lineage_same_columns(cut->lineages[linitial_int(result)].columns, lineage->columns))
			ereport(ERROR, (errcode(REFUSE), errmsg("a GROUP BY over two event-time columns is not supported"),
							errdetail("It would not be clear which of them says when a group is complete."),
							errhint("Keep the event time of one of them."), check_position(cut->c, exprLocation(list_nth(cut->keys, i)))));
		result = lappend_int(result, i);
	}
	return result;
}

/* When a row's group closes: at the first of its keys' ends. */
static Expr *
closing_expression(Cut *cut, List *keys, bool expanded)
{
	List *parts = NIL;
	MinMaxExpr *least;
	ListCell *lc;

	foreach (lc, keys)
	{
		int i = lfirst_int(lc);
		Lineage *lineage = &cut->lineages[i];
		Node *key = list_nth(cut->keys, i);

		if (expanded)
			key = (Node *) makeVar(1, i + 1, exprType(key), exprTypmod(key), exprCollation(key), 0);
		parts = list_append_unique(parts, !expanded && lineage->direct ? copyObject(lineage->direct) :
																		   lineage_apply(lineage->closes, (Expr *) key));
	}
	if (list_length(parts) == 1)
		return linitial(parts);
	least = makeNode(MinMaxExpr);
	least->minmaxtype = TIMESTAMPTZOID;
	least->op = IS_LEAST;
	least->args = parts;
	least->location = -1;
	return (Expr *) least;
}

/* ---- the level that stays ---- */

static Var *
output_var(Node *expr, int attno, int depth)
{
	return makeVar(1, attno, exprType(expr), exprTypmod(expr), exprCollation(expr), depth);
}

static Node *
find_key(Cut *cut, Node *node)
{
	ListCell *lc;

	foreach (lc, cut->keys)
	{
		Node *key = lfirst(lc);

		if (cut->depth == 0 && equal(node, key))
			return (Node *) output_var(key, foreach_current_index(lc) + 1, 0);
		if (cut->depth > 0 && IsA(key, Var) && IsA(node, Var) && ((Var *) key)->varno == ((Var *) node)->varno &&
			((Var *) key)->varattno == ((Var *) node)->varattno && (int) ((Var *) node)->varlevelsup == cut->depth)
			return (Node *) output_var(key, foreach_current_index(lc) + 1, cut->depth);
	}
	return NULL;
}

static void
refuse_dependent_column(Cut *cut, Var *var)
{
	RangeTblEntry *rte = rt_fetch(var->varno, cut->level->query->rtable);

	ereport(ERROR, (errcode(REFUSE), errmsg("column \"%s.%s\" must appear in the GROUP BY clause of a streaming query", rte->eref->aliasname,
											var->varattno > 0 ? get_rte_attribute_name(rte, var->varattno) : "*"),
					errdetail("It depends on a primary key in GROUP BY, but the table may change between batches."),
					errhint("Add the column to GROUP BY, or join the table with the aggregated result."),
					check_position(cut->c, var->location)));
}

static Node *
replace_mutator(Node *node, Cut *cut)
{
	Node *key;

	if (node == NULL)
		return NULL;
	if (IsA(node, Aggref) && (int) ((Aggref *) node)->agglevelsup == cut->depth)
	{
		Aggref *aggref = normalise((Aggref *) node, cut->depth);

		return (Node *) output_var((Node *) aggref, cut->spec->nkeys + find_call(cut, aggref) + 1, cut->depth);
	}
	key = find_key(cut, node);
	if (key)
		return key;
	if (IsA(node, Var) && (int) ((Var *) node)->varlevelsup == cut->depth)
		refuse_dependent_column(cut, (Var *) node);
	if (IsA(node, Query))
	{
		Query *result;

		cut->depth++;
		result = query_tree_mutator((Query *) node, replace_mutator, cut, 0);
		cut->depth--;
		return (Node *) result;
	}
	return expression_tree_mutator(node, replace_mutator, cut);
}

static RangeTblEntry *
output_relation(Cut *cut)
{
	RangeTblEntry *rte = makeNode(RangeTblEntry);
	TupleDesc desc = cut->spec->base.output;

	rte->rtekind = RTE_NAMEDTUPLESTORE;
	rte->enrname = stage_relation_name(cut->operator_index);
	rte->enrtuples = 1000;
	rte->inFromCl = true;
	rte->eref = makeAlias(rte->enrname, NIL);
	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);

		rte->coltypes = lappend_oid(rte->coltypes, att->atttypid);
		rte->coltypmods = lappend_int(rte->coltypmods, att->atttypmod);
		rte->colcollations = lappend_oid(rte->colcollations, att->attcollation);
		rte->eref->colnames = lappend(rte->eref->colnames, makeString(pstrdup(NameStr(att->attname))));
	}
	return rte;
}

static void
rewrite_level(Cut *cut)
{
	Query *query = cut->level->query;
	RangeTblRef *ref = makeNode(RangeTblRef);
	Node *having;

	cut->depth = 0;
	query->targetList = (List *) replace_mutator((Node *) query->targetList, cut);
	having = replace_mutator(query->havingQual, cut);
	ref->rtindex = 1;
	query->rtable = list_make1(output_relation(cut));
	query->jointree = makeFromExpr(list_make1(ref), having);
	query->havingQual = NULL;
	query->groupClause = NIL;
	query->groupDistinct = false;
	query->hasAggs = false;
	query->hasTargetSRFs = expression_returns_set((Node *) query->targetList);
	query->constraintDeps = NIL;
	tree_drop_unused_ctes(query);
}

/* ---- all of it ---- */

static TupleDesc
output_desc(Cut *cut)
{
	List *tlist = NIL;
	ListCell *expr, *name;

	forboth (expr, cut->keys, name, cut->key_names)
		tlist = lappend(tlist, makeTargetEntry(lfirst(expr), list_length(tlist) + 1, lfirst(name), false));
	forboth (expr, cut->calls, name, cut->call_names)
		tlist = lappend(tlist, makeTargetEntry((Expr *) ((AggregateCall *) lfirst(expr))->aggref, list_length(tlist) + 1, lfirst(name), false));
	return ExecCleanTypeFromTL(tlist);
}

/* Must the keys be computed before their end can be told, or is that cheaper? */
static bool
needs_two_levels(Cut *cut, List *closing)
{
	ListCell *lc;

	foreach (lc, closing)
		if (!IsA(list_nth(cut->keys, lfirst_int(lc)), Var) && cut->lineages[lfirst_int(lc)].direct == NULL)
			return true;
	return closing && expression_returns_set((Node *) cut->keys);
}

static Query *
build_input_stage(Cut *cut)
{
	AggregateSpec *spec = cut->spec;
	List *closing = closing_keys(cut);
	ListCell *expr, *name;
	Query *stage;
	Expr *closes = NULL;
	bool expanded = needs_two_levels(cut, closing);

	if (closing == NIL && cut->c->mode == OUTPUT_APPEND)
		refuse_append(cut);
	forboth (expr, cut->keys, name, cut->key_names)
		add_column(cut, lfirst(expr), lfirst(name));
	foreach (expr, cut->calls)
		add_call_columns(cut, lfirst(expr), foreach_current_index(expr) + 1);
	spec->base.has_watermark = closing != NIL;
	if (closing)
		closes = closing_expression(cut, closing, expanded);
	if (closes && !expanded)
		spec->event_time = share_column(cut, (Node *) closes, "closes");
	stage = make_input(cut);
	if (closes && expanded)
	{
		stage = wrap_input(stage);
		spec->event_time = list_length(stage->targetList) + 1;
		stage->targetList = lappend(stage->targetList, makeTargetEntry(closes, spec->event_time, "closes", false));
	}
	return stage;
}

static void
remember_output(Cut *cut)
{
	OperatorOutput *output = palloc0(sizeof(OperatorOutput));

	output->nkeys = cut->spec->nkeys;
	output->lineage = palloc0(cut->spec->base.output->natts * sizeof(Lineage));
	for (int i = 0; i < cut->spec->nkeys; i++)
	{
		output->lineage[i] = cut->lineages[i];
		output->lineage[i].direct = NULL;
	}
	cut->c->outputs = lappend(cut->c->outputs, output);
}

void
cut_aggregate(Compile *c, Level *level)
{
	Query *query = level->query, *stage;
	AggregateSpec *spec = palloc0(sizeof(AggregateSpec));
	Cut cut = {.c = c, .level = level, .spec = spec, .operator_index = list_length(c->plan->operators)};

	query->targetList = (List *) flatten_join_alias_vars(query, (Node *) query->targetList);
	query->havingQual = flatten_join_alias_vars(query, query->havingQual);
	collect_keys(&cut);
	collect_calls(&cut);
	stage = build_input_stage(&cut);
	if (has_outer_vars(level, stage))
		ereport(ERROR, (errcode(REFUSE), errmsg("an aggregate over a stream cannot refer to the query around it"),
						errhint("Aggregate in a subquery of its own, and join the result.")));
	if (c->mode != OUTPUT_APPEND && tree_operators_read(stage) != NIL)
		ereport(ERROR, (errcode(REFUSE), errmsg("an aggregate over another stateful operator is not supported in output mode %s", output_mode_name(c->mode)),
						errdetail("The rows below change from batch to batch and would be counted again."),
						errhint("Use output mode append, with event time among the keys of both.")));
	check_not_volatile(c, stage, "an aggregate");

	spec->calls = cut.calls;
	spec->base.ops = &aggregate_operator;
	spec->base.id = cut.operator_index;
	spec->base.ninputs = 1;
	spec->base.output_mode = c->mode;
	spec->base.input = palloc(sizeof(TupleDesc));
	spec->base.input[0] = ExecCleanTypeFromTL(stage->targetList);
	spec->base.output = output_desc(&cut);
	spec->base.signature = signature_of_aggregate(c, level, spec, cut.keys);
	c->plan->operators = lappend(c->plan->operators, spec);
	remember_output(&cut);
	cut_add_stage(c, stage, cut.operator_index, 0);
	rewrite_level(&cut);
}
