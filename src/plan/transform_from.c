/*
 * transform_from.c: takes the FROM clause around transform_with_state apart: what stands before the call, and what comes after.
 */
#include "plan/transform.h"

#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "optimizer/prep.h"
#include "parser/parsetree.h"
#include "util/compat.h"

static bool
holds_call(TransformCut *t, Node *item)
{
	return bms_is_member(t->rtindex, get_relids_in_jointree(item, true));
}

static void
keep_below(TransformCut *t, Node *item)
{
	t->left = lappend(t->left, item);
	t->below = bms_union(t->below, get_relids_in_jointree(item, true));
}

static void
add_quals(TransformCut *t, Node *quals)
{
	t->quals = list_concat(t->quals, make_ands_implicit((Expr *) quals));
}

/* What is left of an item that holds the call. */
static Node *
split_item(TransformCut *t, Node *item)
{
	JoinExpr *join;
	bool in_left;

	if (!IsA(item, JoinExpr))
		return item;
	join = (JoinExpr *) item;
	in_left = holds_call(t, join->larg);
	if (join->jointype != JOIN_INNER && (join->jointype != JOIN_LEFT || !in_left))
		ereport(ERROR,
				(errcode(REFUSE), errmsg("transform_with_state cannot stand on the nullable side of an outer join"),
				 errdetail("Which rows its handlers do not return is never known."),
				 errhint("Use CROSS JOIN LATERAL, or a comma and LATERAL."), check_position(t->c, t->call->location)));
	if (in_left)
	{
		join->larg = split_item(t, join->larg);
		return item;
	}
	keep_below(t, join->larg);
	add_quals(t, join->quals);
	t->below = bms_add_member(t->below, join->rtindex); /* gone: its columns have been followed to their origins */
	return split_item(t, join->rarg);
}

List *
transform_split_from(TransformCut *t)
{
	List *above = NIL;
	bool found = false;
	ListCell *lc;

	foreach (lc, t->query->jointree->fromlist)
	{
		if (found)
			above = lappend(above, lfirst(lc));
		else if (holds_call(t, lfirst(lc)))
		{
			above = lappend(above, split_item(t, lfirst(lc)));
			found = true;
		}
		else
			keep_below(t, lfirst(lc));
	}
	add_quals(t, t->query->jointree->quals);
	return above;
}

void
transform_drop_entries(Query *query, Relids entries, bool others)
{
	ListCell *lc;

	foreach (lc, query->rtable)
	{
		RangeTblEntry *rte = lfirst(lc);

		if (bms_is_member(foreach_current_index(lc) + 1, entries) == others)
			continue;
		memset(rte, 0, sizeof(RangeTblEntry));
		NodeSetTag(rte, T_RangeTblEntry);
		rte->rtekind = RTE_RESULT;
		rte->eref = makeAlias("*RESULT*", NIL);
	}
}
