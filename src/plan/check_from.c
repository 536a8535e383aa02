/*
 * check_from.c: what rows may come from: joins, subqueries, set operations of streams and tables. Refusals as in check.c, before the tree is cut.
 */
#include "plan/internal.h"

#include "nodes/nodeFuncs.h"

/* ---- joins ---- */

static const char *
join_name(JoinType type)
{
	return type == JOIN_LEFT ? "LEFT" : type == JOIN_RIGHT ? "RIGHT" : type == JOIN_FULL ? "FULL" : "INNER";
}

/* Which rows of the table never match is known only when the stream has ended. */
static void
check_join(Compile *c, Query *query, JoinExpr *join)
{
	bool left = tree_streams_below(query, join->larg), right = tree_streams_below(query, join->rarg);

	if (left == right)
		return;
	if ((join->jointype == JOIN_LEFT && right) || (join->jointype == JOIN_RIGHT && left) || join->jointype == JOIN_FULL)
		ereport(ERROR, (errcode(REFUSE), errmsg("%s outer join between a stream and a static table must preserve only the stream's side", join_name(join->jointype)),
						errdetail("Which rows of the table have no match is known only when the stream has ended."),
						errhint("Put the stream on the preserved side (%s JOIN), or use an inner join.",
								join->jointype == JOIN_LEFT ? "RIGHT" : join->jointype == JOIN_RIGHT ? "LEFT" : left ? "LEFT" : "RIGHT")));
}

static void
check_joins(Compile *c, Query *query, Node *node)
{
	ListCell *lc;

	if (IsA(node, JoinExpr))
	{
		check_joins(c, query, ((JoinExpr *) node)->larg);
		check_joins(c, query, ((JoinExpr *) node)->rarg);
		check_join(c, query, (JoinExpr *) node);
	}
	else if (IsA(node, FromExpr))
		foreach (lc, ((FromExpr *) node)->fromlist)
			check_joins(c, query, lfirst(lc));
}

void
check_from(Compile *c, Query *query)
{
	check_joins(c, query, (Node *) query->jointree);
	if (list_length(tree_streams_in_from(query)) > 1 && c->mode == OUTPUT_COMPLETE)
		ereport(ERROR, (errcode(REFUSE), errmsg("a join of two streams is not supported in output mode complete"),
						errhint("Use output mode append or update.")));
}

/* ---- subqueries in expressions ---- */

typedef struct SublinkContext
{
	Compile *c;
	bool beside_stream; /* the level's own FROM has one */
	bool negated;
} SublinkContext;

static void
refuse_sublink(SublinkContext *context, SubLink *sublink)
{
	int location = sublink->location;

	if (context->negated || sublink->subLinkType == ALL_SUBLINK)
		ereport(ERROR, (errcode(REFUSE), errmsg("NOT EXISTS and NOT IN between streams are not supported"),
						errdetail("That a row has no match is known only when the stream has ended."),
						errhint("Use a LEFT JOIN with a time range and keep the rows without a match."), check_position(context->c, location)));
	if ((sublink->subLinkType == EXISTS_SUBLINK || sublink->subLinkType == ANY_SUBLINK) && !context->beside_stream)
		ereport(ERROR, (errcode(REFUSE), errmsg("EXISTS and IN over a stream need a stream in the FROM clause beside them"),
						errdetail("A table is read again with every batch: its rows would come out again with every match."),
						errhint("Join the stream with the table, and keep the first match of each row with SELECT DISTINCT."),
						check_position(context->c, location)));
	if (sublink->subLinkType == EXISTS_SUBLINK || sublink->subLinkType == ANY_SUBLINK)
		ereport(ERROR, (errcode(REFUSE), errmsg("EXISTS and IN over a stream are supported only as conditions of their own in WHERE, and with a plain subquery"),
						errhint("Join them with AND, not OR; take GROUP BY, UNION and WITH out of the subquery."), check_position(context->c, location)));
	ereport(ERROR, (errcode(REFUSE), errmsg("a subquery over a stream in an expression is not supported"),
					errdetail("It would have to be computed anew over all rows of the stream for every row."),
					errhint("Join with the subquery in FROM."), check_position(context->c, location)));
}

static bool
sublink_walker(Node *node, SublinkContext *context)
{
	if (node == NULL || IsA(node, Query))
		return false;
	if (IsA(node, BoolExpr) && ((BoolExpr *) node)->boolop == NOT_EXPR)
	{
		bool result;

		context->negated = !context->negated;
		result = expression_tree_walker(node, sublink_walker, context);
		context->negated = !context->negated;
		return result;
	}
	if (IsA(node, SubLink) && query_has_source((Query *) ((SubLink *) node)->subselect))
		refuse_sublink(context, (SubLink *) node);
	return expression_tree_walker(node, sublink_walker, context);
}

/* Expressions of this level only; subqueries in FROM are levels of their own. */
void
check_sublinks(Compile *c, Query *query)
{
	SublinkContext context = {.c = c, .beside_stream = query_streams(query)};

	(void) query_tree_walker(query, sublink_walker, &context, QTW_IGNORE_RT_SUBQUERIES | QTW_IGNORE_CTE_SUBQUERIES);
}

/* ---- set operations ---- */

static const char *
set_operation_name(SetOperationStmt *op)
{
	switch (op->op)
	{
		case SETOP_INTERSECT:
			return "INTERSECT";
		case SETOP_EXCEPT:
			return "EXCEPT";
		default:
			return "UNION";
	}
}

static void
check_set_operation(Compile *c, Query *query, Node *node)
{
	SetOperationStmt *op;

	if (!IsA(node, SetOperationStmt))
		return;
	op = (SetOperationStmt *) node;
	if (op->op != SETOP_UNION)
		ereport(ERROR, (errcode(REFUSE), errmsg("%s over a stream is not supported", set_operation_name(op)),
						errdetail("Whether a row belongs to the result may change with every row that arrives."),
						errhint("Compare with a table in a WHERE clause, or compare the targets of two queries.")));
	if (!op->all)
		ereport(ERROR, (errcode(REFUSE), errmsg("UNION without ALL over a stream is not supported"),
						errhint("Use UNION ALL, and drop duplicates with DISTINCT around it.")));
	check_set_operation(c, query, op->larg);
	check_set_operation(c, query, op->rarg);
}

static void
check_legs(Compile *c, Query *query)
{
	ListCell *lc;

	foreach (lc, query->rtable)
	{
		RangeTblEntry *rte = lfirst(lc);

		if (rte->rtekind == RTE_SUBQUERY && !query_streams(rte->subquery))
			ereport(ERROR, (errcode(REFUSE), errmsg("UNION ALL of a stream and a static table is not supported"),
							errdetail("The table's rows would come again with every batch."),
							errhint("Make the table a source with stream.create_source, or join with it.")));
	}
}

void
check_set_operations(Compile *c, Query *query)
{
	check_set_operation(c, query, query->setOperations);
	check_legs(c, query);
}
