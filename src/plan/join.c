/*
 * join.c: takes joins of two streams out of a level, innermost first. Each side's FROM, with the conditions over it alone, becomes an input stage; the join
 * is replaced by the operator's output, and the level goes on above it.
 * Danger: a condition may move below an outer join only on the side that is preserved, and one over the preserved side alone decides about matches,
 * not about rows.
 */
#include "plan/join.h"

#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "optimizer/prep.h"
#include "optimizer/tlist.h"
#include "util/compat.h"

/* ---- the level above ---- */

typedef struct ColumnContext
{
	Bitmapset *rtes;
	List *vars;		 /* collected */
	List *outputs;	 /* Vars in the order of the output, for replacing */
	int rtindex;
	int depth;
} ColumnContext;

static bool
collect_columns_walker(Node *node, ColumnContext *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, Var))
	{
		Var *var = (Var *) node;

		if ((int) var->varlevelsup == context->depth && bms_is_member(var->varno, context->rtes))
		{
			var = copyObject(var);
			var->varlevelsup = 0;
			context->vars = list_append_unique(context->vars, var);
		}
		return false;
	}
	if (IsA(node, Query))
	{
		bool result;

		context->depth++;
		result = query_tree_walker((Query *) node, collect_columns_walker, context, QTW_IGNORE_JOINALIASES);
		context->depth--;
		return result;
	}
	return expression_tree_walker(node, collect_columns_walker, context);
}

static Node *
replace_columns_mutator(Node *node, ColumnContext *context)
{
	if (node == NULL)
		return NULL;
	if (IsA(node, Var))
	{
		Var *var = (Var *) node, *plain;
		ListCell *lc;

		if ((int) var->varlevelsup != context->depth || !bms_is_member(var->varno, context->rtes))
			return (Node *) copyObject(var);
		plain = copyObject(var);
		plain->varlevelsup = 0;
		foreach (lc, context->outputs)
			if (equal(lfirst(lc), plain))
				return (Node *) makeVar(context->rtindex, foreach_current_index(lc) + 1, var->vartype, var->vartypmod, var->varcollid, context->depth);
		ereport(ERROR, (errcode(REFUSE), errmsg("a column of a join of two streams is used where it is not there"),
					errhint("Write the join in a subquery in FROM, and use its columns above it.")));
	}
	if (IsA(node, Query))
	{
		Query *result;

		context->depth++;
		result = query_tree_mutator((Query *) node, replace_columns_mutator, context, QTW_IGNORE_JOINALIASES);
		context->depth--;
		return (Node *) result;
	}
	return expression_tree_mutator(node, replace_columns_mutator, context);
}

/* Keeps range table indexes as they are. */
static RangeTblEntry *
gone_relation(void)
{
	RangeTblEntry *rte = makeNode(RangeTblEntry);

	rte->rtekind = RTE_RESULT;
	rte->eref = makeAlias("gone", NIL);
	return rte;
}

static void
drop_relations(Query *query, Bitmapset *rtes)
{
	ListCell *lc;

	foreach (lc, query->rtable)
		if (bms_is_member(foreach_current_index(lc) + 1, rtes))
			lfirst(lc) = gone_relation();
}

/* ---- payload ---- */

typedef struct PayloadColumn
{
	Var *var;
	char *text;
} PayloadColumn;

static int
compare_columns(const ListCell *a, const ListCell *b)
{
	return strcmp(((PayloadColumn *) lfirst(a))->text, ((PayloadColumn *) lfirst(b))->text);
}

/* What is stored of a row: the columns used above and by the remaining conditions, in the order of their text. */
static void
find_payload(JoinCut *join)
{
	for (int i = 0; i < 2; i++)
	{
		Side *side = &join->sides[i];
		ColumnContext context = {.rtes = side->rtes};
		List *columns = NIL;
		ListCell *lc;

		(void) query_tree_walker(join->level->query, collect_columns_walker, &context, QTW_IGNORE_JOINALIASES);
		side->visible = list_copy(context.vars);
		(void) collect_columns_walker((Node *) join->residual, &context);
		foreach (lc, context.vars)
		{
			PayloadColumn *column = palloc(sizeof(PayloadColumn));

			column->var = lfirst(lc);
			if (column->var->vartype == RECORDOID)
				ereport(ERROR, (errcode(REFUSE), errmsg("a whole row of a subquery cannot be kept by a join of two streams"),
								errhint("Name its columns."), check_position(join->c, column->var->location)));
			column->text = signature_expression(join->c, &join->before, (Node *) column->var);
			columns = lappend(columns, column);
		}
		list_sort(columns, compare_columns);
		foreach (lc, columns)
			side->payload = lappend(side->payload, ((PayloadColumn *) lfirst(lc))->var);
	}
}

/* ---- input stages ---- */

static const char *
column_name(JoinCut *join, Node *expr)
{
	return cut_column_name(join->before.query, expr);
}

/* The first of the bounds: a row goes as soon as one of them says it can match nothing more. */
static Expr *
expires_expression(List *bounds)
{
	List *parts = NIL;
	ListCell *lc;

	foreach (lc, bounds)
		parts = list_append_unique(parts, ((TimeBound *) lfirst(lc))->expires);
	return cut_first_time(parts);
}

static Query *
make_stage(JoinCut *join, int i)
{
	Side *side = &join->sides[i];
	JoinSpec *spec = join->spec;
	List *columns = NIL, *names = NIL;
	Query below = *join->before.query;
	Level level = {&below, join->before.parent};
	Query *stage;
	Bitmapset *others = NULL;
	ListCell *lc;

	foreach (lc, list_concat_copy(side->keys, side->payload))
	{
		if (foreach_current_index(lc) == list_length(side->keys))
			names = NIL; /* a key may be among the columns too: both bear its name, the state reader shows both */
		names = lappend(names, cut_unique_name(names, column_name(join, lfirst(lc))));
		cut_add_column(&columns, lfirst(lc), llast(names));
	}
	spec->npayload[i] = list_length(side->payload);
	if (side->event_column)
		spec->event_time[i] = cut_add_column(&columns, (Node *) lineage_apply(side->event_time.closes, side->event_column), "event_time");
	if (side->bounds)
		spec->expires[i] = cut_add_column(&columns, (Node *) expires_expression(side->bounds), "expires");
	if (side->own)
		spec->own[i] = cut_add_column(&columns, (Node *) make_ands_explicit(side->own), "can_match");

	below.jointree = makeFromExpr(list_make1(side->from), side->filters ? (Node *) make_ands_explicit(side->filters) : NULL);
	stage = cut_make_input(join->c, &level, columns);
	stage->setOperations = NULL;
	foreach (lc, stage->rtable)
	{
		RangeTblEntry *rte = lfirst(lc);

		/* joins and streams around this side are not in its FROM any more; tables stay, with the permissions to check */
		if (!bms_is_member(foreach_current_index(lc) + 1, side->rtes) && (rte->rtekind != RTE_RELATION || rte_is_source(rte)))
			others = bms_add_member(others, foreach_current_index(lc) + 1);
	}
	drop_relations(stage, others);
	return stage;
}

/* A side may not look at the other through LATERAL. */
static void
check_sides_apart(JoinCut *join, int i, Query *stage)
{
	ColumnContext context = {.rtes = NULL};

	for (int index = 1; index <= list_length(stage->rtable); index++)
		if (!bms_is_member(index, join->sides[i].rtes))
			context.rtes = bms_add_member(context.rtes, index);
	(void) query_tree_walker(stage, collect_columns_walker, &context, QTW_IGNORE_JOINALIASES);
	if (context.vars)
		ereport(ERROR, (errcode(REFUSE), errmsg("LATERAL from one stream to another is not supported"),
						errhint("Join the two with a condition that contains an equality."),
						check_position(join->c, ((Var *) linitial(context.vars))->location)));
}

/* ---- conditions for the operator: Vars are input columns ---- */

static Node *
operator_vars_mutator(Node *node, JoinCut *join)
{
	if (node == NULL)
		return NULL;
	if (IsA(node, Var) && ((Var *) node)->varlevelsup == 0)
	{
		Var *var = (Var *) node;

		for (int i = 0; i < 2; i++)
		{
			ListCell *lc;

			foreach (lc, join->sides[i].payload)
				if (equal(lfirst(lc), var))
					return (Node *) makeVar(i == 0 ? OUTER_VAR : INNER_VAR, join->spec->nkeys + foreach_current_index(lc) + 1, var->vartype, var->vartypmod,
											var->varcollid, 0);
		}
	}
	return expression_tree_mutator(node, operator_vars_mutator, join);
}

/* ---- all of it ---- */

static OperatorOutput *
describe_output(JoinCut *join, List *outputs)
{
	OperatorOutput *output = palloc0(sizeof(OperatorOutput));
	ListCell *lc;

	output->nkeys = list_length(outputs);
	output->lineage = palloc0(Max(output->nkeys, 1) * sizeof(Lineage));
	foreach (lc, outputs)
	{
		int i = foreach_current_index(lc) < list_length(join->sides[0].payload) ? 0 : 1;

		if (list_member(join->sides[i].visible, lfirst(lc)))
			output->lineage[foreach_current_index(lc)] = bound_lineage(lineage_of(join->c, &join->before, lfirst(lc)), lfirst(lc), join->sides[i].bounds);
	}
	return output;
}

static TupleDesc
output_desc(JoinCut *join, List *outputs)
{
	List *tlist = NIL, *names = NIL;
	ListCell *lc;

	foreach (lc, outputs)
	{
		names = lappend(names, cut_unique_name(names, column_name(join, lfirst(lc))));
		tlist = lappend(tlist, makeTargetEntry(lfirst(lc), list_length(tlist) + 1, llast(names), false));
	}
	return ExecCleanTypeFromTL(tlist);
}

static void
add_operator(JoinCut *join, Query *stages[2], List *outputs)
{
	Compile *c = join->c;
	JoinSpec *spec = join->spec;
	List *keys[2] = {join->sides[0].keys, join->sides[1].keys}, *payload[2] = {join->sides[0].payload, join->sides[1].payload};

	spec->base.ops = &join_operator;
	spec->base.id = list_length(c->plan->operators);
	spec->base.output = output_desc(join, outputs);
	spec->bounded = spec->expires[0] > 0 || spec->expires[1] > 0;
	spec->base.has_watermark = spec->event_time[0] > 0 || spec->event_time[1] > 0;
	spec->qual = (List *) operator_vars_mutator((Node *) join->residual, join);
	spec->base.signature = signature_of_join(c, &join->before, spec, keys, payload);
	cut_add_operator(c, &spec->base, stages[0], describe_output(join, outputs));
	spec->base.ninputs = 2;
	spec->base.input = repalloc(spec->base.input, 2 * sizeof(TupleDesc));
	spec->base.input[1] = ExecCleanTypeFromTL(stages[1]->targetList);
	cut_add_stage(c, stages[1], spec->base.id, 1);
}

static StreamJoinType
stream_join_type(JoinType type)
{
	switch (type)
	{
		case JOIN_LEFT:
			return STREAM_JOIN_LEFT;
		case JOIN_RIGHT:
			return STREAM_JOIN_RIGHT;
		case JOIN_FULL:
			return STREAM_JOIN_FULL;
		case JOIN_SEMI:
			return STREAM_JOIN_SEMI;
		default:
			return STREAM_JOIN_INNER;
	}
}

/* Cuts the join at *place, which becomes a reference to the operator's output. commutes: no outer join above would have to see filtered rows. */
static void
cut_join(Compile *c, Level *level, Node **place, bool commutes)
{
	JoinExpr *expr = castNode(JoinExpr, *place);
	Query *query = level->query, *before = palloc(sizeof(Query)), *stages[2];
	RangeTblRef *ref = makeNode(RangeTblRef);
	JoinCut join = {.c = c, .level = level, .spec = palloc0(sizeof(JoinSpec))};
	ColumnContext context = {0};

	join.spec->type = stream_join_type(expr->jointype);
	join.sides[0].from = expr->larg;
	join.sides[1].from = expr->rarg;
	for (int i = 0; i < 2; i++)
		join.sides[i].rtes = get_relids_in_jointree(join.sides[i].from, true);
	join_take_conditions(&join, expr->quals, commutes);
	join_order_keys(&join);
	join_find_event_columns(&join);
	join_check(&join);

	*before = *query;
	before->rtable = list_copy(query->rtable);
	before->jointree = copyObject(query->jointree);
	join.before = (Level){before, level->parent};
	ref->rtindex = list_length(query->rtable) + 1;
	*place = (Node *) ref;
	context.rtes = bms_union(join.sides[0].rtes, join.sides[1].rtes);
	context.rtindex = ref->rtindex;
	drop_relations(query, context.rtes);
	if (expr->rtindex > 0)
		drop_relations(query, bms_make_singleton(expr->rtindex));
	find_payload(&join);
	for (int i = 0; i < 2; i++)
	{
		stages[i] = make_stage(&join, i);
		check_sides_apart(&join, i, stages[i]);
		cut_check_final_rows(c, stages[i], "a join");
		check_not_volatile(c, stages[i], "a join");
	}
	context.outputs = join.spec->type == STREAM_JOIN_SEMI ? join.sides[0].payload : list_concat_copy(join.sides[0].payload, join.sides[1].payload);
	add_operator(&join, stages, context.outputs);
	query->rtable = lappend(query->rtable, cut_output_relation(&join.spec->base));
	*query = *query_tree_mutator(query, replace_columns_mutator, &context, QTW_IGNORE_JOINALIASES);
}

/* Innermost first. Every cut makes a new tree: start over after each. */
static bool
cut_first_join(Compile *c, Level *level, Node **place, bool commutes)
{
	Query *query = level->query;
	JoinExpr *join;
	ListCell *lc;

	if (IsA(*place, FromExpr))
	{
		foreach (lc, ((FromExpr *) *place)->fromlist)
			if (cut_first_join(c, level, (Node **) &lfirst(lc), commutes))
				return true;
		return false;
	}
	if (!IsA(*place, JoinExpr))
		return false;
	join = (JoinExpr *) *place;
	if (cut_first_join(c, level, &join->larg, commutes && (join->jointype == JOIN_INNER || join->jointype == JOIN_LEFT || join->jointype == JOIN_SEMI)) ||
		cut_first_join(c, level, &join->rarg, commutes && (join->jointype == JOIN_INNER || join->jointype == JOIN_RIGHT)))
		return true;
	if (!tree_streams_below(query, join->larg) || !tree_streams_below(query, join->rarg))
		return false;
	cut_join(c, level, place, commutes);
	return true;
}

/* FROM a, b: an inner join of the first two streams. */
static bool
join_listed_streams(Query *query)
{
	List *rest = NIL;
	JoinExpr *join = NULL;
	ListCell *lc;

	foreach (lc, query->jointree->fromlist)
	{
		if (!tree_streams_below(query, lfirst(lc)) || (join && join->rarg))
			rest = lappend(rest, lfirst(lc));
		else if (join == NULL)
		{
			join = makeNode(JoinExpr);
			join->jointype = JOIN_INNER;
			join->larg = lfirst(lc);
			rest = lcons(join, rest);
		}
		else
			join->rarg = lfirst(lc);
	}
	if (join == NULL || join->rarg == NULL)
		return false;
	query->jointree->fromlist = rest;
	return true;
}

void
cut_joins(Compile *c, Level *level)
{
	Query *query = level->query;
	bool found = true;

	if (query->setOperations || list_length(tree_streams_in_from(query)) < 2)
		return;
	tree_flatten_aliases(query);
	while (found)
	{
		Node *from = (Node *) query->jointree;

		found = cut_first_join(c, level, &from, true) || join_listed_streams(query);
	}
}
