/*
 * session.c: stream.session(ts, gap) as a GROUP BY key. Which session a row belongs to is known to the operator only, so the input stage hands over
 * the row's time and gap, and the function itself never runs. It must not be left anywhere else in the query.
 */
#include "plan/internal.h"

#include "catalog/pg_type.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "optimizer/tlist.h"
#include "util/window_range.h"
#include "utils/timestamp.h"

static bool
is_session(Node *node)
{
	return IsA(node, FuncExpr) && is_stream_function(((FuncExpr *) node)->funcid, "session");
}

/* ---- what is refused ---- */

typedef struct SessionUse
{
	Node *key;		 /* may be used; NULL: nowhere */
	FuncExpr *other; /* found, and not that */
} SessionUse;

static bool
find_use_walker(Node *node, SessionUse *use)
{
	if (node == NULL || IsA(node, Query))
		return false;
	if (is_session(node) && !(use->key && equal(node, use->key)))
	{
		use->other = (FuncExpr *) node;
		return true;
	}
	if (IsA(node, Aggref) && use->key)
	{
		SessionUse inside = {NULL, NULL};

		(void) expression_tree_walker(node, find_use_walker, &inside);
		use->other = inside.other;
		return inside.other != NULL;
	}
	return expression_tree_walker(node, find_use_walker, use);
}

static FuncExpr *
find_use(Query *query, Node *key)
{
	SessionUse use = {NULL, NULL};

	if (!query_tree_walker(query, find_use_walker, &use, QTW_IGNORE_RT_SUBQUERIES))
		return NULL;
	if (key == NULL)
		return use.other;
	/* in the SELECT list and HAVING it stands for the key's column */
	use.key = key;
	use.other = NULL;
	(void) find_use_walker((Node *) query->targetList, &use);
	if (use.other == NULL)
		(void) find_use_walker(query->havingQual, &use);
	use.key = NULL;
	if (use.other == NULL)
		(void) find_use_walker((Node *) query->jointree, &use);
	return use.other;
}

static Node *
session_key(Query *query)
{
	ListCell *lc;

	foreach (lc, query->groupClause)
	{
		Node *key = (Node *) get_sortgroupclause_tle(lfirst(lc), query->targetList)->expr;

		if (is_session(key))
			return key;
	}
	return NULL;
}

/* A gap that can be known is checked before the first row comes. */
static void
check_gap(Node *gap)
{
	Node *folded = eval_const_expressions(NULL, copyObject(gap));

	if (IsA(folded, Const) && !((Const *) folded)->constisnull)
		(void) window_fixed_length(DatumGetIntervalP(((Const *) folded)->constvalue), "the gap of a session");
}

void
check_session(Compile *c, Query *query)
{
	Node *key = session_key(query);
	FuncExpr *other = find_use(query, key);

	if (other && key == NULL)
		ereport(ERROR, (errcode(REFUSE), errmsg("stream.session() works only as a GROUP BY key"),
						errdetail("Which session a row belongs to depends on other rows."),
						errhint("Write GROUP BY k, stream.session(ts, gap) in this SELECT; the SELECT list and HAVING may use the same expression."),
						check_position(c, other->location)));
	if (other)
		ereport(ERROR, (errcode(REFUSE), errmsg("stream.session() can be used only once in GROUP BY, and not in WHERE or inside an aggregate"),
						errhint("Take a second session window in a query around this one."), check_position(c, other->location)));
	if (key == NULL)
		return;
	if (list_length(query->groupClause) == 1)
		ereport(ERROR, (errcode(REFUSE), errmsg("a session window needs another GROUP BY key beside it"),
						errdetail("Sessions are those of somebody or something: a user, a device."),
						errhint("Write GROUP BY user_id, stream.session(ts, gap)."), check_position(c, exprLocation(key))));
	check_gap(lsecond(((FuncExpr *) key)->args));
}

/* ---- the cut ---- */

/* Takes the session to the end of the keys, where the operator expects it; NULL when there is none. */
FuncExpr *
session_move_last(List **ordered)
{
	ListCell *lc;

	foreach (lc, *ordered)
	{
		OrderedKey *key = lfirst(lc);

		if (!is_session(key->expr))
			continue;
		*ordered = lappend(list_delete_ptr(*ordered, key), key);
		return (FuncExpr *) key->expr;
	}
	return NULL;
}

Node *
session_placeholder(FuncExpr *session)
{
	return (Node *) makeNullConst(session->funcresulttype, -1, InvalidOid);
}

void
session_add_columns(SessionSpec *spec, List **columns, FuncExpr *session)
{
	spec->start = cut_share_column(columns, linitial(session->args), "start");
	spec->gap = cut_share_column(columns, lsecond(session->args), "gap");
}
