/*
 * signature.c: writes down what saved state depends on, as jsonb that survives dump and restore.
 * Expressions are deparsed with placeholders for columns; each column says which relation's it is, followed through subqueries, so that renaming an
 * alias or moving a filter changes nothing, and grouping by something else does.
 */
#include "plan/internal.h"

#include "lib/stringinfo.h"
#include "metadata/processor.h"
#include "nodes/nodeFuncs.h"
#include "parser/parsetree.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/guc.h"
#include "utils/json.h"
#include "utils/lsyscache.h"
#include "utils/regproc.h"
#include "utils/ruleutils.h"

static void write_expression(StringInfo out, Compile *c, Level *level, Node *expr);

/* ---- columns ---- */

/* Place among the columns that are not dropped: the same after a dump and restore, and after a rename. */
static int
column_position(Oid relid, AttrNumber attno)
{
	int position = 0;

	for (AttrNumber i = 1; i <= attno; i++)
		if (get_attname(relid, i, true) != NULL && get_atttype(relid, i) != InvalidOid)
			position++;
	return position;
}

static void
write_member(StringInfo out, const char *name, const char *value)
{
	escape_json(out, name);
	appendStringInfoString(out, ": ");
	escape_json(out, value);
}

static void
write_relation_column(StringInfo out, Level *at, Var *var, RangeTblEntry *rte)
{
	appendStringInfoChar(out, '{');
	if (rte->rtekind == RTE_RELATION)
		write_member(out, "of", quote_qualified_identifier(get_namespace_name(get_rel_namespace(rte->relid)), get_rel_name(rte->relid)));
	else
		write_member(out, "of", rte->rtekind == RTE_NAMEDTUPLESTORE ? rte->enrname : rte->eref->aliasname);
	appendStringInfoString(out, ", ");
	write_member(out, "column", var->varattno == 0 ? "*" : get_rte_attribute_name(rte, var->varattno));
	if (rte->rtekind == RTE_RELATION && var->varattno > 0)
		appendStringInfo(out, ", \"position\": %d", column_position(rte->relid, var->varattno));
	appendStringInfoChar(out, '}');
}

static void
write_column(StringInfo out, Compile *c, Level *level, Var *var)
{
	List *origins = tree_origins(level, var);
	Level *at = NULL;
	RangeTblEntry *rte = tree_var_rte(level, var, &at);
	ListCell *lc;

	if (origins == NIL)
	{
		write_relation_column(out, at, var, rte);
		return;
	}
	if (list_length(origins) > 1)
		appendStringInfoString(out, "{\"union\": [");
	foreach (lc, origins)
	{
		Origin *origin = lfirst(lc);

		if (foreach_current_index(lc) > 0)
			appendStringInfoString(out, ", ");
		write_expression(out, c, origin->level, origin->expr);
	}
	if (list_length(origins) > 1)
		appendStringInfoString(out, "]}");
}

/* ---- expressions ---- */

typedef struct Placeholders
{
	List *vars;
	int depth;
} Placeholders;

static Node *
placeholder_mutator(Node *node, Placeholders *context)
{
	if (node == NULL)
		return NULL;
	if (IsA(node, Var) && (int) ((Var *) node)->varlevelsup >= context->depth)
	{
		Var *var = copyObject((Var *) node);
		Param *param = makeNode(Param);

		var->varlevelsup -= context->depth;
		context->vars = list_append_unique(context->vars, var);
		param->paramkind = PARAM_EXTERN;
		for (param->paramid = STREAM_PARAM_COUNT + 1; !equal(list_nth(context->vars, param->paramid - STREAM_PARAM_COUNT - 1), var);)
			param->paramid++;
		param->paramtype = var->vartype;
		param->paramtypmod = var->vartypmod;
		param->paramcollid = var->varcollid;
		param->location = -1;
		return (Node *) param;
	}
	if (IsA(node, Query))
	{
		Query *result;

		context->depth++;
		result = query_tree_mutator((Query *) node, placeholder_mutator, context, 0);
		context->depth--;
		return (Node *) result;
	}
	return expression_tree_mutator(node, placeholder_mutator, context);
}

static void
write_expression(StringInfo out, Compile *c, Level *level, Node *expr)
{
	Placeholders context = {NIL, 0};
	ListCell *lc;
	Node *text;

	if (IsA(expr, Var))
	{
		write_column(out, c, level, (Var *) expr);
		return;
	}
	text = placeholder_mutator(expr, &context);
	appendStringInfoChar(out, '{');
	write_member(out, "expression", deparse_expression(text, NIL, false, false));
	if (context.vars)
		appendStringInfoString(out, ", \"over\": [");
	foreach (lc, context.vars)
	{
		if (foreach_current_index(lc) > 0)
			appendStringInfoString(out, ", ");
		write_column(out, c, level, lfirst(lc));
	}
	appendStringInfoString(out, context.vars ? "]}" : "}");
}

/* Settings that change how constants and names are written must not change signatures. */
static int
pin_settings(void)
{
	static const char *const settings[][2] = {{"search_path", "pg_catalog"}, {"IntervalStyle", "postgres"}, {"DateStyle", "ISO, MDY"},
											  {"TimeZone", "UTC"},			 {"extra_float_digits", "1"},	{"bytea_output", "hex"},
											  {"quote_all_identifiers", "off"}};
	int level = NewGUCNestLevel();

	for (int i = 0; i < lengthof(settings); i++)
		(void) set_config_option(settings[i][0], settings[i][1], PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
	return level;
}

char *
signature_expression(Compile *c, Level *level, Node *expr)
{
	StringInfoData out;
	int guc_level = pin_settings();

	initStringInfo(&out);
	write_expression(&out, c, level, expr);
	AtEOXact_GUC(true, guc_level);
	return out.data;
}

/* ---- operators ---- */

static Jsonb *
jsonb_of_text(const char *text)
{
	return DatumGetJsonbP(DirectFunctionCall1(jsonb_in, CStringGetDatum(text)));
}

/* An object that begins with the operator's name; to be ended with what this returns. */
static int
object_begin(StringInfo out, const char *operator)
{
	int guc_level = pin_settings();

	initStringInfo(out);
	appendStringInfoChar(out, '{');
	write_member(out, "operator", operator);
	return guc_level;
}

static Jsonb *
object_end(StringInfo out, int guc_level)
{
	appendStringInfoChar(out, '}');
	AtEOXact_GUC(true, guc_level);
	return jsonb_of_text(out->data);
}

static void
write_typed(StringInfo out, Compile *c, Level *level, Node *expr)
{
	appendStringInfoString(out, "{\"value\": ");
	write_expression(out, c, level, expr);
	appendStringInfoString(out, ", ");
	write_member(out, "type", format_type_with_typemod(exprType(expr), exprTypmod(expr)));
}

static void
write_columns(StringInfo out, Compile *c, Level *level, const char *member, List *columns)
{
	ListCell *lc;

	appendStringInfo(out, ", \"%s\": [", member);
	foreach (lc, columns)
	{
		if (foreach_current_index(lc) > 0)
			appendStringInfoString(out, ", ");
		write_typed(out, c, level, lfirst(lc));
		appendStringInfoChar(out, '}');
	}
	appendStringInfoChar(out, ']');
}

Jsonb *
signature_of_distinct(Compile *c, Level *level, DedupSpec *spec, List *keys)
{
	StringInfoData out;
	int guc_level = object_begin(&out, spec->base.ops->name);

	appendStringInfo(&out, ", \"watermark\": %s, \"within\": %s", spec->base.has_watermark ? "true" : "false", spec->within >= 0 ? "true" : "false");
	write_columns(&out, c, level, "keys", keys);
	return object_end(&out, guc_level);
}

/* Rows with a NULL key are stored or not by it. Only where there is such a key: signatures saved before there were any stay as they are. */
static void
write_nulls_match(StringInfo out, JoinSpec *spec)
{
	if (memchr(spec->nulls_match, true, spec->nkeys) == NULL)
		return;
	appendStringInfoString(out, ", \"nulls_match\": [");
	for (int k = 0; k < spec->nkeys; k++)
		appendStringInfo(out, "%s%s", k > 0 ? ", " : "", spec->nulls_match[k] ? "true" : "false");
	appendStringInfoChar(out, ']');
}

/* Rows wait whole, so the columns kept of them belong to it; conditions that are no keys may change. */
Jsonb *
signature_of_join(Compile *c, Level *level, JoinSpec *spec, List *keys[2], List *payload[2])
{
	static const char *const types[] = {"inner", "left", "right", "full", "semi"};
	StringInfoData out;
	int guc_level = object_begin(&out, spec->base.ops->name);

	appendStringInfoString(&out, ", ");
	write_member(&out, "type", types[spec->type]);
	write_columns(&out, c, level, "keys", keys[0]);
	write_columns(&out, c, level, "right_keys", keys[1]);
	write_columns(&out, c, level, "columns", payload[0]);
	write_columns(&out, c, level, "right_columns", payload[1]);
	write_nulls_match(&out, spec);
	return object_end(&out, guc_level);
}

/* A smaller n would leave rows in the target that nobody takes back, a larger one lack rows long dropped. */
Jsonb *
signature_of_best(Compile *c, Level *level, BestSpec *spec, List *keys, List *kept)
{
	StringInfoData out;
	int guc_level = object_begin(&out, spec->base.ops->name);

	appendStringInfo(&out, ", \"watermark\": %s, \"rows\": " INT64_FORMAT, spec->base.has_watermark ? "true" : "false", spec->count);
	write_columns(&out, c, level, "keys", keys);
	write_columns(&out, c, level, "columns", kept);
	appendStringInfoString(&out, ", \"order\": [");
	for (int i = 0; i < spec->nsort; i++)
	{
		appendStringInfo(&out, "%s{\"value\": ", i > 0 ? ", " : "");
		write_expression(&out, c, level, list_nth(kept, spec->sort_columns[i]));
		appendStringInfoString(&out, ", ");
		write_member(&out, "operator", format_operator_qualified(spec->sort_operators[i]));
		appendStringInfo(&out, ", \"nulls_first\": %s}", spec->nulls_first[i] ? "true" : "false");
	}
	appendStringInfoString(&out, "]");
	return object_end(&out, guc_level);
}

/* The number itself may change: state is how many rows have gone through. */
Jsonb *
signature_of_limit(LimitSpec *spec)
{
	return jsonb_of_text(psprintf("{\"operator\": \"%s\"}", spec->base.ops->name));
}

/* Panes are no windows, though both operators bear one name. */
Jsonb *
signature_of_aggregate(Compile *c, Level *level, AggregateSpec *spec, List *keys)
{
	StringInfoData out;
	int guc_level = object_begin(&out, spec->base.ops->name);
	ListCell *lc;

	appendStringInfo(&out, ", \"watermark\": %s%s", spec->base.has_watermark ? "true" : "false", spec->combines ? ", \"panes\": true" : "");
	write_columns(&out, c, level, "keys", keys);
	appendStringInfoString(&out, ", \"aggregates\": [");
	foreach (lc, spec->calls)
	{
		Aggref *aggref = ((AggregateCall *) lfirst(lc))->aggref;

		if (foreach_current_index(lc) > 0)
			appendStringInfoString(&out, ", ");
		write_typed(&out, c, level, (Node *) aggref);
		appendStringInfoString(&out, ", ");
		write_member(&out, "function", format_procedure_qualified(aggref->aggfnoid));
		appendStringInfoChar(&out, '}');
	}
	appendStringInfoString(&out, "]");
	return object_end(&out, guc_level);
}

/* Which processor it is may change, and so may its code and its TTLs; what it keeps under which key may not. */
Jsonb *
signature_of_transform(Compile *c, Level *level, TransformSpec *spec, List *keys)
{
	StringInfoData out;
	int guc_level = object_begin(&out, spec->base.ops->name);
	ListCell *lc;

	appendStringInfoString(&out, ", ");
	write_member(&out, "processor", spec->processor->name);
	appendStringInfoString(&out, ", ");
	write_member(&out, "time_mode", time_mode_name(spec->processor->time_mode));
	write_columns(&out, c, level, "keys", keys);
	appendStringInfoString(&out, ", \"variables\": {");
	foreach (lc, spec->processor->variables)
	{
		ProcessorVariable *variable = lfirst(lc);
		char *type = format_type_with_typemod(variable->type, variable->typmod);

		if (variable->kind == VARIABLE_MAP)
			type = psprintf("%s to %s", format_type_with_typemod(variable->key_type, variable->key_typmod), type);
		if (foreach_current_index(lc) > 0)
			appendStringInfoString(&out, ", ");
		write_member(&out, variable->name, psprintf("%s of %s", variable_kind_name(variable->kind), type));
	}
	if (spec->processor->handle_timer)
	{
		appendStringInfoString(&out, spec->processor->variables ? ", " : "");
		write_member(&out, PROCESSOR_TIMERS, "timers");
	}
	appendStringInfoString(&out, "}");
	return object_end(&out, guc_level);
}

Jsonb *
signature_combine(List *operators)
{
	StringInfoData out;
	ListCell *lc;

	initStringInfo(&out);
	appendStringInfoChar(&out, '[');
	foreach (lc, operators)
	{
		Jsonb *signature = ((OperatorSpec *) lfirst(lc))->signature;

		if (foreach_current_index(lc) > 0)
			appendStringInfoString(&out, ", ");
		(void) JsonbToCString(&out, &signature->root, VARSIZE(signature));
	}
	appendStringInfoChar(&out, ']');
	return jsonb_of_text(out.data);
}
