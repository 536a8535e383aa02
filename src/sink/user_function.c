/*
 * user_function.c: what the function sinks have in common: from signature text to a function that may be called.
 */
#include "sink/user_function.h"

#include "access/htup_details.h"
#include "catalog/pg_proc.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "util/compat.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/regproc.h"
#include "utils/syscache.h"

Oid
user_function_find(SinkDef *def)
{
	return DatumGetObjectId(DirectFunctionCall1(regprocedurein, CStringGetDatum(def->target)));
}

static HeapTuple
function_tuple(Oid function)
{
	HeapTuple tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));

	if (!HeapTupleIsValid(tuple))
		ereport(ERROR, (errcode(ERRCODE_UNDEFINED_FUNCTION), errmsg("function with OID %u does not exist", function)));
	return tuple;
}

void
user_function_check(SinkDef *def, Oid function, int nargs)
{
	HeapTuple tuple = function_tuple(function);
	Form_pg_proc form = (Form_pg_proc) GETSTRUCT(tuple);

	if (form->prokind != PROKIND_FUNCTION)
		ereport(ERROR, (errcode(ERRCODE_WRONG_OBJECT_TYPE), errmsg("%s is not a plain function", def->target),
						errdetail("The sink of query \"%s\" calls it with SELECT.", def->query_name)));
	if (form->proretset)
		ereport(ERROR, (errcode(ERRCODE_INVALID_FUNCTION_DEFINITION), errmsg("function %s returns a set", def->target),
						errdetail("The sink of query \"%s\" calls it for what it does, not for rows.", def->query_name), errhint("Let it return void.")));
	if (form->pronargs != nargs || form->proargtypes.values[nargs - 1] != INT8OID || OidIsValid(form->provariadic))
		ereport(ERROR, (errcode(ERRCODE_INVALID_FUNCTION_DEFINITION), errmsg("function %s does not fit the sink of query \"%s\"", def->target, def->query_name),
						nargs == 1 ? errhint("It must be f(batch_id bigint).") : errhint("It must be f(row record or a composite type, batch_id bigint).")));
	ReleaseSysCache(tuple);
	if (pg_proc_aclcheck(function, GetUserId(), ACL_EXECUTE) != ACLCHECK_OK)
		aclcheck_error(ACLCHECK_NO_PRIV, OBJECT_FUNCTION, def->target);
}

Oid
user_function_argument(Oid function, int i)
{
	HeapTuple tuple = function_tuple(function);
	Oid type = ((Form_pg_proc) GETSTRUCT(tuple))->proargtypes.values[i];

	ReleaseSysCache(tuple);
	return type;
}
