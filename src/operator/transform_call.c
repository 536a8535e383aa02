/*
 * transform_call.c: the user's handlers, called by fmgr as the executor would: one row array per key and batch, or one timer.
 * fmgr checks no privilege: EXECUTE is checked at every batch's begin, when functions are looked up again, so that replaced ones are seen.
 * Everything a call makes lives in call_context and goes after it.
 */
#include "operator/transform.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "parser/parse_coerce.h"
#include "pgstat.h"
#include "util/compat.h"
#include "util/stored_row.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/regproc.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

static Transform *running = NULL;

Transform *
transform_running(void)
{
	return running;
}

/* ---- what a handler looks like ---- */

static void
refuse_handler(Oid function, const char *what, const char *why)
{
	ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					errmsg("function %s cannot be the %s of a processor", format_procedure(function), what),
					errdetail("%s.", why),
					errhint(strcmp(what, "handle_input") == 0
								? "Declare it like f(key K, rows R[]) RETURNS TABLE (…)."
								: "Declare it like f(key K, expires_at timestamptz) RETURNS TABLE (…).")));
}

/* The columns it returns, as it declares them. */
static TupleDesc
handler_result(Oid function, const char *what, bool *returns_row)
{
	Oid type;
	TupleDesc desc;
	char *name;

	switch (get_func_result_type(function, &type, &desc))
	{
		case TYPEFUNC_COMPOSITE:
		case TYPEFUNC_COMPOSITE_DOMAIN:
			*returns_row = true;
			return desc;
		case TYPEFUNC_SCALAR:
			if (type == VOIDOID || type == TRIGGEROID || type == INTERNALOID)
				refuse_handler(function, what, "It returns no rows");
			*returns_row = false;
			name = get_func_name(function);
			desc = CreateTemplateTupleDesc(1);
			TupleDescInitEntry(desc, 1, name, type, -1, 0);
			return desc;
		default:
			refuse_handler(function, what,
						   "It must say which columns it returns: RETURNS TABLE, or SETOF a named type");
			return NULL;
	}
}

HandlerShape
transform_handler_shape(Oid function, const char *what)
{
	bool timer = strcmp(what, "handle_timer") == 0;
	HeapTuple tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
	HandlerShape shape;
	Form_pg_proc form;

	if (!HeapTupleIsValid(tuple))
		ereport(ERROR, (errcode(ERRCODE_UNDEFINED_FUNCTION),
						errmsg("%s of a processor does not exist: function with OID %u", what, function)));
	form = (Form_pg_proc) GETSTRUCT(tuple);
	if (form->prokind != PROKIND_FUNCTION)
		refuse_handler(function, what, "It is no plain function");
	if (form->pronargs != 2 || OidIsValid(form->provariadic))
		refuse_handler(function, what, "It must take two arguments");
	shape.key_type = form->proargtypes.values[0];
	shape.second_type = form->proargtypes.values[1];
	if (IsPolymorphicType(shape.key_type) || IsPolymorphicType(shape.second_type) ||
		get_typtype(shape.key_type) == TYPTYPE_PSEUDO)
		refuse_handler(function, what, "Its arguments must have types of their own, not pseudo-types");
	if (timer && shape.second_type != TIMESTAMPTZOID)
		refuse_handler(function, what, "Its second argument must be a timestamptz, the time of the timer");
	if (!timer && (!type_is_array_domain(shape.second_type) || shape.second_type == RECORDARRAYOID ||
				   shape.second_type == ANYARRAYOID))
		refuse_handler(function, what, "Its second argument must be an array of rows, of a named type");
	ReleaseSysCache(tuple);
	shape.result = handler_result(function, what, &shape.returns_row);
	return shape;
}

void
transform_handler_check_result(Oid function, TupleDesc result, TupleDesc wanted, int ncolumns)
{
	int column = 0;

	for (int i = 0; i < result->natts; i++)
	{
		Form_pg_attribute has = TupleDescAttr(result, i),
						  wants = column < ncolumns ? TupleDescAttr(wanted, column) : NULL;

		if (has->attisdropped)
			continue;
		column++;
		if (wants && !IsBinaryCoercible(has->atttypid, wants->atttypid))
			ereport(ERROR, (errcode(ERRCODE_DATATYPE_MISMATCH),
							errmsg("column %d of the result of transform_with_state, \"%s\", has type %s, but function "
								   "%s returns %s there",
								   column, NameStr(wants->attname), format_type_be(wants->atttypid),
								   format_procedure(function), format_type_be(has->atttypid)),
							errhint("Columns are matched by position: correct the list after AS, or the function.")));
	}
	if (column != ncolumns)
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("the result of transform_with_state is declared with %d columns, but function %s returns %d",
						ncolumns, format_procedure(function), column),
				 errhint("Columns are matched by position: correct the list after AS, or the function.")));
}

/* ---- looking up, once a batch ---- */

static void
handler_resolve(Transform *op, Handler *handler, const char *signature, const char *what)
{
	TupleDesc key = op->base.spec->input[0];
	HandlerShape shape;
	AclResult allowed;

	memset(handler, 0, sizeof(Handler));
	handler->function = processor_function(signature);
	allowed = pg_proc_aclcheck(handler->function, GetUserId(), ACL_EXECUTE);
	if (allowed != ACLCHECK_OK)
		aclcheck_error(allowed, OBJECT_FUNCTION, get_func_name(handler->function));
	shape = transform_handler_shape(handler->function, what);
	if (shape.key_type != TupleDescAttr(key, 0)->atttypid ||
		shape.second_type != (handler == &op->timer ? TIMESTAMPTZOID : op->spec->rows_type))
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("types that function %s takes were made anew while streaming query \"%s\" runs",
							   format_procedure(handler->function), op->base.batch->query_name),
						errhint("Stop the query and start it again.")));
	transform_handler_check_result(handler->function, shape.result, op->base.spec->output,
								   op->base.spec->output->natts - 1);
	handler->result = BlessTupleDesc(shape.result);
	handler->returns_row = shape.returns_row;
	handler->row = MakeSingleTupleTableSlot(handler->result, &TTSOpsHeapTuple);
	handler->stored = MakeSingleTupleTableSlot(handler->result, &TTSOpsMinimalTuple);
	fmgr_info(handler->function, &handler->info);
	handler->call = palloc(SizeForFunctionCallInfo(2));
	InitFunctionCallInfoData(*handler->call, &handler->info, 2,
							 OidIsValid(op->spec->collation)					   ? op->spec->collation
							 : type_is_collatable(TupleDescAttr(key, 0)->atttypid) ? DEFAULT_COLLATION_OID
																				   : InvalidOid,
							 NULL, NULL);
}

void
transform_handlers_resolve(Transform *op)
{
	MemoryContext caller = MemoryContextSwitchTo(op->batch_context);

	handler_resolve(op, &op->input, op->processor->handle_input, "handle_input");
	if (op->processor->handle_timer)
		handler_resolve(op, &op->timer, op->processor->handle_timer, "handle_timer");
	MemoryContextSwitchTo(caller);
}

/* ---- rows out ---- */

static void
emit(Transform *op, Handler *handler, TupleTableSlot *row)
{
	TupleTableSlot *output = op->output;
	int column = 0;

	slot_getallattrs(row);
	ExecClearTuple(output);
	for (int i = 0; i < handler->result->natts; i++)
	{
		if (TupleDescAttr(handler->result, i)->attisdropped)
			continue;
		output->tts_values[column] = row->tts_values[i];
		output->tts_isnull[column++] = row->tts_isnull[i];
	}
	output->tts_values[column] = op->key;
	output->tts_isnull[column] = op->key_null;
	ExecStoreVirtualTuple(output);
	tuplestore_puttupleslot(op->base.out, output);
}

/* One result of a function that returns them one by one. */
static void
emit_datum(Transform *op, Handler *handler, Datum value, bool isnull)
{
	TupleTableSlot *row = handler->row;
	HeapTupleData tuple;

	if (isnull && handler->returns_row)
	{
		if (!handler->info.fn_retset) /* no row at all */
			return;
		ExecStoreAllNullTuple(row);
	}
	else if (handler->returns_row)
	{
		tuple.t_data = DatumGetHeapTupleHeader(value);
		tuple.t_len = HeapTupleHeaderGetDatumLength(tuple.t_data);
		ItemPointerSetInvalid(&tuple.t_self);
		tuple.t_tableOid = InvalidOid;
		ExecStoreHeapTuple(&tuple, row, false);
	}
	else
		ExecStoreHeapTuple(heap_form_tuple(handler->result, &value, &isnull), row, false);
	emit(op, handler, row);
	ExecClearTuple(row);
}

static void
emit_stored(Transform *op, Handler *handler, Tuplestorestate *store)
{
	while (stored_row_next(store, handler->stored))
		emit(op, handler, handler->stored);
	ExecClearTuple(handler->stored);
	tuplestore_end(store);
}

/* ---- the call ---- */

static void
call_begin(Transform *op, KeyRecord *record)
{
	Datum key;
	bool isnull;

	/* Deformed by the operator's own KeyType: the value points into the record. */
	key_deform(op->key_type, record->key, &key, &isnull);
	op->record = record;
	op->key = key;
	op->key_null = isnull;
	op->nest_level = GetCurrentTransactionNestLevel();
	transform_call_state_reset(op);
}

static void
invoke(Transform *op, Handler *handler, ReturnSetInfo *result)
{
	FunctionCallInfo call = handler->call;
	PgStat_FunctionCallUsage usage;

	do
	{
		Datum value;

		CHECK_FOR_INTERRUPTS();
		call->isnull = false;
		result->isDone = ExprSingleResult;
		pgstat_init_function_usage(call, &usage);
		value = FunctionCallInvoke(call);
		pgstat_end_function_usage(&usage, result->isDone != ExprMultipleResult);
		if (result->returnMode == SFRM_Materialize)
			break;
		if (result->isDone == ExprEndResult)
			break;
		emit_datum(op, handler, value, call->isnull);
	} while (result->isDone == ExprMultipleResult);
	if (result->returnMode == SFRM_Materialize && result->setResult)
		emit_stored(op, handler, result->setResult);
}

static void
call_handler(Transform *op, Handler *handler, KeyRecord *record, Datum second)
{
	ReturnSetInfo result = {.type = T_ReturnSetInfo,
							.econtext = op->econtext,
							.expectedDesc = handler->result,
							.allowedModes = SFRM_ValuePerCall | SFRM_Materialize,
							.returnMode = SFRM_ValuePerCall};
	FunctionCallInfo call = handler->call;
	MemoryContext caller = MemoryContextSwitchTo(op->call_context);
	Transform *before = running;

	if (handler->info.fn_strict && op->key_null)
	{
		MemoryContextSwitchTo(caller);
		return;
	}
	call->args[0].value = op->key;
	call->args[0].isnull = op->key_null;
	call->args[1].value = second;
	call->args[1].isnull = false;
	call->resultinfo = (fmNodePtr) &result;
	running = op;
	invoke(op, handler, &result);
	running = before;
	if (op->undo_due)
		transform_undo_apply(op);
	MemoryContextSwitchTo(caller);
}

/* An error anywhere ends the batch: nothing is running any more. */
static void
transaction_ended(XactEvent event, void *arg)
{
	if (event == XACT_EVENT_ABORT || event == XACT_EVENT_COMMIT)
		running = NULL;
}

static void
init_once(void)
{
	static bool done = false;

	if (!done)
		RegisterXactCallback(transaction_ended, NULL);
	done = true;
}

void
transform_call_input(Transform *op, KeyRecord *record, int max_rows)
{
	MemoryContext caller = MemoryContextSwitchTo(op->call_context);

	init_once();
	call_begin(op, record);
	call_handler(op, &op->input, record, transform_rows_take(op, record, max_rows));
	MemoryContextSwitchTo(caller);
	MemoryContextReset(op->call_context);
}

void
transform_call_timer(Transform *op, KeyRecord *record, TimestampTz at)
{
	init_once();
	call_begin(op, record);
	call_handler(op, &op->timer, record, TimestampTzGetDatum(at));
	MemoryContextReset(op->call_context);
}
