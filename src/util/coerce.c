/*
 * coerce.c: values of one type given where another is declared. Functions that take "any" see literals as unknown and numbers as whatever they were;
 * what is kept must be of the declared type. Paths are found once per call site, applied per value.
 */
#include "util/coerce.h"

#include "access/htup_details.h"
#include "access/tupconvert.h"
#include "catalog/pg_type.h"
#include "nodes/nodes.h"
#include "parser/parse_coerce.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/typcache.h"

static void
prepare_text(Coercion *c, MemoryContext context)
{
	Oid function;
	bool is_varlena;

	c->through_text = true;
	c->from_unknown = c->from == UNKNOWNOID;
	if (!c->from_unknown)
	{
		getTypeOutputInfo(c->from, &function, &is_varlena);
		fmgr_info_cxt(function, &c->output, context);
	}
	getTypeInputInfo(c->to, &function, &c->input_param);
	fmgr_info_cxt(function, &c->input, context);
}

static bool
prepare_elements(Coercion *c, MemoryContext context)
{
	Oid elements[2] = {get_base_element_type(c->from), get_base_element_type(c->to)};

	c->element = MemoryContextAllocZero(context, sizeof(Coercion));
	for (int i = 0; i < 2; i++)
		get_typlenbyvalalign(elements[i], &c->element_length[i], &c->element_by_value[i], &c->element_align[i]);
	return coercion_prepare(c->element, elements[0], elements[1], c->typmod, context);
}

static void
prepare_length(Coercion *c, MemoryContext context)
{
	Oid function;

	if (c->typmod < 0 || c->through_text)
		return;
	if (find_typmod_coercion_function(c->to, &function) == COERCION_PATH_FUNC)
	{
		fmgr_info_cxt(function, &c->length, context);
		c->has_length = true;
	}
}

bool
coercion_prepare(Coercion *c, Oid from, Oid to, int32 typmod, MemoryContext context)
{
	bool checked = from != to && get_typtype(to) == TYPTYPE_DOMAIN; /* a domain's checks are its input function's */
	CoercionPathType path;
	Oid function;

	memset(c, 0, sizeof(Coercion));
	c->from = from;
	c->to = to;
	c->typmod = typmod;
	if (from == to)
		c->plain = true;
	else if (from == UNKNOWNOID)
		prepare_text(c, context);
	else if (from == RECORDOID && get_typtype(to) == TYPTYPE_COMPOSITE)
		c->from_record = true;
	else
	{
		path = find_coercion_pathway(to, from, COERCION_ASSIGNMENT, &function);
		if (path == COERCION_PATH_NONE)
			return false;
		if (path == COERCION_PATH_COERCEVIAIO || checked)
			prepare_text(c, context);
		else if (path == COERCION_PATH_RELABELTYPE)
			c->plain = true;
		else if (path == COERCION_PATH_ARRAYCOERCE)
			return prepare_elements(c, context);
		else
		{
			fmgr_info_cxt(function, &c->function, context);
			c->nargs = get_func_nargs(function);
		}
	}
	prepare_length(c, context);
	return true;
}

static Datum
apply_text(Coercion *c, Datum value)
{
	char *text = c->from_unknown ? DatumGetCString(value) : OutputFunctionCall(&c->output, value);

	return InputFunctionCall(&c->input, text, c->input_param, c->typmod);
}

/* Columns are matched by position, as plpgsql and RETURNING do. */
static Datum
apply_record(Coercion *c, Datum value)
{
	HeapTupleHeader row = DatumGetHeapTupleHeader(value);
	TupleDesc from = lookup_rowtype_tupdesc(HeapTupleHeaderGetTypeId(row), HeapTupleHeaderGetTypMod(row));
	TupleDesc to = lookup_rowtype_tupdesc(c->to, -1);
	TupleConversionMap *map = convert_tuples_by_position(from, to, "row does not fit the declared type");
	HeapTupleData tuple = {.t_len = HeapTupleHeaderGetDatumLength(row), .t_data = row};
	Datum result = heap_copy_tuple_as_datum(map ? execute_attr_map_tuple(&tuple, map) : &tuple, to);

	ReleaseTupleDesc(from);
	ReleaseTupleDesc(to);
	return result;
}

static Datum
apply_elements(Coercion *c, Datum value)
{
	ArrayType *array = DatumGetArrayTypeP(value);
	Datum *values;
	bool *nulls;
	int n;

	deconstruct_array(array, c->element->from, c->element_length[0], c->element_by_value[0], c->element_align[0],
					  &values, &nulls, &n);
	for (int i = 0; i < n; i++)
		if (!nulls[i])
			values[i] = coercion_apply(c->element, values[i]);
	return PointerGetDatum(construct_md_array(values, nulls, ARR_NDIM(array), ARR_DIMS(array), ARR_LBOUND(array),
											  c->element->to, c->element_length[1], c->element_by_value[1],
											  c->element_align[1]));
}

Datum
coercion_apply(Coercion *c, Datum value)
{
	if (c->through_text)
		return apply_text(c, value);
	if (c->from_record)
		return apply_record(c, value);
	if (c->element)
		return apply_elements(c, value);
	if (!c->plain)
		value = c->nargs == 1	? FunctionCall1(&c->function, value)
				: c->nargs == 2 ? FunctionCall2(&c->function, value, Int32GetDatum(c->typmod))
								: FunctionCall3(&c->function, value, Int32GetDatum(c->typmod), BoolGetDatum(false));
	if (c->has_length)
		value = FunctionCall3(&c->length, value, Int32GetDatum(c->typmod), BoolGetDatum(false));
	return value;
}
