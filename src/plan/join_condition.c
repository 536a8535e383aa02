/*
 * join_condition.c: sorts the conditions of a join of two streams: over one side, equalities that become keys, time ranges that bound the state, and the
 * rest, which the operator tests pair by pair. Then: which event time makes a row late, and what such a join cannot be.
 */
#include "plan/join.h"

#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "parser/parse_coerce.h"
#include "parser/parse_relation.h"
#include "parser/parsetree.h"
#include "rewrite/rewriteManip.h"
#include "util/compat.h"
#include "utils/lsyscache.h"
#include "utils/typcache.h"

/* ---- conditions ---- */

static bool
preserves(StreamJoinType type, int side)
{
	return type == STREAM_JOIN_FULL || type == (side == 0 ? STREAM_JOIN_LEFT : STREAM_JOIN_RIGHT);
}

/* May a condition over this side alone, from above the join, be applied below it? */
static bool
filters_commute(StreamJoinType type, int side)
{
	if (type == STREAM_JOIN_SEMI)
		return side == 0;
	return type == STREAM_JOIN_INNER || (type != STREAM_JOIN_FULL && preserves(type, side));
}

/* Both arguments in one type whose equality can be hashed. */
static bool
key_operator(OpExpr *op, Node **left, Node **right, Oid *equality)
{
	Oid ltype = exprType(*left), rtype = exprType(*right);
	Node *coerced;

	if (!op_hashjoinable(op->opno, ltype))
		return false;
	if (ltype == rtype)
	{
		*equality = op->opno;
		return true;
	}
	if (can_coerce_type(1, &ltype, &rtype, COERCION_IMPLICIT) &&
		(coerced = coerce_to_target_type(NULL, *left, ltype, rtype, -1, COERCION_IMPLICIT, COERCE_IMPLICIT_CAST, -1)) != NULL)
		*left = coerced;
	else if (can_coerce_type(1, &rtype, &ltype, COERCION_IMPLICIT) &&
			 (coerced = coerce_to_target_type(NULL, *right, rtype, ltype, -1, COERCION_IMPLICIT, COERCE_IMPLICIT_CAST, -1)) != NULL)
		*right = coerced;
	else
		return false;
	*equality = lookup_type_cache(exprType(*left), TYPECACHE_EQ_OPR)->eq_opr;
	return OidIsValid(*equality) && op_hashjoinable(*equality, exprType(*left));
}

static bool
take_key(JoinCut *join, Node *condition)
{
	bool nulls_match = is_notclause(condition) && IsA(get_notclausearg(condition), DistinctExpr); /* IS NOT DISTINCT FROM */
	OpExpr *op = (OpExpr *) (nulls_match ? (Node *) get_notclausearg(condition) : condition);
	Node *left, *right;
	Oid equality;

	if ((!nulls_match && !IsA(condition, OpExpr)) || list_length(op->args) != 2)
		return false;
	left = copyObject(linitial(op->args));
	right = copyObject(lsecond(op->args));
	if (tree_is_over(left, join->sides[1].rtes) && tree_is_over(right, join->sides[0].rtes))
	{
		Node *swap = left;

		left = right;
		right = swap;
	}
	if (!tree_is_over(left, join->sides[0].rtes) || !tree_is_over(right, join->sides[1].rtes) || !key_operator(op, &left, &right, &equality))
		return false;
	join->sides[0].keys = lappend(join->sides[0].keys, left);
	join->sides[1].keys = lappend(join->sides[1].keys, right);
	join->equalities = lappend_oid(join->equalities, equality);
	join->collations = lappend_oid(join->collations, op->inputcollid);
	join->nulls_match = lappend_int(join->nulls_match, nulls_match);
	return true;
}

static void
take_condition_over_both(JoinCut *join, Node *condition)
{
	for (int i = 0; i < 2; i++)
	{
		TimeBound *bound = bound_from_condition(join->c, join->level, condition, join->sides[i].rtes, join->sides[1 - i].rtes);

		if (bound)
			join->sides[i].bounds = lappend(join->sides[i].bounds, bound);
	}
	if (take_key(join, condition))
		return;
	if (checkExprHasSubLink(condition))
		ereport(ERROR, (errcode(REFUSE), errmsg("a subquery in the condition of a join of two streams is not supported"),
						errhint("Move it to WHERE, or join with the table it reads."), check_position(join->c, exprLocation(condition))));
	join->residual = lappend(join->residual, condition);
}

/* ON: every condition belongs to the join. */
static void
take_on_conditions(JoinCut *join, Node *quals)
{
	Bitmapset *both = bms_union(join->sides[0].rtes, join->sides[1].rtes);
	ListCell *lc;

	foreach (lc, tree_conjuncts(quals))
	{
		Node *condition = lfirst(lc);
		Bitmapset *used = pull_varnos(NULL, condition);
		int side = bms_is_empty(used) ? -1 : bms_is_subset(used, join->sides[0].rtes) ? 0 : bms_is_subset(used, join->sides[1].rtes) ? 1 : -1;

		if (!bms_is_subset(used, both))
			ereport(ERROR, (errcode(REFUSE), errmsg("the condition of a join of two streams can only refer to the two"),
						errhint("Put conditions on other relations into WHERE, or join them around the join of the streams."),
							check_position(join->c, exprLocation(condition))));
		if (side >= 0 && preserves(join->spec->type, side))
			join->sides[side].own = lappend(join->sides[side].own, condition);
		else if (side >= 0)
			join->sides[side].filters = lappend(join->sides[side].filters, condition);
		else if (!(IsA(condition, Const) && !((Const *) condition)->constisnull && DatumGetBool(((Const *) condition)->constvalue)))
			take_condition_over_both(join, condition);
	}
}

/* WHERE: what may move below the join does; the rest stays where it is. */
static void
take_where_conditions(JoinCut *join)
{
	Query *query = join->level->query;
	Bitmapset *both = bms_union(join->sides[0].rtes, join->sides[1].rtes);
	List *kept = NIL;
	ListCell *lc;

	foreach (lc, tree_conjuncts(query->jointree->quals))
	{
		Node *condition = lfirst(lc);
		Bitmapset *used = pull_varnos(NULL, condition);
		bool movable = !bms_is_empty(used) && !contain_volatile_functions(condition);

		if (movable && bms_is_subset(used, join->sides[0].rtes) && filters_commute(join->spec->type, 0))
			join->sides[0].filters = lappend(join->sides[0].filters, condition);
		else if (movable && bms_is_subset(used, join->sides[1].rtes) && filters_commute(join->spec->type, 1))
			join->sides[1].filters = lappend(join->sides[1].filters, condition);
		else if (movable && join->spec->type == STREAM_JOIN_INNER && bms_is_subset(used, both) && !checkExprHasSubLink(condition) &&
				 bms_overlap(used, join->sides[0].rtes) && bms_overlap(used, join->sides[1].rtes))
			take_condition_over_both(join, condition);
		else
			kept = lappend(kept, condition);
	}
	query->jointree->quals = kept ? (Node *) make_ands_explicit(kept) : NULL;
}

void
join_take_conditions(JoinCut *join, Node *on, bool where_commutes)
{
	take_on_conditions(join, on);
	if (where_commutes)
		take_where_conditions(join);
}

/* ---- keys, in the order of their text ---- */

typedef struct KeyPair
{
	Node *keys[2];
	Oid equality, collation;
	bool nulls_match;
	char *text;
} KeyPair;

static int
compare_pairs(const ListCell *a, const ListCell *b)
{
	return strcmp(((KeyPair *) lfirst(a))->text, ((KeyPair *) lfirst(b))->text);
}

void
join_order_keys(JoinCut *join)
{
	List *pairs = NIL;
	ListCell *left, *right, *equality, *collation, *nulls_match, *lc;
	int n = list_length(join->equalities), i = 0;

	forfive(left, join->sides[0].keys, right, join->sides[1].keys, equality, join->equalities, collation, join->collations, nulls_match, join->nulls_match)
	{
		KeyPair *pair = palloc(sizeof(KeyPair));

		*pair = (KeyPair){{lfirst(left), lfirst(right)}, lfirst_oid(equality), lfirst_oid(collation), lfirst_int(nulls_match), NULL};
		pair->text = psprintf("%s %s", signature_expression(join->c, join->level, pair->keys[0]),
							  signature_expression(join->c, join->level, pair->keys[1]));
		pairs = lappend(pairs, pair);
	}
	list_sort(pairs, compare_pairs);
	join->sides[0].keys = join->sides[1].keys = NIL;
	join->spec->nkeys = n;
	join->spec->eq_operators = palloc(n * sizeof(Oid));
	join->spec->collations = palloc(n * sizeof(Oid));
	join->spec->nulls_match = palloc(n * sizeof(bool));
	foreach (lc, pairs)
	{
		KeyPair *pair = lfirst(lc);

		for (int side = 0; side < 2; side++)
		{
			TimeBound *bound = bound_from_key(join->c, join->level, pair->keys[side], pair->keys[1 - side]);

			join->sides[side].keys = lappend(join->sides[side].keys, pair->keys[side]);
			if (bound)
				join->sides[side].bounds = lcons(bound, join->sides[side].bounds);
		}
		join->spec->eq_operators[i] = pair->equality;
		join->spec->nulls_match[i] = pair->nulls_match;
		join->spec->collations[i++] = pair->collation;
	}
}

/* ---- event time ---- */

/* The one the bounds are counted from, else the only one there is. */
static void
consider_event_column(JoinCut *join, int i, Var *var)
{
	Side *side = &join->sides[i];
	Lineage lineage = lineage_of(join->c, join->level, (Node *) var);
	ListCell *lc;
	bool meant = false, other_meant = false;

	if (lineage.kind == LINEAGE_NONE || !lineage.has_watermark)
		return;
	foreach (lc, side->bounds)
	{
		TimeBound *bound = lfirst(lc);

		if (bound->own.kind != LINEAGE_NONE && bound->own.has_watermark)
		{
			meant |= lineage_same_columns(bound->own.columns, lineage.columns);
			other_meant = true;
		}
	}
	if (other_meant && !meant)
		return;
	if (side->event_column && !lineage_same_columns(side->event_time.columns, lineage.columns))
		ereport(ERROR, (errcode(REFUSE), errmsg("a join over two event-time columns of one side is not supported"),
						errdetail("It would not be clear which of them says when a row is late."),
						errhint("Use one of them in the join's condition, or select only one in a subquery.")));
	if (side->event_column)
		return;
	side->event_time = lineage;
	side->event_column = (Expr *) copyObject(var);
}

static void
find_event_column(JoinCut *join, int i)
{
	Query *query = join->level->query;
	ListCell *lc, *var;

	foreach (lc, tree_streams_in_from(query))
	{
		List *vars = NIL, *names = NIL;

		if (!bms_is_member(lfirst_int(lc), join->sides[i].rtes))
			continue;
		expandRTE(rt_fetch(lfirst_int(lc), query->rtable), lfirst_int(lc), 0, -1, false, &names, &vars);
		foreach (var, vars)
			if (IsA(lfirst(var), Var))
				consider_event_column(join, i, lfirst(var));
	}
}

void
join_find_event_columns(JoinCut *join)
{
	for (int i = 0; i < 2; i++)
		find_event_column(join, i);
}

/* ---- what cannot be ---- */

static const char *
type_name(StreamJoinType type)
{
	static const char *const names[] = {"INNER JOIN", "LEFT OUTER JOIN", "RIGHT OUTER JOIN", "FULL OUTER JOIN", "EXISTS or IN (semi-join)"};

	return names[type];
}

static void
check_outer(JoinCut *join)
{
	StreamJoinType type = join->spec->type;

	for (int i = 0; i < 2; i++)
	{
		Side *other = &join->sides[1 - i];

		if ((!preserves(type, i) && !(type == STREAM_JOIN_SEMI && i == 0)) || join->sides[i].bounds)
			continue;
		if (other->event_column == NULL)
			ereport(ERROR, (errcode(REFUSE), errmsg("%s of two streams needs a watermark on its %s side", type_name(type), i == 0 ? "right" : "left"),
							errdetail("Without one it is never known that a row has no match."),
							errhint("Give that source an event_time and a watermark_delay, and a time range in the join's condition.")));
		ereport(ERROR, (errcode(REFUSE), errmsg("%s of two streams needs a time range in its condition, or a window among its keys", type_name(type)),
						errdetail("Without a bound on event time, beside the watermark, it is never known that a row has no match."),
						errhint("Add a condition like a.ts BETWEEN b.ts - interval '1 hour' AND b.ts.")));
	}
}

/* Conditions inside a LATERAL subquery are none of the join: it would seem to have no equality. */
static void
check_lateral(JoinCut *join, Bitmapset *side)
{
	int rtindex = -1;

	while ((rtindex = bms_next_member(side, rtindex)) >= 0)
	{
		RangeTblEntry *rte = rt_fetch(rtindex, join->level->query->rtable);

		if (rte->rtekind == RTE_SUBQUERY && !bms_is_subset(pull_varnos_of_level(NULL, (Node *) rte->subquery, 1), side))
			ereport(ERROR, (errcode(REFUSE), errmsg("LATERAL from one stream to another is not supported"),
							errhint("Join the two with a condition that contains an equality."),
							check_position(join->c, locate_var_of_level((Node *) rte->subquery, 1))));
	}
}

void
join_check(JoinCut *join)
{
	StreamJoinType type = join->spec->type;

	if (join->c->mode == OUTPUT_UPDATE && type != STREAM_JOIN_INNER && type != STREAM_JOIN_SEMI)
		ereport(ERROR, (errcode(REFUSE), errmsg("%s of two streams is not supported in output mode update", type_name(type)), errhint("Use output mode append.")));
	for (int i = 0; i < 2; i++)
		check_lateral(join, join->sides[i].rtes);
	if (join->sides[0].keys == NIL)
		ereport(ERROR, (errcode(REFUSE), errmsg("a join of two streams needs at least one equality between them"),
						errdetail("Rows wait for their match under the values that must be equal."),
						errhint("Add a condition like a.id = b.id, or a time bucket of both sides.")));
	check_outer(join);
}
