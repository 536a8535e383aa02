/*
 * prepare.c: from the user's SELECT to a tree that can be cut: rewritten by Postgres, sources marked, times bound to the batch.
 * After it no streaming CTE is left: each reference has become a subquery, so every level can be taken out on its own.
 */
#include "plan/internal.h"

#include "access/htup_details.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "rewrite/rewriteHandler.h"
#include "rewrite/rewriteManip.h"
#include "util/options.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

bool
is_stream_function(Oid funcid, const char *name)
{
	HeapTuple tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(funcid));
	Form_pg_proc form;
	bool result;

	if (!HeapTupleIsValid(tuple))
		return false;
	form = (Form_pg_proc) GETSTRUCT(tuple);
	result = strcmp(NameStr(form->proname), name) == 0 && form->pronamespace == get_namespace_oid("stream", true);
	ReleaseSysCache(tuple);
	return result;
}

/* ---- sources ---- */

/* Option watermarks overrides a source's delay; it is written as in the query or qualified. */
static char *
watermark_override(Compile *c, SourceDef *def)
{
	char *text;

	if (c->options->watermarks == NULL)
		return NULL;
	text = jsonb_get_text(c->options->watermarks, def->name);
	return text ? text : jsonb_get_text(c->options->watermarks, get_rel_name(def->relid));
}

SourceDef *
prepare_find_source(Compile *c, Oid relid)
{
	ListCell *lc;

	foreach (lc, c->plan->sources)
	{
		SourceDef *def = lfirst(lc);

		if (def->relid == relid)
			return def;
	}
	return NULL;
}

static void
add_source(Compile *c, Oid relid)
{
	SourceDef *def;
	char *delay;

	if (prepare_find_source(c, relid))
		return;
	def = source_load(relid);
	delay = watermark_override(c, def);
	if (delay && def->event_time == 0)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("source %s has no event time to set a watermark on", def->name),
						errhint("Declare its event_time, or take it out of option watermarks.")));
	if (delay)
		def->watermark_delay = options_interval_us(delay, psprintf("watermark of source %s", def->name));
	if (delay && def->watermark_delay < 0)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("watermark of source %s must not be negative", def->name),
						errdetail("Option watermarks says \"%s\".", delay)));
	c->plan->sources = lappend(c->plan->sources, def);
}

/* Every name in option watermarks must be a source of the query: a misspelt one would be another watermark than was meant. */
static void
check_watermark_names(Compile *c)
{
	JsonbIterator *it;
	JsonbIteratorToken token;
	JsonbValue name;

	if (c->options->watermarks == NULL)
		return;
	if (!JB_ROOT_IS_OBJECT(c->options->watermarks))
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("option watermarks must be a JSON object"),
						errhint("Name the source and its delay: {\"watermarks\": {\"%s\": \"10 minutes\"}}.", get_rel_name(((SourceDef *) linitial(c->plan->sources))->relid))));
	it = JsonbIteratorInit(&c->options->watermarks->root);
	while ((token = JsonbIteratorNext(&it, &name, true)) != WJB_DONE)
	{
		char *text;
		ListCell *lc;

		if (token != WJB_KEY)
			continue;
		text = pnstrdup(name.val.string.val, name.val.string.len);
		foreach (lc, c->plan->sources)
		{
			SourceDef *def = lfirst(lc);

			if (strcmp(text, def->name) == 0 || strcmp(text, get_rel_name(def->relid)) == 0)
				break;
		}
		if (lc == NULL)
			ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("option watermarks names \"%s\", which is no source of the query", text)));
	}
}

/* A partition or inheritance child would be read without the batch's marker, as an ordinary table. */
static void
check_no_source_below(Compile *c, RangeTblEntry *rte)
{
	ListCell *lc;

	if (!rte->inh || !has_subclass(rte->relid))
		return;
	foreach (lc, find_all_inheritors(rte->relid, AccessShareLock, NULL))
		if (lfirst_oid(lc) != rte->relid && source_is_stream(lfirst_oid(lc)))
			ereport(ERROR, (errcode(REFUSE), errmsg("source %s cannot be read through its parent %s", get_rel_name(lfirst_oid(lc)),
													get_rel_name(rte->relid)),
							errhint("Name the source itself in the query.")));
}

static bool
mark_sources_walker(Node *node, Compile *c)
{
	if (node == NULL)
		return false;
	if (IsA(node, RangeTblEntry))
	{
		RangeTblEntry *rte = (RangeTblEntry *) node;

		if (rte->rtekind == RTE_RELATION && rte->relkind == RELKIND_FOREIGN_TABLE && source_is_stream(rte->relid))
		{
			rte->enrname = pstrdup(STREAM_SCAN_MARK);
			add_source(c, rte->relid);
			rte->inh = false;
		}
		else if (rte->rtekind == RTE_RELATION)
			check_no_source_below(c, rte);
		return false; /* range_table_walker goes on into subqueries */
	}
	if (IsA(node, Query))
		return query_tree_walker((Query *) node, mark_sources_walker, c, QTW_EXAMINE_RTES_BEFORE);
	return expression_tree_walker(node, mark_sources_walker, c);
}

/* ---- times ---- */

static Expr *
batch_param(int id, Oid type)
{
	Param *param = makeNode(Param);

	param->paramkind = PARAM_EXTERN;
	param->paramid = id;
	param->paramtype = type;
	param->paramtypmod = -1;
	param->location = -1;
	return (Expr *) param;
}

static Expr *
call(Oid function, Oid result, List *args)
{
	return (Expr *) makeFuncExpr(function, result, args, InvalidOid, InvalidOid, COERCE_EXPLICIT_CALL);
}

static Expr *
call_with_precision(Oid function, Oid result, Expr *arg, int32 typmod)
{
	Const *precision = makeConst(INT4OID, -1, InvalidOid, sizeof(int32), Int32GetDatum(typmod), false, true);

	return typmod < 0 ? arg : call(function, result, list_make2(arg, precision));
}

/* CURRENT_TIMESTAMP and its relatives, as Postgres computes them, from the batch's time. NULL for CURRENT_USER and its own. */
static Expr *
replace_value_function(SQLValueFunction *f)
{
	Expr *now = batch_param(STREAM_PARAM_BATCH_TIME, TIMESTAMPTZOID);

	switch (f->op)
	{
		case SVFOP_CURRENT_DATE:
			return call(F_DATE_TIMESTAMPTZ, DATEOID, list_make1(now));
		case SVFOP_CURRENT_TIME:
		case SVFOP_CURRENT_TIME_N:
			return call_with_precision(F_TIMETZ_TIMETZ_INT4, TIMETZOID, call(F_TIMETZ_TIMESTAMPTZ, TIMETZOID, list_make1(now)),
									   f->typmod);
		case SVFOP_CURRENT_TIMESTAMP:
		case SVFOP_CURRENT_TIMESTAMP_N:
			return call_with_precision(F_TIMESTAMPTZ_TIMESTAMPTZ_INT4, TIMESTAMPTZOID, now, f->typmod);
		case SVFOP_LOCALTIME:
		case SVFOP_LOCALTIME_N:
			return call_with_precision(F_TIME_TIME_INT4, TIMEOID, call(F_TIME_TIMESTAMPTZ, TIMEOID, list_make1(now)), f->typmod);
		case SVFOP_LOCALTIMESTAMP:
		case SVFOP_LOCALTIMESTAMP_N:
			return call_with_precision(F_TIMESTAMP_TIMESTAMP_INT4, TIMESTAMPOID,
									   call(F_TIMESTAMP_TIMESTAMPTZ, TIMESTAMPOID, list_make1(now)), f->typmod);
		default:
			return NULL;
	}
}

/* age(x) is an SQL function over CURRENT_DATE. */
static Expr *
replace_age(FuncExpr *f)
{
	Expr *today = call(F_DATE_TIMESTAMPTZ, DATEOID, list_make1(batch_param(STREAM_PARAM_BATCH_TIME, TIMESTAMPTZOID)));

	if (f->funcid == F_AGE_TIMESTAMPTZ)
		return call(F_AGE_TIMESTAMPTZ_TIMESTAMPTZ, INTERVALOID,
					list_make2(call(F_TIMESTAMPTZ_DATE, TIMESTAMPTZOID, list_make1(today)), linitial(f->args)));
	return call(F_AGE_TIMESTAMP_TIMESTAMP, INTERVALOID,
				list_make2(call(F_TIMESTAMP_DATE, TIMESTAMPOID, list_make1(today)), linitial(f->args)));
}

static Expr *
replace_function(Compile *c, FuncExpr *f)
{
	switch (f->funcid)
	{
		case F_NOW:
		case F_TRANSACTION_TIMESTAMP:
		case F_STATEMENT_TIMESTAMP:
			return batch_param(STREAM_PARAM_BATCH_TIME, TIMESTAMPTZOID);
		case F_AGE_TIMESTAMPTZ:
		case F_AGE_TIMESTAMP:
			return replace_age(f);
	}
	if (f->args != NIL)
		return NULL;
	if (is_stream_function(f->funcid, "batch_time"))
		return batch_param(STREAM_PARAM_BATCH_TIME, TIMESTAMPTZOID);
	if (is_stream_function(f->funcid, "batch_id"))
		return batch_param(STREAM_PARAM_BATCH_ID, INT8OID);
	if (is_stream_function(f->funcid, "current_watermark"))
	{
		c->plan->uses_watermark = true;
		return batch_param(STREAM_PARAM_WATERMARK, TIMESTAMPTZOID);
	}
	return NULL;
}

static Node *
replace_times_mutator(Node *node, Compile *c)
{
	Node *copy;
	Expr *replacement = NULL;

	if (node == NULL)
		return NULL;
	if (IsA(node, Query))
		return (Node *) query_tree_mutator((Query *) node, replace_times_mutator, c, 0);
	copy = expression_tree_mutator(node, replace_times_mutator, c);
	if (IsA(copy, FuncExpr))
		replacement = replace_function(c, (FuncExpr *) copy);
	else if (IsA(copy, SQLValueFunction))
		replacement = replace_value_function((SQLValueFunction *) copy);
	return replacement ? (Node *) replacement : copy;
}

/* ---- streaming CTEs ---- */

typedef struct InlineContext
{
	CommonTableExpr *cte;
	int depth; /* levels below the WITH */
} InlineContext;

static bool
inline_cte_walker(Node *node, InlineContext *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, Query))
	{
		bool result;

		context->depth++;
		result = query_tree_walker((Query *) node, inline_cte_walker, context, QTW_EXAMINE_RTES_AFTER);
		context->depth--;
		return result;
	}
	if (IsA(node, RangeTblEntry))
	{
		RangeTblEntry *rte = (RangeTblEntry *) node;

		if (rte->rtekind == RTE_CTE && rte->ctelevelsup == context->depth && strcmp(rte->ctename, context->cte->ctename) == 0)
		{
			Query *copy = copyObject(castNode(Query, context->cte->ctequery));

			if (context->depth > 0)
				IncrementVarSublevelsUp((Node *) copy, context->depth, 1);
			rte->rtekind = RTE_SUBQUERY;
			rte->subquery = copy;
			rte->ctename = NULL;
			rte->ctelevelsup = 0;
			rte->coltypes = rte->coltypmods = rte->colcollations = NIL;
		}
		return false;
	}
	return expression_tree_walker(node, inline_cte_walker, context);
}

static void
inline_one_cte(Compile *c, Query *query, CommonTableExpr *cte)
{
	InlineContext context = {cte, -1};
	Query *body = castNode(Query, cte->ctequery);

	if (cte->cterecursive)
		ereport(ERROR, (errcode(REFUSE), errmsg("recursive query \"%s\" over a stream is not supported", cte->ctename),
						errdetail("A recursion would have to start over with every row that arrives."),
						errhint("Recurse over a table, and join the stream with the result."), check_position(c, cte->location)));
	if (body->commandType != CMD_SELECT)
		ereport(ERROR, (errcode(REFUSE), errmsg("data-modifying statement in WITH is not supported in a streaming query"),
						errhint("Write to tables with a sink, or with stream.to_function."), check_position(c, cte->location)));
	if (cte->cterefcount > 1 && contain_volatile_functions(cte->ctequery))
		ereport(ERROR, (errcode(REFUSE), errmsg("WITH query \"%s\" over a stream uses a volatile function and is read more than once", cte->ctename),
						errdetail("Each reference reads the stream for itself and would see other values."),
						errhint("Use a function of the row, or refer to the WITH query once."),
						check_position(c, cte->location)));
	inline_cte_walker((Node *) query, &context);
}

/* Depth first: a CTE may refer to those before it. */
static bool
inline_ctes_walker(Node *node, Compile *c)
{
	if (node == NULL)
		return false;
	if (IsA(node, Query))
	{
		Query *query = (Query *) node;
		List *kept = NIL;
		ListCell *lc;

		foreach (lc, query->cteList)
		{
			CommonTableExpr *cte = lfirst(lc);

			if (query_has_source((Query *) cte->ctequery))
				inline_one_cte(c, query, cte);
			else
				kept = lappend(kept, cte);
		}
		query->cteList = kept;
		query->hasRecursive = query->hasRecursive && kept != NIL;
		return query_tree_walker(query, inline_ctes_walker, c, 0);
	}
	return expression_tree_walker(node, inline_ctes_walker, c);
}

/* ---- all of it ---- */

Query *
prepare_query(Compile *c, Query *query)
{
	List *rewritten;

	query = copyObject(query);
	if (query->commandType != CMD_SELECT || query->utilityStmt != NULL)
		ereport(ERROR, (errcode(REFUSE), errmsg("a streaming query must be one SELECT"),
						errhint("What is to be done with its rows is up to the sink.")));
	AcquireRewriteLocks(query, true, false);
	rewritten = QueryRewrite(query);
	if (list_length(rewritten) != 1 || linitial_node(Query, rewritten)->commandType != CMD_SELECT)
		ereport(ERROR, (errcode(REFUSE), errmsg("a streaming query must be one SELECT"),
						errdetail("A rule turns it into something else."), errhint("Name the relations themselves, not a view with rules.")));
	query = linitial_node(Query, rewritten);
	tree_drop_nulling(query);
	mark_sources_walker((Node *) query, c);
	if (c->plan->sources == NIL)
		ereport(ERROR, (errcode(REFUSE), errmsg("the query reads no stream"),
						errhint("Name a source made by stream.create_source in its FROM clause.")));
	check_watermark_names(c);
	query = castNode(Query, replace_times_mutator((Node *) query, c));
	inline_ctes_walker((Node *) query, c);
	semijoin_pull_up(query);
	return query;
}
