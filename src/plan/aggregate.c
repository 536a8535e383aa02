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
#include "util/compat.h"
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
	CutKeys keys;
	List *calls;	   /* AggregateCall, aggref normalised to its own level */
	List *call_names;  /* char * */
	List *columns;	   /* TargetEntry: the input */
	FuncExpr *session; /* the last key, or NULL */
	FuncExpr *hop;	   /* the last key, put together from panes, or NULL */
	int depth;		   /* while walking: query levels below this one */
} Cut;

/* ---- keys ---- */

static void
collect_keys(Cut *cut)
{
	List *ordered = cut_ordered_keys(cut->c, cut->level, cut->level->query->groupClause, "GROUP BY");
	AggregateSpec *spec;

	cut->session = session_move_last(&ordered);
	if (cut->session == NULL)
		cut->hop = hop_move_last(cut->c, cut->level, &ordered, cut->calls);
	cut_take_keys(cut->c, cut->level, ordered, &cut->keys);
	spec = cut->spec = palloc0(cut->session ? sizeof(SessionSpec) : cut->hop ? sizeof(HopSpec) : sizeof(AggregateSpec));
	spec->nkeys = cut->keys.n;
	spec->eq_operators = cut->keys.eq_operators;
	spec->collations = cut->keys.collations;
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

		if (AGGKIND_IS_ORDERED_SET(aggref->aggkind) && contain_var_clause((Node *) aggref->aggdirectargs))
			ereport(ERROR, (errcode(REFUSE), errmsg("the direct arguments of %s over a stream must be constants", get_func_name(aggref->aggfnoid)),
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
order_calls(Cut *cut)
{
	Query *query = cut->level->query;
	ListCell *lc;

	foreach (lc, cut->calls)
	{
		OrderedCall *ordered = lfirst(lc);

		ordered->text = signature_expression(cut->c, cut->level, (Node *) ordered->call.aggref);
	}
	list_sort(cut->calls, compare_calls);
	foreach (lc, cut->calls)
	{
		Node *aggref = (Node *) ((AggregateCall *) lfirst(lc))->aggref;
		List *taken = list_concat(list_copy(cut->keys.names), cut->call_names);

		cut->call_names = lappend(cut->call_names, cut_unique_name(taken, cut_column_name(query, aggref)));
	}
}

/* ---- the input stage ---- */

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
			call->first_arg = cut_share_column(&cut->columns, arg, name);
		else if (foreach_current_index(lc) == 0)
			call->first_arg = cut_add_column(&cut->columns, arg, name);
		else
			cut_add_column(&cut->columns, arg, name);
	}
	if (call->aggref->aggfilter)
		call->filter = cut_share_column(&cut->columns, (Node *) call->aggref->aggfilter, psprintf("filter_%d", number));
}

/* ---- event time ---- */

static void
refuse_append(Cut *cut)
{
	ListCell *lc;
	bool bare = false;
	int location = cut->keys.exprs ? exprLocation(linitial(cut->keys.exprs)) : -1;

	for (int i = 0; i < cut->spec->nkeys; i++)
		bare |= cut->keys.lineages[i].kind != LINEAGE_NONE;
	foreach (lc, cut->c->plan->sources)
		bare |= list_length(cut->c->plan->sources) == 1 && ((SourceDef *) lfirst(lc))->watermark_delay < 0;
	for (int i = 0; i < cut->spec->nkeys; i++)
		if (cut->keys.lineages[i].unbounded)
			ereport(ERROR, (errcode(REFUSE), errmsg("an aggregate in append mode above a join needs a constant time range in the join's condition"),
							errdetail("Rows of the join may be arbitrarily old, so no watermark says that a group is complete."),
							errhint("Add a condition like b.ts BETWEEN a.ts AND a.ts + interval '1 day'."), check_position(cut->c, location)));
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

/* ---- the level that stays ---- */

static Node *
find_key(Cut *cut, Node *node)
{
	ListCell *lc;

	foreach (lc, cut->keys.exprs)
	{
		Node *key = lfirst(lc);

		if (cut->depth == 0 && equal(node, key))
			return (Node *) cut_output_var(key, foreach_current_index(lc) + 1, 0);
		if (cut->depth > 0 && IsA(key, Var) && IsA(node, Var) && ((Var *) key)->varno == ((Var *) node)->varno &&
			((Var *) key)->varattno == ((Var *) node)->varattno && (int) ((Var *) node)->varlevelsup == cut->depth)
			return (Node *) cut_output_var(key, foreach_current_index(lc) + 1, cut->depth);
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

		return (Node *) cut_output_var((Node *) aggref, cut->spec->nkeys + find_call(cut, aggref) + 1, cut->depth);
	}
	if (IsA(node, GroupingFunc) && (int) ((GroupingFunc *) node)->agglevelsup == cut->depth)
		return (Node *) makeConst(INT4OID, -1, InvalidOid, sizeof(int32), Int32GetDatum(0), false, true); /* there is one grouping */
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

static void
rewrite_level(Cut *cut)
{
	Query *query = cut->level->query;
	Node *having;

	cut->depth = 0;
	query->targetList = (List *) replace_mutator((Node *) query->targetList, cut);
	having = replace_mutator(query->havingQual, cut);
	query->havingQual = NULL;
	query->groupClause = NIL;
	query->groupDistinct = false;
	query->hasAggs = false;
	cut_read_output(query, &cut->spec->base, having);
}

/* ---- all of it ---- */

static TupleDesc
output_desc(Cut *cut)
{
	List *tlist = NIL;
	ListCell *expr, *name;

	forboth (expr, cut->keys.exprs, name, cut->keys.names)
		tlist = lappend(tlist, makeTargetEntry(lfirst(expr), list_length(tlist) + 1, lfirst(name), false));
	forboth (expr, cut->calls, name, cut->call_names)
		tlist = lappend(tlist, makeTargetEntry((Expr *) ((AggregateCall *) lfirst(expr))->aggref, list_length(tlist) + 1, lfirst(name), false));
	if (cut->session && cut->c->mode == OUTPUT_UPDATE)
		tlist = lappend(tlist, makeTargetEntry((Expr *) makeBoolConst(true, false), list_length(tlist) + 1, "leaves", false));
	return ExecCleanTypeFromTL(tlist);
}

static Query *
build_input_stage(Cut *cut)
{
	AggregateSpec *spec = cut->spec;
	List *closing = cut_closing_keys(cut->c, cut->keys.exprs, cut->keys.lineages);
	FuncExpr *window = cut->session ? cut->session : cut->hop; /* the operator says which one a row belongs to */
	bool two_levels = window == NULL && cut_needs_two_levels(&cut->keys, closing);
	ListCell *expr, *name;
	Query *stage;

	if (cut->session && !list_member_int(closing, spec->nkeys - 1))
		closing = NIL;
	if (closing == NIL && cut->c->mode == OUTPUT_APPEND)
		refuse_append(cut);
	forboth (expr, cut->keys.exprs, name, cut->keys.names)
		cut_add_column(&cut->columns, lfirst(expr) == window ? session_placeholder(window) : lfirst(expr), lfirst(name));
	foreach (expr, cut->calls)
		add_call_columns(cut, lfirst(expr), foreach_current_index(expr) + 1);
	spec->base.has_watermark = closing != NIL;
	if (cut->session)
		session_add_columns((SessionSpec *) spec, &cut->columns, cut->session);
	else if (cut->hop)
		hop_fill((HopSpec *) spec, &cut->columns, cut->hop);
	else if (closing && !two_levels)
		spec->event_time = cut_share_column(&cut->columns, (Node *) cut_closing_expression(cut->keys.exprs, cut->keys.lineages, closing, false), "closes");
	stage = cut_make_input(cut->c, cut->level, cut->columns);
	if (closing && two_levels)
	{
		stage = cut_wrap_input(stage, true);
		spec->event_time = cut_add_column(&stage->targetList, (Node *) cut_closing_expression(cut->keys.exprs, cut->keys.lineages, closing, true), "closes");
	}
	return stage;
}

static OperatorOutput *
describe_output(Cut *cut)
{
	OperatorOutput *output = palloc0(sizeof(OperatorOutput));

	output->nkeys = cut->spec->nkeys;
	output->aggregated = true;
	output->updating = cut->c->mode != OUTPUT_APPEND;
	if (cut->session && cut->c->mode == OUTPUT_UPDATE)
	{
		output->session = true;
		output->change = cut->spec->base.output->natts;
		output->leaving = "session windows";
	}
	output->lineage = palloc0(cut->spec->base.output->natts * sizeof(Lineage));
	for (int i = 0; i < cut->spec->nkeys; i++)
	{
		output->lineage[i] = cut->keys.lineages[i];
		output->lineage[i].direct = NULL;
	}
	return output;
}

void
cut_aggregate(Compile *c, Level *level)
{
	Query *query = level->query, *stage;
	AggregateSpec *spec;
	Cut cut = {.c = c, .level = level};

	query->targetList = (List *) flatten_join_alias_vars(query, (Node *) query->targetList);
	query->havingQual = flatten_join_alias_vars(query, query->havingQual);
	collect_calls_walker((Node *) query->targetList, &cut);
	collect_calls_walker(query->havingQual, &cut);
	collect_keys(&cut);
	spec = cut.spec;
	order_calls(&cut);
	stage = build_input_stage(&cut);
	cut_check_final_rows(c, stage, "an aggregate");
	check_not_volatile(c, stage, "an aggregate");

	spec->calls = cut.calls;
	spec->merges = cut.session != NULL;
	spec->combines = cut.hop != NULL;
	spec->base.ops = cut.session ? &session_operator : cut.hop ? &hop_operator : &aggregate_operator;
	spec->base.id = list_length(c->plan->operators);
	spec->base.output = output_desc(&cut);
	spec->base.signature = signature_of_aggregate(c, level, spec, cut.keys.exprs);
	cut_add_operator(c, &spec->base, stage, describe_output(&cut));
	rewrite_level(&cut);
}
