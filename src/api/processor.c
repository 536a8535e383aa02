/*
 * processor.c: create and drop processors. Everything is checked when it is said: handlers, types, kinds, time mode.
 * EXECUTE is checked here for the creator, and at every batch for the owner of the query that uses the processor.
 */
#include "postgres.h"

#include "catalog/namespace.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "metadata/processor.h"
#include "metadata/query.h"
#include "miscadmin.h"
#include "operator/transform.h"
#include "util/compat.h"
#include "util/heap.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/lsyscache.h"
#include "utils/regproc.h"

PG_FUNCTION_INFO_V1(stream_create_processor);
PG_FUNCTION_INFO_V1(stream_drop_processor);

static char *
name_argument(FunctionCallInfo fcinfo)
{
	char *name;

	if (PG_ARGISNULL(0))
		ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("name of a processor must not be null")));
	name = text_to_cstring(PG_GETARG_TEXT_PP(0));
	if (name[0] == '\0')
		ereport(ERROR, (errcode(ERRCODE_INVALID_NAME), errmsg("name of a processor must not be empty")));
	return name;
}

/* A handler's signature as it is kept; its shape too. */
static char *
handler_argument(FunctionCallInfo fcinfo, int argno, const char *what, HandlerShape *shape)
{
	Oid function = PG_GETARG_OID(argno);
	AclResult allowed;

	*shape = transform_handler_shape(function, what);
	allowed = pg_proc_aclcheck(function, GetUserId(), ACL_EXECUTE);
	if (allowed != ACLCHECK_OK)
		aclcheck_error(allowed, OBJECT_FUNCTION, get_func_name(function));
	return format_procedure_qualified(function);
}

static void
check_pair(Processor *processor, HandlerShape *input, HandlerShape *timer)
{
	if (processor->time_mode == TIME_MODE_NONE)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("processor \"%s\" has a handle_timer but no time_mode", processor->name),
						errhint("Use time_mode processing_time or event_time.")));
	if (input->key_type != timer->key_type)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("handlers of processor \"%s\" take keys of different types", processor->name),
						errdetail("handle_input takes %s, handle_timer takes %s.", format_type_be(input->key_type),
								  format_type_be(timer->key_type))));
}

static void
check_event_time(Processor *processor, TupleDesc result)
{
	for (int i = 0; i < result->natts; i++)
	{
		Form_pg_attribute column = TupleDescAttr(result, i);

		if (column->attisdropped || namestrcmp(&column->attname, processor->event_time) != 0)
			continue;
		if (column->atttypid != TIMESTAMPTZOID && column->atttypid != TIMESTAMPOID)
			ereport(ERROR, (errcode(ERRCODE_DATATYPE_MISMATCH),
							errmsg("event_time column \"%s\" of processor \"%s\" is of type %s", processor->event_time,
								   processor->name, format_type_be(column->atttypid)),
							errhint("Event time is a timestamptz or a timestamp.")));
		return;
	}
	ereport(ERROR, (errcode(ERRCODE_UNDEFINED_COLUMN),
					errmsg("handlers of processor \"%s\" return no column \"%s\" to be event_time", processor->name,
						   processor->event_time)));
}

/* create_processor(name, handle_input, handle_timer, state, time_mode, event_time, if_not_exists) */
Datum
stream_create_processor(PG_FUNCTION_ARGS)
{
	Processor *processor = palloc0(sizeof(Processor));
	HandlerShape input, timer;

	processor->name = name_argument(fcinfo);
	processor->owner_name = GetUserNameFromId(GetUserId(), false);
	if (processor_load(processor->name, true))
	{
		bool skip = !PG_ARGISNULL(6) && PG_GETARG_BOOL(6);

		ereport(skip ? NOTICE : ERROR,
				(errcode(ERRCODE_DUPLICATE_OBJECT),
				 errmsg("processor \"%s\" already exists%s", processor->name, skip ? ", skipping" : "")));
		PG_RETURN_VOID();
	}
	if (PG_ARGISNULL(1))
		ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
						errmsg("handle_input of processor \"%s\" must not be null", processor->name)));
	processor->time_mode = time_mode_parse(PG_ARGISNULL(4) ? "none" : text_to_cstring(PG_GETARG_TEXT_PP(4)));
	processor_declare(processor, PG_ARGISNULL(3) ? DatumGetJsonbP(DirectFunctionCall1(jsonb_in, CStringGetDatum("{}")))
												 : PG_GETARG_JSONB_P(3));
	processor->handle_input = handler_argument(fcinfo, 1, "handle_input", &input);
	if (!PG_ARGISNULL(2))
	{
		processor->handle_timer = handler_argument(fcinfo, 2, "handle_timer", &timer);
		check_pair(processor, &input, &timer);
	}
	if (!PG_ARGISNULL(5))
	{
		processor->event_time = text_to_cstring(PG_GETARG_TEXT_PP(5));
		check_event_time(processor, input.result);
	}
	processor_insert(processor);
	PG_RETURN_VOID();
}

/* ---- drop ---- */

/* The name of a query whose operators run the processor: their signatures say so. NULL: none. */
static char *
find_user(const char *name)
{
	HeapScan *scan = heap_scan_begin("query", "query_pkey", 0, NULL, false);
	Datum ids[32];
	bool nulls[32];
	char *result = NULL;

	while (result == NULL && heap_scan_next(scan, ids, nulls) != NULL)
	{
		StreamQuery *query = query_load_by_id(DatumGetInt64(ids[0]), true); /* NULL: dropped meanwhile */
		int n = query && query->signature ? JB_ROOT_COUNT(query->signature) : 0;

		for (int i = 0; i < n; i++)
		{
			JsonbValue *op = getIthJsonbValueFromContainer(&query->signature->root, i), used;

			if (op->type == jbvBinary &&
				getKeyJsonValueFromContainer(op->val.binary.data, "processor", strlen("processor"), &used) &&
				used.type == jbvString && strlen(name) == used.val.string.len &&
				memcmp(name, used.val.string.val, used.val.string.len) == 0)
				result = query->name;
		}
	}
	heap_scan_end(scan);
	return result;
}

/* drop_processor(name, if_exists) */
Datum
stream_drop_processor(PG_FUNCTION_ARGS)
{
	char *name = name_argument(fcinfo), *user;
	bool missing_ok = !PG_ARGISNULL(1) && PG_GETARG_BOOL(1);
	Processor *processor = processor_load(name, missing_ok);

	if (processor == NULL)
	{
		ereport(NOTICE, (errmsg("processor \"%s\" does not exist, skipping", name)));
		PG_RETURN_VOID();
	}
	if (!has_privs_of_role(GetUserId(), get_role_oid(processor->owner_name, true)) && !superuser())
		ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE), errmsg("must be owner of processor \"%s\"", name)));
	user = find_user(name);
	if (user)
		ereport(ERROR, (errcode(ERRCODE_DEPENDENT_OBJECTS_STILL_EXIST),
						errmsg("cannot drop processor \"%s\" because streaming query \"%s\" uses it", name, user),
						errhint("Drop the query first, or give it another processor with stream.alter_query.")));
	(void) processor_delete(name);
	PG_RETURN_VOID();
}
