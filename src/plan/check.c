/*
 * check.c: what cannot stream, and why: every refusal names the construct, its place in the query, and the way out.
 * Most is known before the tree is cut (check_query); what depends on the operators found is checked after (check_output) or by them.
 */
#include "plan/internal.h"

#include "access/htup_details.h"
#include "access/transam.h"
#include "catalog/pg_proc.h"
#include "mb/pg_wchar.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "optimizer/tlist.h"
#include "util/window_range.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

/* Where in the query's text; stored trees have no locations. */
int
check_position(Compile *c, int location)
{
	if (location < 0 || location > (int) strlen(c->source_text))
		return 0;
	internalerrquery(c->source_text);
	return internalerrposition(pg_mbstrlen_with_len(c->source_text, location) + 1);
}

/* ---- finding a node to point at ---- */

typedef struct FindContext
{
	NodeTag tag;
	Node *found;
} FindContext;

static bool
find_node_walker(Node *node, FindContext *context)
{
	if (node == NULL || IsA(node, Query))
		return false;
	if (nodeTag(node) == context->tag)
	{
		context->found = node;
		return true;
	}
	return expression_tree_walker(node, find_node_walker, context);
}

static Node *
find_node(List *tlist, NodeTag tag)
{
	FindContext context = {tag, NULL};

	find_node_walker((Node *) tlist, &context);
	return context.found;
}

static int
sort_location(List *clauses, List *tlist)
{
	return clauses ? exprLocation((Node *) get_sortgroupclause_tle(linitial(clauses), tlist)->expr) : -1;
}

/* ---- clauses ---- */

static void
check_clauses(Compile *c, Query *query)
{
	if (query->groupingSets)
		ereport(ERROR, (errcode(REFUSE), errmsg("grouping sets (GROUPING SETS, ROLLUP, CUBE) over a stream are not supported"),
						errhint("Write one query per grouping."), check_position(c, exprLocation(linitial(query->groupingSets)))));
	if (query->hasWindowFuncs && !(c->mode == OUTPUT_UPDATE && query_ranks(query)))
		ereport(ERROR, (errcode(REFUSE), errmsg("window functions (OVER) over a stream are not supported"),
						errdetail("The rows of a window frame may still have to arrive."),
						errhint("Group by stream.tumble or stream.hop, or apply the window function to the target table. "
								"The top n rows of each key, row_number() … <= n, are kept in output mode update."),
						check_position(c, exprLocation(find_node(query->targetList, T_WindowFunc)))));
	if (query->limitOffset)
		ereport(ERROR, (errcode(REFUSE), errmsg("OFFSET over a stream is not supported"), errhint("Filter with WHERE."),
						check_position(c, exprLocation(query->limitOffset))));
	if (query->rowMarks)
		ereport(ERROR, (errcode(REFUSE), errmsg("FOR UPDATE and FOR SHARE are not supported in a streaming query"),
						errhint("Take the clause out: a batch reads tables in a snapshot of its own.")));
	if (query->hasModifyingCTE)
		ereport(ERROR, (errcode(REFUSE), errmsg("data-modifying statement in WITH is not supported in a streaming query"),
						errhint("Write to tables with a sink, or with stream.to_function.")));
}

static void
check_limit(Compile *c, Query *query, bool below_aggregate)
{
	if (c->mode == OUTPUT_APPEND || (c->mode == OUTPUT_COMPLETE && (query_is_aggregated(query) || below_aggregate)))
		return;
	ereport(ERROR, (errcode(REFUSE), errmsg("LIMIT over a stream is not supported in output mode %s", output_mode_name(c->mode)),
					errhint("Use output mode append, or output mode complete beside an aggregate."),
					check_position(c, exprLocation(query->limitCount))));
}

static void
check_order(Compile *c, Query *query)
{
	if (c->mode == OUTPUT_COMPLETE && query_is_aggregated(query))
		return;
	if (query->hasDistinctOn)
	{
		if (c->mode == OUTPUT_UPDATE)
			return;
		ereport(ERROR, (errcode(REFUSE), errmsg("DISTINCT ON with ORDER BY over a stream is not supported in output mode %s", output_mode_name(c->mode)),
						errdetail("The best row of a key changes when a better one arrives."),
						errhint("Use output mode update and a table sink; without ORDER BY the first row of a key is kept, in append mode too."),
						check_position(c, sort_location(query->sortClause, query->targetList))));
	}
	ereport(ERROR, (errcode(REFUSE), errmsg("ORDER BY over a stream is supported only in output mode complete, after an aggregate"),
					errdetail("A stream has no last row to sort up to."), errhint("Sort when you read the target."),
					check_position(c, sort_location(query->sortClause, query->targetList))));
}

static void
check_distinct(Compile *c, Query *query, bool below_aggregate)
{
	if (c->mode == OUTPUT_COMPLETE && !below_aggregate)
		ereport(ERROR, (errcode(REFUSE), errmsg("DISTINCT is not supported in output mode complete"),
						errdetail("DISTINCT over a stream drops duplicates as rows arrive: each row comes out once."),
						errhint("Use output mode append or update, or GROUP BY."),
						check_position(c, sort_location(query->distinctClause, query->targetList))));
}

/* ---- functions that are operators ---- */

typedef struct OperatorFunctionContext
{
	const char *name;
	int location;
} OperatorFunctionContext;

static bool
operator_function_walker(Node *node, OperatorFunctionContext *context)
{
	if (node == NULL || IsA(node, Query))
		return false;
	if (IsA(node, FuncExpr) && is_stream_function(((FuncExpr *) node)->funcid, context->name))
	{
		context->location = ((FuncExpr *) node)->location;
		return true;
	}
	return expression_tree_walker(node, operator_function_walker, context);
}

static void
check_operator_functions(Compile *c, Query *query)
{
	OperatorFunctionContext transform = {"transform_with_state", -1};

	check_session(c, query);
	if (query_tree_walker(query, operator_function_walker, &transform, QTW_IGNORE_RANGE_TABLE))
		ereport(ERROR, (errcode(REFUSE), errmsg("transform_with_state is supported only in FROM"),
						errhint("Write FROM source i, LATERAL stream.transform_with_state(processor, i.key, i) AS t(col type, …)."),
						check_position(c, transform.location)));
}

/* ---- sizes of windows: what can be known is checked before the first row comes ---- */

static Node *
function_argument(FuncExpr *f, int n)
{
	ListCell *lc;

	foreach (lc, f->args)
	{
		NamedArgExpr *named = IsA(lfirst(lc), NamedArgExpr) ? lfirst(lc) : NULL;

		if ((named ? named->argnumber : foreach_current_index(lc)) == n)
			return named ? (Node *) named->arg : lfirst(lc);
	}
	return NULL;
}

/* Microseconds; 0: rows will tell. */
static int64
constant_length(FuncExpr *f, int n, const char *what)
{
	Const *folded = (Const *) eval_const_expressions(NULL, copyObject(function_argument(f, n)));

	if (folded == NULL || !IsA(folded, Const))
		return 0;
	if (folded->constisnull)
		ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("%s must not be null", what)));
	return window_fixed_length(DatumGetIntervalP(folded->constvalue), what);
}

static bool
window_size_walker(Node *node, void *context)
{
	if (node == NULL || IsA(node, Query))
		return false;
	if (IsA(node, FuncExpr) && is_stream_function(((FuncExpr *) node)->funcid, "tumble"))
		(void) constant_length((FuncExpr *) node, 1, "window size");
	if (IsA(node, FuncExpr) && is_stream_function(((FuncExpr *) node)->funcid, "hop"))
	{
		int64 size = constant_length((FuncExpr *) node, 1, "window size"), slide = constant_length((FuncExpr *) node, 2, "window slide");

		if (size > 0)
			window_check_slide(size, slide);
	}
	return expression_tree_walker(node, window_size_walker, context);
}

/* ---- one level, and those below ---- */

static void
check_level(Compile *c, Query *query, bool below_aggregate)
{
	check_sublinks(c, query);
	if (query_transforms(query) && !query_streams(query))
		ereport(ERROR, (errcode(REFUSE), errmsg("transform_with_state needs a stream before it in FROM"),
						errhint("Write FROM source i, LATERAL stream.transform_with_state(processor, i.key, i) AS t(col type, …).")));
	if (!query_streams(query))
		return;
	check_clauses(c, query);
	check_operator_functions(c, query);
	(void) query_tree_walker(query, window_size_walker, NULL, QTW_IGNORE_RT_SUBQUERIES | QTW_IGNORE_CTE_SUBQUERIES);
	if (query->setOperations)
		check_set_operations(c, query);
	else
		check_from(c, query);
	if (query->distinctClause)
		check_distinct(c, query, below_aggregate);
	if (query->limitCount)
		check_limit(c, query, below_aggregate);
	if (query->sortClause)
		check_order(c, query);
}

typedef struct LevelContext
{
	Compile *c;
	bool below_aggregate;
} LevelContext;

static bool
check_walker(Node *node, LevelContext *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, Query))
	{
		LevelContext below = {context->c, context->below_aggregate || query_aggregates((Query *) node)};

		check_level(context->c, (Query *) node, context->below_aggregate);
		return query_tree_walker((Query *) node, check_walker, &below, 0);
	}
	return expression_tree_walker(node, check_walker, context);
}

void
check_query(Compile *c, Query *query)
{
	LevelContext context = {c, false};

	check_walker((Node *) query, &context);
}

/* ---- volatile functions below state ---- */

typedef struct VolatileContext
{
	Oid function;
	int location;
} VolatileContext;

/* Postgres's own volatile functions do differ from call to call (random, clock_timestamp, nextval …). Users' functions are volatile for want of a label. */
static bool
is_volatile(Oid function, void *context)
{
	if (func_volatile(function) != PROVOLATILE_VOLATILE || function >= FirstNormalObjectId)
		return false;
	((VolatileContext *) context)->function = function;
	return true;
}

static bool
volatile_walker(Node *node, VolatileContext *context)
{
	if (node == NULL)
		return false;
	if (check_functions_in_node(node, is_volatile, context))
	{
		context->location = exprLocation(node);
		return true;
	}
	if (IsA(node, Query))
		return query_tree_walker((Query *) node, volatile_walker, context, 0);
	return expression_tree_walker(node, volatile_walker, context);
}

void
check_not_volatile(Compile *c, Query *stage, const char *operator_name)
{
	VolatileContext context = {InvalidOid, -1};

	if (!volatile_walker((Node *) stage, &context))
		return;
	ereport(ERROR, (errcode(REFUSE), errmsg("volatile function %s cannot be used below %s of a stream", get_func_name(context.function), operator_name),
					errdetail("State is built from its results; a batch that is repeated after a failure would build another one."),
					errhint("Use a function of the row, or stream.batch_time() and stream.batch_id(); above the aggregate it is fine."),
					check_position(c, context.location)));
}

/* ---- what is left for the sink ---- */

static bool
reads_source_walker(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, RangeTblEntry))
		return rte_is_source((RangeTblEntry *) node);
	if (IsA(node, Query))
		return query_tree_walker((Query *) node, reads_source_walker, context, QTW_EXAMINE_RTES_BEFORE);
	return expression_tree_walker(node, reads_source_walker, context);
}

/* Some leg of a UNION ALL may bypass the aggregate. */
void
check_output(Compile *c, Query *final)
{
	if (c->mode == OUTPUT_COMPLETE && reads_source_walker((Node *) final, NULL))
		ereport(ERROR, (errcode(REFUSE), errmsg("output mode complete needs an aggregate over the stream"),
						errdetail("The whole result is written with every batch; without an aggregate that would be the whole stream."),
						errhint("Use output mode append.")));
}
