/*
 * state_function.c: what handlers call: state_get, list_append, map_put, register_timer and their kin. Thin: types here, the work in operator/transform*.c.
 * These are the hot path of custom state: no SPI, no catalog look-up after a call site's first call.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "fmgr.h"
#include "funcapi.h"
#include "operator/transform.h"
#include "util/coerce.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/lsyscache.h"
#include "utils/timestamp.h"

PG_FUNCTION_INFO_V1(stream_state_exists);
PG_FUNCTION_INFO_V1(stream_state_get);
PG_FUNCTION_INFO_V1(stream_state_update);
PG_FUNCTION_INFO_V1(stream_state_clear);
PG_FUNCTION_INFO_V1(stream_list_get);
PG_FUNCTION_INFO_V1(stream_list_append);
PG_FUNCTION_INFO_V1(stream_list_put);
PG_FUNCTION_INFO_V1(stream_list_clear);
PG_FUNCTION_INFO_V1(stream_map_get);
PG_FUNCTION_INFO_V1(stream_map_put);
PG_FUNCTION_INFO_V1(stream_map_contains);
PG_FUNCTION_INFO_V1(stream_map_remove);
PG_FUNCTION_INFO_V1(stream_map_clear);
PG_FUNCTION_INFO_V1(stream_map_entries);
PG_FUNCTION_INFO_V1(stream_register_timer);
PG_FUNCTION_INFO_V1(stream_delete_timer);
PG_FUNCTION_INFO_V1(stream_list_timers);
PG_FUNCTION_INFO_V1(stream_processing_time_now);
PG_FUNCTION_INFO_V1(stream_transform_with_state);

#define MAX_ARGUMENTS 3

static const char *
function_name(FunctionCallInfo fcinfo)
{
	return get_func_name(fcinfo->flinfo->fn_oid);
}

static Transform *
running_handler(FunctionCallInfo fcinfo)
{
	Transform *op = transform_running();

	if (op == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("stream.%s can be called only inside a handler of a processor", function_name(fcinfo)),
				 errdetail("It is about the key whose handler is running."), errhint("See stream.create_processor.")));
	return op;
}

/* ---- variables ---- */

static char *
declared_names(Transform *op)
{
	StringInfoData buf;

	initStringInfo(&buf);
	for (int i = 0; i < op->nvariables; i++)
		appendStringInfo(&buf, "%s%s", i > 0 ? ", " : "", op->variables[i].declared->name);
	return buf.len > 0 ? buf.data : pstrdup("none");
}

static Variable *
any_variable(FunctionCallInfo fcinfo)
{
	Transform *op = running_handler(fcinfo);
	Variable *variable;
	text *name;

	if (PG_ARGISNULL(0))
		ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("name of a state variable must not be null")));
	name = PG_GETARG_TEXT_PP(0);
	variable = transform_variable(op, VARDATA_ANY(name), VARSIZE_ANY_EXHDR(name));
	if (variable == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("processor \"%s\" has no state variable \"%s\"", op->processor->name, text_to_cstring(name)),
				 errdetail("Declared are: %s.", declared_names(op)),
				 errhint("Declare it with stream.create_processor.")));
	return variable;
}

static Variable *
variable_of_kind(FunctionCallInfo fcinfo, VariableKind kind)
{
	Variable *variable = any_variable(fcinfo);

	if (variable->declared->kind != kind)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("state variable \"%s\" of processor \"%s\" is a %s, not a %s", variable->declared->name,
						variable->op->processor->name, variable_kind_name(variable->declared->kind),
						variable_kind_name(kind)),
				 errhint("stream.%s works on state of kind %s.", function_name(fcinfo), variable_kind_name(kind))));
	return variable;
}

/* ---- types ---- */

/* The conversion at this call site, found anew when another type comes along; NULL: there is none. */
static Coercion *
coercion(FunctionCallInfo fcinfo, int argno, Oid from, Oid to, int32 typmod)
{
	Coercion *all = fcinfo->flinfo->fn_extra, *c;

	if (unlikely(all == NULL))
		all = fcinfo->flinfo->fn_extra =
			MemoryContextAllocZero(fcinfo->flinfo->fn_mcxt, sizeof(Coercion) * MAX_ARGUMENTS);
	c = &all[argno];
	if (likely(c->to == to && c->from == from && c->typmod == typmod))
		return c;
	if (coercion_prepare(c, from, to, typmod, fcinfo->flinfo->fn_mcxt))
		return c;
	c->to = InvalidOid;
	return NULL;
}

static void
refuse_type(Variable *variable, const char *part, Oid declared, Oid other)
{
	ereport(ERROR,
			(errcode(ERRCODE_DATATYPE_MISMATCH),
			 errmsg("%s of state variable \"%s\" of processor \"%s\" is %s, not %s", part, variable->declared->name,
					variable->op->processor->name, format_type_be(declared), format_type_be(other)),
			 errhint("Cast to %s.", format_type_be(declared))));
}

static Oid
argument_type(FunctionCallInfo fcinfo, int argno)
{
	Oid type = get_fn_expr_argtype(fcinfo->flinfo, argno);

	if (!OidIsValid(type))
		ereport(ERROR, (errcode(ERRCODE_INDETERMINATE_DATATYPE),
						errmsg("type of argument %d of stream.%s cannot be told", argno + 1, function_name(fcinfo)),
						errhint("Call it from SQL, and cast the argument.")));
	return type;
}

/* An argument as the variable declares it. NULL is no value. */
static Datum
argument_as(FunctionCallInfo fcinfo, int argno, Oid type, Oid to, int32 typmod, Variable *variable, const char *part)
{
	Coercion *c;

	if (PG_ARGISNULL(argno))
		ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
						errmsg("%s of state variable \"%s\" of processor \"%s\" cannot be NULL", part,
							   variable->declared->name, variable->op->processor->name),
						errhint("Use stream.state_clear to forget it.")));
	c = coercion(fcinfo, argno, type, to, typmod);
	if (c == NULL)
		refuse_type(variable, part, to, type);
	return coercion_apply(c, PG_GETARG_DATUM(argno));
}

static Datum
value_argument(FunctionCallInfo fcinfo, int argno, Variable *variable)
{
	return argument_as(fcinfo, argno, argument_type(fcinfo, argno), variable->declared->type,
					   variable->declared->typmod, variable, "value");
}

static Datum
map_key_argument(FunctionCallInfo fcinfo, Variable *variable)
{
	return argument_as(fcinfo, 1, argument_type(fcinfo, 1), variable->declared->key_type,
					   variable->declared->key_typmod, variable, "key");
}

/* From what is kept to the type asked for. */
static Coercion *
result_coercion(FunctionCallInfo fcinfo, int argno, Variable *variable, const char *part, Oid declared)
{
	Coercion *c = coercion(fcinfo, argno, declared, argument_type(fcinfo, argno), -1);

	if (c == NULL)
		refuse_type(variable, part, declared, argument_type(fcinfo, argno));
	return c;
}

/* What is kept, as the type asked for, in the caller's memory. */
static Datum
value_result(FunctionCallInfo fcinfo, int argno, Variable *variable, Datum value)
{
	Coercion *c = result_coercion(fcinfo, argno, variable, "value", variable->declared->type);

	value = coercion_apply(c, value);
	return c->plain ? datumCopy(value, variable->by_value, variable->length) : value;
}

/* ---- single values ---- */

Datum
stream_state_exists(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(variable_exists(any_variable(fcinfo)));
}

Datum
stream_state_get(PG_FUNCTION_ARGS)
{
	Variable *variable = variable_of_kind(fcinfo, VARIABLE_VALUE);
	Datum value;

	if (!variable_get(variable, &value))
		PG_RETURN_NULL();
	return value_result(fcinfo, 1, variable, value);
}

Datum
stream_state_update(PG_FUNCTION_ARGS)
{
	Variable *variable = variable_of_kind(fcinfo, VARIABLE_VALUE);

	variable_set(variable, value_argument(fcinfo, 1, variable));
	PG_RETURN_VOID();
}

Datum
stream_state_clear(PG_FUNCTION_ARGS)
{
	variable_clear(any_variable(fcinfo));
	PG_RETURN_VOID();
}

/* ---- lists ---- */

/* One of a set; a set of rows has their columns. */
static void
put_element(ReturnSetInfo *result, Datum value, bool is_row)
{
	bool isnull = false;
	HeapTupleData row;

	if (!is_row)
	{
		tuplestore_putvalues(result->setResult, result->setDesc, &value, &isnull);
		return;
	}
	row.t_data = DatumGetHeapTupleHeader(value);
	row.t_len = HeapTupleHeaderGetDatumLength(row.t_data);
	tuplestore_puttuple(result->setResult, &row);
}

Datum
stream_list_get(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	Variable *variable = variable_of_kind(fcinfo, VARIABLE_LIST);
	Coercion *c = result_coercion(fcinfo, 1, variable, "value", variable->declared->type);
	bool is_row = type_is_rowtype(argument_type(fcinfo, 1));

	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	for (Element *element = variable_next(variable, NULL); element; element = variable_next(variable, element))
		put_element(result, coercion_apply(c, element->value), is_row);
	return (Datum) 0;
}

Datum
stream_list_append(PG_FUNCTION_ARGS)
{
	Variable *variable = variable_of_kind(fcinfo, VARIABLE_LIST);

	variable_append(variable, value_argument(fcinfo, 1, variable));
	PG_RETURN_VOID();
}

/* The elements of an array argument, as the variable declares them. */
static Datum *
elements_argument(FunctionCallInfo fcinfo, Variable *variable, int *n)
{
	Oid type = argument_type(fcinfo, 1), declared = variable->declared->type, array = get_array_type(declared);
	Datum *values;
	bool *nulls, by_value;
	int16 length;
	char align;

	if (type != UNKNOWNOID && !OidIsValid(get_base_element_type(type)))
		ereport(ERROR, (errcode(ERRCODE_DATATYPE_MISMATCH),
						errmsg("stream.list_put needs an array, not %s", format_type_be(type)),
						errhint("Use stream.list_append for one value.")));
	if (!OidIsValid(array))
		ereport(ERROR, (errcode(ERRCODE_DATATYPE_MISMATCH),
						errmsg("type %s of state variable \"%s\" has no array type", format_type_be(declared),
							   variable->declared->name),
						errhint("Use stream.list_append.")));
	get_typlenbyvalalign(declared, &length, &by_value, &align);
	deconstruct_array(
		DatumGetArrayTypeP(argument_as(fcinfo, 1, type, array, variable->declared->typmod, variable, "value")),
		declared, length, by_value, align, &values, &nulls, n);
	for (int i = 0; i < *n; i++)
		if (nulls[i])
			ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
							errmsg("value of state variable \"%s\" of processor \"%s\" cannot be NULL",
								   variable->declared->name, variable->op->processor->name)));
	return values;
}

/* The whole list anew. The values were taken out of the array before the old ones go: they may be the same. */
Datum
stream_list_put(PG_FUNCTION_ARGS)
{
	Variable *variable = variable_of_kind(fcinfo, VARIABLE_LIST);
	int n;
	Datum *values = elements_argument(fcinfo, variable, &n);

	variable_clear(variable);
	for (int i = 0; i < n; i++)
		variable_append(variable, values[i]);
	PG_RETURN_VOID();
}

Datum
stream_list_clear(PG_FUNCTION_ARGS)
{
	variable_clear(variable_of_kind(fcinfo, VARIABLE_LIST));
	PG_RETURN_VOID();
}

/* ---- maps ---- */

Datum
stream_map_get(PG_FUNCTION_ARGS)
{
	Variable *variable = variable_of_kind(fcinfo, VARIABLE_MAP);
	Element *element = PG_ARGISNULL(1) ? NULL : variable_map_find(variable, map_key_argument(fcinfo, variable));

	if (element == NULL)
		PG_RETURN_NULL();
	return value_result(fcinfo, 2, variable, element->value);
}

Datum
stream_map_put(PG_FUNCTION_ARGS)
{
	Variable *variable = variable_of_kind(fcinfo, VARIABLE_MAP);
	Datum key = map_key_argument(fcinfo, variable);

	variable_map_put(variable, key, value_argument(fcinfo, 2, variable));
	PG_RETURN_VOID();
}

Datum
stream_map_contains(PG_FUNCTION_ARGS)
{
	Variable *variable = variable_of_kind(fcinfo, VARIABLE_MAP);

	PG_RETURN_BOOL(!PG_ARGISNULL(1) && variable_map_find(variable, map_key_argument(fcinfo, variable)) != NULL);
}

Datum
stream_map_remove(PG_FUNCTION_ARGS)
{
	Variable *variable = variable_of_kind(fcinfo, VARIABLE_MAP);

	if (!PG_ARGISNULL(1))
		variable_map_remove(variable, map_key_argument(fcinfo, variable));
	PG_RETURN_VOID();
}

Datum
stream_map_clear(PG_FUNCTION_ARGS)
{
	variable_clear(variable_of_kind(fcinfo, VARIABLE_MAP));
	PG_RETURN_VOID();
}

Datum
stream_map_entries(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	Variable *variable = variable_of_kind(fcinfo, VARIABLE_MAP);
	Coercion *key = result_coercion(fcinfo, 1, variable, "key", variable->declared->key_type);
	Coercion *value = result_coercion(fcinfo, 2, variable, "value", variable->declared->type);
	bool nulls[2] = {false, false};

	InitMaterializedSRF(fcinfo, 0);
	for (Element *element = variable_next(variable, NULL); element; element = variable_next(variable, element))
	{
		Datum values[2] = {coercion_apply(key, element_map_key(variable, element)),
						   coercion_apply(value, element->value)};

		tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	}
	return (Datum) 0;
}

/* ---- time ---- */

static TimestampTz
timer_argument(FunctionCallInfo fcinfo, Transform *op)
{
	if (op->undo_due)
		transform_undo_apply(op);
	if (op->timers == NULL || op->processor->handle_timer == NULL)
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("processor \"%s\" has no timers", op->processor->name),
						op->timers ? errdetail("It has no handle_timer.") : errdetail("Its time_mode is none."),
						errhint("Create it with handle_timer and time_mode processing_time or event_time.")));
	if (PG_ARGISNULL(0))
		ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("time of a timer must not be null")));
	return PG_GETARG_TIMESTAMPTZ(0);
}

Datum
stream_register_timer(PG_FUNCTION_ARGS)
{
	Transform *op = running_handler(fcinfo);
	TimestampTz at = timer_argument(fcinfo, op);

	if (TIMESTAMP_NOT_FINITE(at))
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("time of a timer must be finite")));
	transform_timer_register(op, at);
	PG_RETURN_VOID();
}

Datum
stream_delete_timer(PG_FUNCTION_ARGS)
{
	Transform *op = running_handler(fcinfo);

	transform_timer_delete(op, timer_argument(fcinfo, op));
	PG_RETURN_VOID();
}

Datum
stream_list_timers(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	Transform *op = running_handler(fcinfo);
	bool isnull = false;

	if (op->undo_due)
		transform_undo_apply(op);
	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	if (op->timers == NULL)
		return (Datum) 0;
	for (Element *element = variable_next(op->timers, NULL); element; element = variable_next(op->timers, element))
	{
		Datum at = TimestampTzGetDatum(element->serial);

		tuplestore_putvalues(result->setResult, result->setDesc, &at, &isnull);
	}
	return (Datum) 0;
}

Datum
stream_processing_time_now(PG_FUNCTION_ARGS)
{
	PG_RETURN_TIMESTAMPTZ(running_handler(fcinfo)->base.batch->batch_time);
}

/* A streaming query takes this call out of its plan; being called means the query was run by hand. */
Datum
stream_transform_with_state(PG_FUNCTION_ARGS)
{
	ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					errmsg("stream.transform_with_state can be used only in a streaming query"),
					errdetail("Custom state lives from batch to batch: there is no batch form."),
					errhint("Create the query with stream.create_query.")));
	PG_RETURN_NULL();
}
