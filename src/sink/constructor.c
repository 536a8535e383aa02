/*
 * constructor.c: the functions returning stream.sink and stream.trigger that need more than a ROW().
 * Functions are kept as signature text: regproc columns stop pg_upgrade, and names resolve anew at each start.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "funcapi.h"
#include "utils/builtins.h"
#include "utils/regproc.h"
#include "utils/timestamp.h"

PG_FUNCTION_INFO_V1(stream_to_function);
PG_FUNCTION_INFO_V1(stream_to_each);
PG_FUNCTION_INFO_V1(stream_processing_time);
PG_FUNCTION_INFO_V1(stream_continuous);
PG_FUNCTION_INFO_V1(stream_real_time);

static Datum
composite_make(FunctionCallInfo fcinfo, int natts, Datum *values, bool *nulls)
{
	TupleDesc desc;

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE || desc->natts != natts)
		ereport(ERROR, (errcode(ERRCODE_DATATYPE_MISMATCH), errmsg("function must return a row of %d columns", natts)));
	return HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc), values, nulls));
}

static Datum
function_sink(FunctionCallInfo fcinfo, const char *kind)
{
	Datum values[3];
	bool nulls[3] = {false, false, true};

	if (PG_ARGISNULL(0))
		ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("the function of a %s sink must not be NULL", kind)));
	values[0] = CStringGetTextDatum(kind);
	values[1] = CStringGetTextDatum(format_procedure_qualified(PG_GETARG_OID(0)));
	values[2] = (Datum) 0;
	return composite_make(fcinfo, 3, values, nulls);
}

Datum
stream_to_function(PG_FUNCTION_ARGS)
{
	return function_sink(fcinfo, "function");
}

Datum
stream_to_each(PG_FUNCTION_ARGS)
{
	return function_sink(fcinfo, "each");
}

static int
interval_sign(const Interval *interval)
{
	int128 us = (int128) interval->time + (int128) interval->day * USECS_PER_DAY;

	return us > 0 ? 1 : us < 0 ? -1 : 0;
}

static Datum
periodic_trigger(FunctionCallInfo fcinfo, const char *kind, bool zero_allowed)
{
	Datum values[2];
	bool nulls[2] = {false, false};
	int sign;

	if (PG_ARGISNULL(0))
		ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("the interval of trigger %s must not be NULL", kind)));
	if (PG_GETARG_INTERVAL_P(0)->month != 0)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("the interval of trigger %s must be a fixed length of time, not months or years", kind),
						errhint("A day counts 24 hours: '30 days'.")));
	sign = interval_sign(PG_GETARG_INTERVAL_P(0));
	if (sign < 0 || (sign == 0 && !zero_allowed))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 zero_allowed ? errmsg("the interval of trigger %s must not be negative", kind) : errmsg("the interval of trigger %s must be positive", kind),
				 errdetail("It is \"%s\".", DatumGetCString(DirectFunctionCall1(interval_out, PG_GETARG_DATUM(0))))));
	values[0] = CStringGetTextDatum(kind);
	values[1] = PG_GETARG_DATUM(0);
	return composite_make(fcinfo, 2, values, nulls);
}

Datum
stream_processing_time(PG_FUNCTION_ARGS)
{
	return periodic_trigger(fcinfo, "processing_time", true);
}

Datum
stream_continuous(PG_FUNCTION_ARGS)
{
	return periodic_trigger(fcinfo, "continuous", false);
}

Datum
stream_real_time(PG_FUNCTION_ARGS)
{
	return periodic_trigger(fcinfo, "real_time", false);
}
