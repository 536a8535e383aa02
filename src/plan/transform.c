/*
 * transform.c: takes LATERAL stream.transform_with_state(…) out of a FROM clause. What stands before it (with the WHERE conditions over that alone) becomes
 * the operator's input stage: key and row, of the types the handlers take. What stands after it joins the operator's output.
 * The call's place in the range table is kept by the output, so columns of t need no rewriting; behind them the output has the key.
 */
#include "plan/transform.h"

#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "metadata/processor.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "optimizer/prep.h"
#include "parser/parse_coerce.h"
#include "parser/parse_relation.h"
#include "parser/parsetree.h"
#include "rewrite/rewriteManip.h"
#include "util/compat.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/typcache.h"

/* ---- finding it ---- */

static FuncExpr *
transform_call(RangeTblEntry *rte)
{
	ListCell *lc;

	if (rte->rtekind != RTE_FUNCTION)
		return NULL;
	foreach (lc, rte->functions)
	{
		Node *expr = ((RangeTblFunction *) lfirst(lc))->funcexpr;

		if (IsA(expr, FuncExpr) && is_stream_function(((FuncExpr *) expr)->funcid, "transform_with_state"))
			return (FuncExpr *) expr;
	}
	return NULL;
}

static int
find_transform(Query *query)
{
	ListCell *lc;

	foreach (lc, query->rtable)
		if (transform_call(lfirst(lc)))
			return foreach_current_index(lc) + 1;
	return 0;
}

bool
query_transforms(Query *query)
{
	return find_transform(query) > 0;
}

/* ---- refusals ---- */

static bool
aggregates_above(Level *level)
{
	for (; level; level = level->parent)
		if (query_aggregates(level->query))
			return true;
	return false;
}

static void
check_form(TransformCut *t)
{
	RangeTblEntry *rte = rt_fetch(t->rtindex, t->query->rtable);
	int position = t->call->location;

	if (list_length(rte->functions) != 1 || rte->funcordinality)
		ereport(
			ERROR,
			(errcode(REFUSE), errmsg("transform_with_state cannot be used in ROWS FROM or WITH ORDINALITY"),
			 errhint(
				 "Write FROM source i, LATERAL stream.transform_with_state(processor, i.key, i) AS t(col type, …)."),
			 check_position(t->c, position)));
	for (int i = t->rtindex; i < list_length(t->query->rtable); i++)
		if (transform_call(list_nth(t->query->rtable, i)))
			ereport(ERROR, (errcode(REFUSE), errmsg("only one transform_with_state is supported in a FROM clause"),
							errhint("Put the first one into a subquery."), check_position(t->c, position)));
	if (t->c->mode == OUTPUT_COMPLETE && !aggregates_above(t->level))
		ereport(ERROR, (errcode(REFUSE), errmsg("transform_with_state is not supported in output mode complete"),
						errdetail("What handlers return comes out once."),
						errhint("Use output mode append or update, or aggregate the result."),
						check_position(t->c, position)));
}

static void
load_processor(TransformCut *t)
{
	Node *name = eval_const_expressions(NULL, copyObject(linitial(t->call->args)));

	if (!IsA(name, Const) || ((Const *) name)->constisnull)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("the processor of transform_with_state must be a constant name"),
						errhint("Write the name itself; one query has one processor."),
						check_position(t->c, t->call->location)));
	t->spec->processor = processor_load(TextDatumGetCString(((Const *) name)->constvalue), false);
}

static void
load_handler(TransformCut *t, const char *signature, const char *what, HandlerShape *shape)
{
	Oid function = processor_function(signature);
	AclResult allowed = pg_proc_aclcheck(function, GetUserId(), ACL_EXECUTE);

	if (allowed != ACLCHECK_OK)
		aclcheck_error(allowed, OBJECT_FUNCTION, get_func_name(function));
	*shape = transform_handler_shape(function, what);
	transform_handler_check_result(function, shape->result, t->spec->base.output, t->ncolumns);
}

/* ---- the input's columns ---- */

static void
refuse_type(TransformCut *t, const char *what, Oid has, Oid wants)
{
	ereport(ERROR, (errcode(ERRCODE_DATATYPE_MISMATCH),
					errmsg("%s of transform_with_state is of type %s, but the handlers of processor \"%s\" take %s",
						   what, format_type_be(has), t->spec->processor->name, format_type_be(wants)),
					errhint("Cast it, or give the processor handlers for that type."),
					check_position(t->c, t->call->location)));
}

static Node *
coerce_column(TransformCut *t, Node *expr, Oid type, const char *what)
{
	Node *coerced = coerce_to_target_type(NULL, copyObject(expr), exprType(expr), type, -1, COERCION_ASSIGNMENT,
										  COERCE_IMPLICIT_CAST, -1);

	if (coerced == NULL)
		refuse_type(t, what, exprType(expr), type);
	return coerced;
}

/* A row of a join, a subquery or another table goes to the handlers' row type column by column. */
static Node *
spell_out_row(TransformCut *t, Var *var)
{
	RowExpr *row = makeNode(RowExpr);

	expandRTE(rt_fetch(var->varno, t->query->rtable), var->varno, 0, -1, false, &row->colnames, &row->args);
	row->row_typeid = RECORDOID;
	row->row_format = COERCE_IMPLICIT_CAST;
	row->location = -1;
	return (Node *) row;
}

static Node *
row_column(TransformCut *t, Node *expr)
{
	Oid type = get_base_element_type(t->input.second_type);

	if (exprType(expr) == type)
		return expr;
	if (IsA(expr, Var) && ((Var *) expr)->varattno == 0 && ((Var *) expr)->varlevelsup == 0 && type_is_rowtype(type))
		expr = spell_out_row(t, (Var *) expr);
	return coerce_column(t, expr, type, "the row");
}

static void
consider_event_column(TransformCut *t, Node *var)
{
	Lineage lineage = {.kind = LINEAGE_NONE};

	if (IsA(var, Var))
		lineage = lineage_of(t->c, t->level, var);
	if (lineage.kind == LINEAGE_NONE || !lineage.has_watermark)
		return;
	if (t->event_column && !lineage_same_columns(lineage.columns, t->event_time.columns))
		ereport(ERROR, (errcode(REFUSE), errmsg("transform_with_state over two event-time columns is not supported"),
						errdetail("It would not be clear which of them says when a row is late."),
						errhint("Select the event time of one of them in a subquery."),
						check_position(t->c, t->call->location)));
	if (t->event_column)
		return;
	t->event_time = lineage;
	t->event_column = lineage_apply(lineage.closes, (Expr *) copyObject(var));
}

/* The rows' event time: that of the streams among what stands before the call. */
static void
find_event_time(TransformCut *t)
{
	ListCell *var;
	int i = -1;

	while ((i = bms_next_member(t->below, i)) >= 0)
	{
		List *vars = NIL, *names = NIL;

		if (!rte_streams(rt_fetch(i, t->query->rtable)))
			continue;
		expandRTE(rt_fetch(i, t->query->rtable), i, 0, -1, false, &names, &vars);
		foreach (var, vars)
			consider_event_column(t, lfirst(var));
	}
	if (t->event_column == NULL && t->spec->processor->time_mode == TIME_MODE_EVENT)
		ereport(ERROR, (errcode(REFUSE),
						errmsg("processor \"%s\" with time_mode event_time needs a source with a watermark",
							   t->spec->processor->name),
						errdetail("Timers fire when the watermark reaches them."),
						errhint("Give the source an event_time and a watermark_delay (or use option watermarks), and "
								"keep the event time in the subquery."),
						check_position(t->c, t->call->location)));
}

static List *
input_columns(TransformCut *t)
{
	List *columns = NIL;

	cut_add_column(&columns, coerce_column(t, t->key, t->input.key_type, "the key"), "key");
	cut_add_column(&columns, row_column(t, lthird(t->call->args)), "row");
	if (t->spec->processor->time_mode == TIME_MODE_EVENT)
		t->spec->event_time = cut_add_column(&columns, (Node *) t->event_column, "event_time");
	return columns;
}

/* ---- the two halves ---- */

static bool
belongs_below(TransformCut *t, Node *qual)
{
	return bms_is_subset(pull_varnos(NULL, qual), t->below);
}

static Query *
make_stage(TransformCut *t, List *columns)
{
	Query *below = copyObject(t->query);
	Level level = {below, t->level->parent};
	List *quals = NIL;
	ListCell *lc;

	foreach (lc, t->quals)
		if (belongs_below(t, lfirst(lc)))
			quals = lappend(quals, copyObject(lfirst(lc)));
	below->jointree = makeFromExpr(copyObject(t->left), quals ? (Node *) make_ands_explicit(quals) : NULL);
	transform_drop_entries(below, t->below, true);
	return cut_make_input(t->c, &level, columns);
}

static void
refuse_column(TransformCut *t, Var *var)
{
	RangeTblEntry *rte = rt_fetch(var->varno, t->entries);

	ereport(
		ERROR,
		(errcode(REFUSE),
		 errmsg("column \"%s.%s\" cannot be used beside transform_with_state", rte->eref->aliasname,
				var->varattno > 0 ? get_rte_attribute_name(rte, var->varattno) : "*"),
		 errdetail("Handlers take many rows and return others: of what stands before the call only the key is left."),
		 errhint("Let the handlers return it as a column of their result."), check_position(t->c, var->location)));
}

static Var *
output_var(TransformCut *t, int attno)
{
	Form_pg_attribute att = TupleDescAttr(t->spec->base.output, attno - 1);

	return makeVar(t->rtindex, attno, att->atttypid, att->atttypmod, att->attcollation, t->depth);
}

static Node *
whole_row(TransformCut *t)
{
	RowExpr *row = makeNode(RowExpr);

	for (int i = 1; i <= t->ncolumns; i++)
	{
		row->args = lappend(row->args, output_var(t, i));
		row->colnames =
			lappend(row->colnames, makeString(pstrdup(NameStr(TupleDescAttr(t->spec->base.output, i - 1)->attname))));
	}
	row->row_typeid = RECORDOID;
	row->row_format = COERCE_IMPLICIT_CAST;
	row->location = -1;
	return (Node *) row;
}

static Node *
find_key(TransformCut *t, Node *node)
{
	Node *key = copyObject(t->key), *column;

	if (IsA(key, Const))
		return NULL;
	IncrementVarSublevelsUp(key, t->depth, 0);
	if (!equal(key, node))
		return NULL;
	column = (Node *) output_var(t, t->ncolumns + 1);
	return exprType(column) == exprType(key)
			   ? column
			   : coerce_to_target_type(NULL, column, exprType(column), exprType(key), exprTypmod(key),
									   COERCION_EXPLICIT, COERCE_IMPLICIT_CAST, -1);
}

static Node *
above_mutator(Node *node, TransformCut *t)
{
	Node *key;

	if (node == NULL)
		return NULL;
	if ((key = find_key(t, node)) != NULL)
		return key;
	if (IsA(node, Var) && (int) ((Var *) node)->varlevelsup == t->depth)
	{
		Var *var = (Var *) node;

		if (bms_is_member(var->varno, t->below))
			refuse_column(t, var);
		if (var->varno == t->rtindex && var->varattno == 0)
			return whole_row(t);
	}
	if (IsA(node, Query))
	{
		Query *result;

		t->depth++;
		result = query_tree_mutator((Query *) node, above_mutator, t, QTW_IGNORE_JOINALIASES);
		t->depth--;
		return (Node *) result;
	}
	return expression_tree_mutator(node, above_mutator, t);
}

static void
rewrite_level(TransformCut *t, List *above)
{
	Query *query = t->query;
	List *quals = NIL;
	ListCell *lc;

	foreach (lc, t->quals)
		if (!belongs_below(t, lfirst(lc)))
			quals = lappend(quals, lfirst(lc));
	query->jointree = makeFromExpr(above, quals ? (Node *) make_ands_explicit(quals) : NULL);
	lfirst(list_nth_cell(query->rtable, t->rtindex - 1)) = cut_output_relation(&t->spec->base);
	t->entries = copyObject(query->rtable);
	transform_drop_entries(query, t->below, false);
	t->depth = 0;
	query_tree_mutator(query, above_mutator, t, QTW_DONT_COPY_QUERY | QTW_IGNORE_JOINALIASES);
	query->constraintDeps = NIL;
	tree_drop_unused_ctes(query);
}

/* ---- all of it ---- */

static TupleDesc
output_desc(TransformCut *t, Oid key_type, Oid key_collation)
{
	RangeTblEntry *rte = rt_fetch(t->rtindex, t->query->rtable);
	TupleDesc desc;
	List *names = NIL;

	t->ncolumns = list_length(t->function->funccoltypes);
	desc = CreateTemplateTupleDesc(t->ncolumns + 1);
	for (int i = 0; i < t->ncolumns; i++)
	{
		char *name = strVal(list_nth(rte->eref->colnames, i));

		TupleDescInitEntry(desc, i + 1, name, list_nth_oid(t->function->funccoltypes, i),
						   list_nth_int(t->function->funccoltypmods, i), 0);
		TupleDescInitEntryCollation(desc, i + 1, list_nth_oid(t->function->funccolcollations, i));
		names = lappend(names, name);
	}
	TupleDescInitEntry(desc, t->ncolumns + 1, cut_unique_name(names, "key"), key_type, -1, 0);
	TupleDescInitEntryCollation(desc, t->ncolumns + 1, key_collation);
	return desc;
}

static void
find_key_operators(TransformCut *t, Node *key)
{
	TypeCacheEntry *type = lookup_type_cache(exprType(key), TYPECACHE_EQ_OPR | TYPECACHE_HASH_PROC);

	t->spec->eq_operator = type->eq_opr;
	if (!OidIsValid(type->eq_opr) || !OidIsValid(type->hash_proc))
		ereport(ERROR,
				(errcode(REFUSE),
				 errmsg("transform_with_state cannot keep state by a key of type %s", format_type_be(exprType(key))),
				 errdetail("The type has no hash function."), errhint("Cast it to a type that has one, such as text."), check_position(t->c, t->call->location)));
	t->spec->collation = exprCollation(key);
}

/*
 * What a handler returns has no event time unless the processor says so: nobody else knows how long it keeps a row. The watermark of the rows in is
 * then that of the rows out.
 */
static OperatorOutput *
describe_output(TransformCut *t)
{
	OperatorOutput *output = palloc0(sizeof(OperatorOutput));
	int column = 0;

	output->nkeys = t->ncolumns + 1;
	output->lineage = palloc0((t->ncolumns + 1) * sizeof(Lineage));
	for (int i = 0; t->spec->processor->event_time && t->event_column && i < t->input.result->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(t->input.result, i);

		if (att->attisdropped)
			continue;
		if (namestrcmp(&att->attname, t->spec->processor->event_time) == 0)
			output->lineage[column] = lineage_of_time(t->event_time, TupleDescAttr(t->spec->base.output, column)->atttypid);
		column++;
	}
	return output;
}

void
cut_transform(Compile *c, Level *level)
{
	TransformCut t = {.c = c, .level = level, .query = level->query, .rtindex = find_transform(level->query)};
	List *above, *columns;
	Query *stage;
	Level below;
	Node *key;
	HandlerShape timer;

	tree_flatten_aliases(t.query);
	t.call = transform_call(rt_fetch(t.rtindex, t.query->rtable));
	t.function = linitial(rt_fetch(t.rtindex, t.query->rtable)->functions);
	t.spec = palloc0(sizeof(TransformSpec));
	check_form(&t);
	load_processor(&t);
	t.key = lsecond(t.call->args);
	t.input = transform_handler_shape(processor_function(t.spec->processor->handle_input), "handle_input");
	t.spec->base.output = output_desc(&t, t.input.key_type, get_typcollation(t.input.key_type));
	load_handler(&t, t.spec->processor->handle_input, "handle_input", &t.input);
	if (t.spec->processor->handle_timer)
		load_handler(&t, t.spec->processor->handle_timer, "handle_timer", &timer);

	above = transform_split_from(&t);
	if (t.spec->processor->time_mode == TIME_MODE_EVENT || t.spec->processor->event_time)
		find_event_time(&t);
	columns = input_columns(&t);
	key = (Node *) linitial_node(TargetEntry, columns)->expr;
	find_key_operators(&t, key);
	t.spec->rows_type = t.input.second_type;
	t.spec->base.ops = &transform_operator;
	t.spec->base.has_watermark = t.spec->event_time > 0;
	t.spec->base.signature = signature_of_transform(c, level, t.spec, list_make1(key));
	stage = make_stage(&t, columns);
	check_not_volatile(c, stage, "transform_with_state");

	/* What stands before the call may be stateful itself. */
	below = (Level){stage, level->parent};
	cut_query(c, &below);
	cut_check_final_rows(c, stage, "transform_with_state");
	t.spec->base.id = list_length(c->plan->operators);
	cut_add_operator(c, &t.spec->base, stage, describe_output(&t));
	rewrite_level(&t, above);
}
