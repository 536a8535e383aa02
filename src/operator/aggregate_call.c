/*
 * aggregate_call.c: from the Aggrefs of a query to transitions and final functions ready to be called.
 * Look-ups happen once per process; EXECUTE is checked every batch, since fmgr calls check nothing.
 */
#include "operator/aggregate.h"

#include "access/htup_details.h"
#include "access/transam.h"
#include "catalog/pg_aggregate.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "optimizer/tlist.h"
#include "parser/parse_agg.h"
#include "parser/parse_coerce.h"
#include "util/compat.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/regproc.h"
#include "utils/syscache.h"

static void
refuse_call(Aggref *aggref, const char *detail, const char *hint)
{
	ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					errmsg("a streaming query cannot use aggregate %s this way", format_procedure(aggref->aggfnoid)),
					errdetail("%s", detail), errhint("%s", hint)));
}

/* A call as nodeAgg.c makes it: the function sees the operator's AggState. */
static FunctionCallInfo
call_create(AggregateOperator *op, FmgrInfo *function, int nargs, Oid collation)
{
	FunctionCallInfo call = palloc0(SizeForFunctionCallInfo(nargs));

	InitFunctionCallInfoData(*call, function, nargs, collation, (Node *) op->aggstate, NULL);
	return call;
}

static FunctionCallInfo
opaque_call_create(AggregateOperator *op, Oid function_oid, int nargs, bool serial)
{
	FmgrInfo *function = palloc0(sizeof(FmgrInfo));
	Expr *expr;

	if (serial)
		build_aggregate_serialfn_expr(function_oid, &expr);
	else
		build_aggregate_deserialfn_expr(function_oid, &expr);
	fmgr_info(function_oid, function);
	fmgr_info_set_expr((Node *) expr, function);
	return call_create(op, function, nargs, InvalidOid);
}

/* ---- transitions ---- */

/* Whether rows can be folded as they come, and the fold be stored. */
static bool
must_keep_inputs(bool merges, Aggref *aggref, Form_pg_aggregate form, Oid transition_type)
{
	if (merges && (aggref->aggdistinct != NIL || !OidIsValid(form->aggcombinefn)))
		return true;
	if (aggref->aggkind != AGGKIND_NORMAL || aggref->aggorder != NIL || form->aggfinalmodify != AGGMODIFY_READ_ONLY)
		return true;
	/* Storable since 16 only: kept as in 15, so that an upgraded server goes on with what is there. */
	if (aggref->aggfnoid == F_ARRAY_AGG_ANYNONARRAY || aggref->aggfnoid == F_ARRAY_AGG_ANYARRAY || aggref->aggfnoid == F_STRING_AGG_TEXT_TEXT ||
		aggref->aggfnoid == F_STRING_AGG_BYTEA_BYTEA)
		return true;
	if (transition_type == INTERNALOID && (!OidIsValid(form->aggserialfn) || !OidIsValid(form->aggdeserialfn)))
		return true;
	/* DISTINCT feeds sorted input: built-in aggregates that can be stored do not mind, others may. */
	return aggref->aggdistinct != NIL && aggref->aggfnoid >= FirstNormalObjectId;
}

bool
aggregate_combines(Aggref *aggref)
{
	HeapTuple aggregate = SearchSysCache1(AGGFNOID, ObjectIdGetDatum(aggref->aggfnoid));
	Form_pg_aggregate form;
	bool result;

	if (!HeapTupleIsValid(aggregate))
		return false;
	form = (Form_pg_aggregate) GETSTRUCT(aggregate);
	result = !must_keep_inputs(true, aggref, form, form->aggtranstype);
	ReleaseSysCache(aggregate);
	return result;
}

static void
transition_prepare_sort(Transition *transition, Aggref *aggref)
{
	List *clauses = aggref->aggdistinct != NIL ? aggref->aggdistinct : aggref->aggorder;
	ListCell *cell;

	if (AGGKIND_IS_ORDERED_SET(aggref->aggkind))
		return; /* they sort by themselves */
	transition->sort_columns = palloc0(sizeof(int) * Max(list_length(clauses), 1));
	transition->sort = palloc0(sizeof(SortSupportData) * Max(list_length(clauses), 1));
	foreach (cell, clauses)
	{
		SortGroupClause *clause = lfirst(cell);
		TargetEntry *target = get_sortgroupclause_tle(clause, aggref->args);
		SortSupport sort = &transition->sort[transition->nsort];

		transition->sort_columns[transition->nsort++] = target->resno - 1;
		if (!OidIsValid(clause->sortop))
			refuse_call(aggref, "The type of a DISTINCT argument cannot be sorted.", "Cast the argument to a type that can be.");
		sort->ssup_cxt = CurrentMemoryContext;
		sort->ssup_collation = exprCollation((Node *) target->expr);
		sort->ssup_nulls_first = clause->nulls_first;
		PrepareSortSupportFromOrderingOp(clause->sortop, sort);
	}
}

static void
transition_prepare_inputs(Transition *transition, Aggref *aggref)
{
	ListCell *cell;
	int i = 0;

	transition->input_codecs = palloc0(sizeof(DatumCodec) * Max(transition->nargs, 1));
	foreach (cell, aggref->args)
	{
		Node *expr = (Node *) ((TargetEntry *) lfirst(cell))->expr;

		codec_init(&transition->input_codecs[i++], exprType(expr), exprTypmod(expr));
	}
	transition_prepare_sort(transition, aggref);
}

static void
transition_prepare_function(AggregateOperator *op, Transition *transition, Aggref *aggref, Oid *types, int ntypes)
{
	Expr *expr;

	build_aggregate_transfn_expr(types, ntypes, list_length(aggref->aggdirectargs), aggref->aggvariadic, transition->type,
								 aggref->inputcollid, transition->function_oid, InvalidOid, &expr, NULL);
	fmgr_info(transition->function_oid, &transition->function);
	fmgr_info_set_expr((Node *) expr, &transition->function);
	transition->call = call_create(op, &transition->function, transition->npassed + 1, aggref->inputcollid);
	if (transition->function.fn_strict && transition->initial_null &&
		(ntypes <= list_length(aggref->aggdirectargs) ||
		 !IsBinaryCoercible(types[list_length(aggref->aggdirectargs)], transition->type)))
		ereport(ERROR, (errcode(ERRCODE_INVALID_FUNCTION_DEFINITION),
						errmsg("aggregate %s needs to have compatible input type and transition type",
							   format_procedure(aggref->aggfnoid))));
}

/* The combine function takes two transition values, of two groups that merge, or the second one as it was read back. */
static void
transition_prepare_combine(AggregateOperator *op, Transition *transition)
{
	Oid types[1] = {transition->type};
	Expr *expr;

	build_aggregate_transfn_expr(types, 1, 0, false, transition->type, transition->aggref->inputcollid, transition->combine_oid, InvalidOid, &expr,
								 NULL);
	fmgr_info(transition->combine_oid, &transition->combine_function);
	fmgr_info_set_expr((Node *) expr, &transition->combine_function);
	transition->combine = call_create(op, &transition->combine_function, 2, transition->aggref->inputcollid);
}

void
aggregate_prepare_combines(AggregateOperator *op)
{
	MemoryContext caller = MemoryContextSwitchTo(op->base.context);

	for (int i = 0; i < op->ntransitions; i++)
	{
		Transition *transition = &op->transitions[i];
		HeapTuple aggregate = SearchSysCache1(AGGFNOID, ObjectIdGetDatum(transition->aggref->aggfnoid));

		if (!HeapTupleIsValid(aggregate))
			ereport(ERROR, (errcode(ERRCODE_UNDEFINED_FUNCTION), errmsg("aggregate %u does not exist any more", transition->aggref->aggfnoid)));
		transition->combine_oid = ((Form_pg_aggregate) GETSTRUCT(aggregate))->aggcombinefn;
		ReleaseSysCache(aggregate);
		transition_prepare_combine(op, transition);
	}
	aggregate_check_permissions(op);
	MemoryContextSwitchTo(caller);
}

static void
transition_prepare_value(AggregateOperator *op, Transition *transition)
{
	get_typlenbyval(transition->type, &transition->length, &transition->by_value);
	if (!transition->initial_null)
	{
		Oid function, param;

		getTypeInputInfo(transition->type, &function, &param);
		transition->initial = OidInputFunctionCall(function, transition->initial_text, param, -1);
	}
	if (transition->keeps_inputs)
		return;
	if (transition->type == INTERNALOID)
	{
		transition->serial = opaque_call_create(op, transition->serial_oid, 1, true);
		transition->deserial = opaque_call_create(op, transition->deserial_oid, 2, false);
	}
	else
		codec_init(&transition->codec, transition->type, -1);
}

/* Filled in so far that it can be compared with others. */
static void
transition_describe(AggregateOperator *op, Transition *transition, AggregateCall *call, HeapTuple aggregate, Oid *types, int ntypes)
{
	Form_pg_aggregate form = (Form_pg_aggregate) GETSTRUCT(aggregate);
	Aggref *aggref = call->aggref;
	Datum initial = SysCacheGetAttr(AGGFNOID, aggregate, Anum_pg_aggregate_agginitval, &transition->initial_null);

	transition->aggref = aggref;
	transition->first_arg = call->first_arg;
	transition->nargs = list_length(aggref->args);
	transition->npassed = AGGKIND_IS_ORDERED_SET(aggref->aggkind) ? transition->nargs : list_length(aggref->aggargtypes);
	transition->filter = call->filter;
	transition->set = -1;
	transition->function_oid = form->aggtransfn;
	transition->type = resolve_aggregate_transtype(aggref->aggfnoid, form->aggtranstype, types, ntypes);
	transition->combine_oid = op->combines || transition->type == INTERNALOID ? form->aggcombinefn : InvalidOid;
	transition->serial_oid = form->aggserialfn;
	transition->deserial_oid = form->aggdeserialfn;
	transition->initial_text = transition->initial_null ? NULL : TextDatumGetCString(initial);
	transition->keeps_inputs = must_keep_inputs(op->merges, aggref, form, transition->type);
}

static bool
transitions_are_same(Transition *a, Transition *b)
{
	return a->function_oid == b->function_oid && a->type == b->type && a->keeps_inputs == b->keeps_inputs &&
		   a->serial_oid == b->serial_oid && a->deserial_oid == b->deserial_oid && a->initial_null == b->initial_null &&
		   (a->initial_null || strcmp(a->initial_text, b->initial_text) == 0) &&
		   a->aggref->aggkind == b->aggref->aggkind && a->aggref->inputcollid == b->aggref->inputcollid &&
		   a->aggref->aggvariadic == b->aggref->aggvariadic && a->aggref->aggstar == b->aggref->aggstar &&
		   equal(a->aggref->args, b->aggref->args) && equal(a->aggref->aggfilter, b->aggref->aggfilter) &&
		   equal(a->aggref->aggorder, b->aggref->aggorder) && equal(a->aggref->aggdistinct, b->aggref->aggdistinct) &&
		   equal(a->aggref->aggargtypes, b->aggref->aggargtypes);
}

/* The index of the transition the call uses; shared where two calls would do the same. */
static int
transition_for_call(AggregateOperator *op, AggregateCall *call, HeapTuple aggregate, Oid *types, int ntypes)
{
	Transition *transition = &op->transitions[op->ntransitions];

	transition_describe(op, transition, call, aggregate, types, ntypes);
	for (int i = 0; i < op->ntransitions; i++)
	{
		if (transitions_are_same(&op->transitions[i], transition))
		{
			op->aggstate->pertrans[i].aggshared = true;
			memset(transition, 0, sizeof(Transition));
			return i;
		}
	}
	transition_prepare_function(op, transition, call->aggref, types, ntypes);
	transition_prepare_value(op, transition);
	if (transition->keeps_inputs)
		transition_prepare_inputs(transition, call->aggref);
	else if (OidIsValid(transition->combine_oid))
		transition_prepare_combine(op, transition);
	if (call->aggref->aggdistinct != NIL && !op->merges)
	{
		op->sets[op->nsets].transition = op->ntransitions;
		transition->set = op->nsets++;
	}
	op->aggstate->pertrans[op->ntransitions].aggref = call->aggref;
	return op->ntransitions++;
}

/* ---- final functions ---- */

static List *
direct_args_prepare(Aggref *aggref)
{
	List *states = NIL;
	ListCell *cell;

	foreach (cell, aggref->aggdirectargs)
	{
		if (contain_var_clause(lfirst(cell)) || contain_volatile_functions(lfirst(cell)))
			refuse_call(aggref, "Its direct arguments depend on the row.", "Use constants as direct arguments.");
		states = lappend(states, ExecInitExpr(expression_planner(copyObject(lfirst(cell))), NULL));
	}
	return states;
}

static void
final_prepare(AggregateOperator *op, Final *final, Aggref *aggref, Form_pg_aggregate form, Oid *types, int ntypes)
{
	Oid transition_type = op->transitions[final->transition].type;
	Expr *expr;

	final->aggref = aggref;
	final->function_oid = form->aggfinalfn;
	final->direct_args = direct_args_prepare(aggref);
	op->aggstate->peragg[final - op->finals].aggref = aggref;
	op->aggstate->peragg[final - op->finals].transno = final->transition;
	if (!OidIsValid(final->function_oid))
		return;
	final->nargs = form->aggfinalextra ? ntypes + 1 : list_length(aggref->aggdirectargs) + 1;
	build_aggregate_finalfn_expr(types, final->nargs, transition_type, aggref->aggtype, aggref->inputcollid,
								 final->function_oid, &expr);
	fmgr_info(final->function_oid, &final->function);
	fmgr_info_set_expr((Node *) expr, &final->function);
	final->call = call_create(op, &final->function, final->nargs, aggref->inputcollid);
}

static void
call_prepare(AggregateOperator *op, AggregateCall *call)
{
	Aggref *aggref = call->aggref;
	Oid types[FUNC_MAX_ARGS];
	int ntypes = get_aggregate_argtypes(aggref, types);
	HeapTuple aggregate = SearchSysCache1(AGGFNOID, ObjectIdGetDatum(aggref->aggfnoid));
	Final *final = &op->finals[op->nfinals];

	if (!HeapTupleIsValid(aggregate))
		ereport(ERROR, (errcode(ERRCODE_UNDEFINED_FUNCTION), errmsg("aggregate with OID %u does not exist", aggref->aggfnoid),
						errhint("It was dropped while the query ran.")));
	final->transition = transition_for_call(op, call, aggregate, types, ntypes);
	final_prepare(op, final, aggref, (Form_pg_aggregate) GETSTRUCT(aggregate), types, ntypes);
	op->nfinals++;
	ReleaseSysCache(aggregate);
}

/* In CurrentMemoryContext, the operator's. */
void
aggregate_prepare_calls(AggregateOperator *op)
{
	int ncalls = Max(list_length(op->spec->calls), 1);
	ListCell *cell;

	op->transitions = palloc0(sizeof(Transition) * ncalls);
	op->finals = palloc0(sizeof(Final) * ncalls);
	op->sets = palloc0(sizeof(DistinctSet) * ncalls);
	op->aggstate->pertrans = palloc0(sizeof(AggStatePerTransData) * ncalls);
	op->aggstate->peragg = palloc0(sizeof(AggStatePerAggData) * ncalls);
	foreach (cell, op->spec->calls)
		call_prepare(op, lfirst(cell));
}

/* ---- permissions ---- */

static void
check_execute(Oid function, Oid role, ObjectType kind)
{
	AclResult result;

	if (!OidIsValid(function))
		return;
	result = pg_proc_aclcheck(function, role, ACL_EXECUTE);
	if (result != ACLCHECK_OK)
		aclcheck_error(result, kind, get_func_name(function));
}

static Oid
function_owner(Oid function)
{
	HeapTuple tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
	Oid owner;

	if (!HeapTupleIsValid(tuple))
		ereport(ERROR, (errcode(ERRCODE_UNDEFINED_FUNCTION), errmsg("aggregate with OID %u does not exist", function),
						errhint("It was dropped while the query ran.")));
	owner = ((Form_pg_proc) GETSTRUCT(tuple))->proowner;
	ReleaseSysCache(tuple);
	return owner;
}

void
aggregate_check_permissions(AggregateOperator *op)
{
	for (int i = 0; i < op->nfinals; i++)
	{
		Final *final = &op->finals[i];
		Transition *transition = &op->transitions[final->transition];
		Oid owner = function_owner(final->aggref->aggfnoid);

		check_execute(final->aggref->aggfnoid, GetUserId(), OBJECT_AGGREGATE);
		check_execute(transition->function_oid, owner, OBJECT_FUNCTION);
		check_execute(final->function_oid, owner, OBJECT_FUNCTION);
		check_execute(transition->combine_oid, owner, OBJECT_FUNCTION);
		check_execute(transition->serial_oid, owner, OBJECT_FUNCTION);
		check_execute(transition->deserial_oid, owner, OBJECT_FUNCTION);
	}
}
