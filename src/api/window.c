/*
 * window.c: tumble, hop, session and their kin: event time → the window that holds it.
 * Pure arithmetic on microseconds: a row passes through here once per window, so ranges are built by hand, without the range type's functions.
 * Windows are half-open and instants, not wall clock: a day is 24 hours, and no change of time zone moves a bound (tumble_local is the exception).
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "datatype/timestamp.h"
#include "fmgr.h"
#include "funcapi.h"
#include "operator/transform.h"
#include "util/compat.h"
#include "util/window_range.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/rangetypes.h"
#include "utils/timestamp.h"

PG_FUNCTION_INFO_V1(stream_tumble);
PG_FUNCTION_INFO_V1(stream_tumble_origin);
PG_FUNCTION_INFO_V1(stream_tumble_ts);
PG_FUNCTION_INFO_V1(stream_tumble_origin_ts);
PG_FUNCTION_INFO_V1(stream_window_end);
PG_FUNCTION_INFO_V1(stream_hop);
PG_FUNCTION_INFO_V1(stream_hop_ts);
PG_FUNCTION_INFO_V1(stream_session);
PG_FUNCTION_INFO_V1(stream_window_time);
PG_FUNCTION_INFO_V1(stream_tumble_local);
PG_FUNCTION_INFO_V1(stream_current_watermark);
PG_FUNCTION_INFO_V1(stream_batch_id);
PG_FUNCTION_INFO_V1(stream_batch_time);

static Datum
tumble(FunctionCallInfo fcinfo, Oid type, int64 origin)
{
	int64 start, end;

	if (!window_bounds(PG_GETARG_INT64(0), window_fixed_length(PG_GETARG_INTERVAL_P(1), "window size"), origin, &start, &end))
		PG_RETURN_NULL();
	return window_range_make(type, start, end);
}

Datum
stream_tumble(PG_FUNCTION_ARGS)
{
	return tumble(fcinfo, TSTZRANGEOID, WINDOW_EPOCH);
}

Datum
stream_tumble_origin(PG_FUNCTION_ARGS)
{
	return tumble(fcinfo, TSTZRANGEOID, PG_GETARG_INT64(2));
}

Datum
stream_tumble_ts(PG_FUNCTION_ARGS)
{
	return tumble(fcinfo, TSRANGEOID, WINDOW_EPOCH);
}

Datum
stream_tumble_origin_ts(PG_FUNCTION_ARGS)
{
	return tumble(fcinfo, TSRANGEOID, PG_GETARG_INT64(2));
}

/* upper(tumble(…)) without making the range; timestamp and timestamptz alike. */
Datum
stream_window_end(PG_FUNCTION_ARGS)
{
	int64 start, end;

	if (!window_bounds(PG_GETARG_INT64(0), window_fixed_length(PG_GETARG_INTERVAL_P(1), "window size"),
					   PG_NARGS() > 2 ? PG_GETARG_INT64(2) : WINDOW_EPOCH, &start, &end))
		PG_RETURN_NULL();
	PG_RETURN_INT64(end);
}

typedef struct HopState
{
	int64 start; /* of the next window */
	int64 last;	 /* start of the newest one that covers the row */
	int64 size, slide;
} HopState;

static bool
hop_begin(FunctionCallInfo fcinfo, HopState *hop)
{
	int64 origin = PG_NARGS() > 3 ? PG_GETARG_INT64(3) : WINDOW_EPOCH;

	hop->size = window_fixed_length(PG_GETARG_INTERVAL_P(1), "window size");
	hop->slide = window_fixed_length(PG_GETARG_INTERVAL_P(2), "window slide");
	window_check_slide(hop->size, hop->slide);
	return window_hops(PG_GETARG_INT64(0), hop->size, hop->slide, origin, &hop->start, &hop->last);
}

/* Every window that covers the row, oldest first. */
static Datum
hop(FunctionCallInfo fcinfo, Oid type)
{
	FuncCallContext *call;
	HopState *state;

	if (SRF_IS_FIRSTCALL())
	{
		call = SRF_FIRSTCALL_INIT();
		state = MemoryContextAlloc(call->multi_call_memory_ctx, sizeof(HopState));
		call->user_fctx = hop_begin(fcinfo, state) ? state : NULL;
	}
	call = SRF_PERCALL_SETUP();
	state = call->user_fctx;
	if (state && state->start <= state->last)
	{
		Datum window = window_range_make(type, state->start, state->start + state->size);

		state->start += state->slide;
		SRF_RETURN_NEXT(call, window);
	}
	SRF_RETURN_DONE(call);
}

Datum
stream_hop(PG_FUNCTION_ARGS)
{
	return hop(fcinfo, TSTZRANGEOID);
}

Datum
stream_hop_ts(PG_FUNCTION_ARGS)
{
	return hop(fcinfo, TSRANGEOID);
}

/* A session depends on other rows: only a streaming query's GROUP BY can tell it. */
Datum
stream_session(PG_FUNCTION_ARGS)
{
	ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED), errmsg("stream.session() works only as a GROUP BY key of a streaming query"),
					errhint("Group by stream.session(event time, gap) and at least one other key inside stream.create_query.")));
	PG_RETURN_NULL();
}

/* The last instant of a window: its event time for the next operator. NULL for empty and unbounded ranges. */
Datum
stream_window_time(PG_FUNCTION_ARGS)
{
	RangeType *range = PG_GETARG_RANGE_P(0);
	TypeCacheEntry *typcache = range_get_typcache(fcinfo, RangeTypeGetOid(range));
	RangeBound lower, upper;
	bool empty;

	range_deserialize(typcache, range, &lower, &upper, &empty);
	if (empty || upper.infinite || TIMESTAMP_NOT_FINITE(DatumGetInt64(upper.val)) || !IS_VALID_TIMESTAMP(DatumGetInt64(upper.val) - 1))
		PG_RETURN_NULL();
	PG_RETURN_INT64(DatumGetInt64(upper.val) - 1);
}

static int64
to_local(text *zone, int64 at)
{
	return DatumGetInt64(DirectFunctionCall2(timestamptz_zone, PointerGetDatum(zone), Int64GetDatum(at)));
}

/*
 * The first instant at which clocks in the zone show this local time. Postgres takes the later one where clocks show it twice; a window
 * that starts there would lose the first hour.
 */
static int64
first_instant(text *zone, int64 local)
{
	int64 at = DatumGetInt64(DirectFunctionCall2(timestamp_zone, PointerGetDatum(zone), Int64GetDatum(local)));
	int64 day_before = at - USECS_PER_DAY, earlier;

	if (!IS_VALID_TIMESTAMP(day_before))
		return at;
	earlier = local - (to_local(zone, day_before) - day_before);
	return earlier < at && to_local(zone, earlier) == local ? earlier : at;
}

/* Windows of whole local days: 23 to 25 hours around changes of the clock. */
Datum
stream_tumble_local(PG_FUNCTION_ARGS)
{
	int64 at = PG_GETARG_INT64(0), local_start, local_end, start, end;
	Interval *size = PG_GETARG_INTERVAL_P(1);
	text *zone = PG_GETARG_TEXT_PP(2);
	int64 length = window_fixed_length(size, "window size");

	if (length % USECS_PER_DAY != 0)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("local windows must last whole days"),
						errhint("Use stream.tumble for shorter ones: instants know no time zone.")));
	if (TIMESTAMP_NOT_FINITE(at) || !window_bounds(to_local(zone, at), length, WINDOW_EPOCH, &local_start, &local_end))
		PG_RETURN_NULL();
	start = first_instant(zone, local_start);
	end = first_instant(zone, local_end);
	return window_range_make(TSTZRANGEOID, start, end);
}

static const BatchInfo *
handlers_batch(const char *function)
{
	Transform *op = transform_running();

	if (op == NULL)
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE), errmsg("%s has a value only inside a streaming query", function),
						errhint("Use it in the SELECT given to stream.create_query, or in a handler of a processor.")));
	return op->base.batch;
}

/* plan/ replaces these three by parameters of the batch; being called means that a handler of a processor asks, or that there is no batch. */
Datum
stream_current_watermark(PG_FUNCTION_ARGS)
{
	const BatchInfo *batch = handlers_batch("stream.current_watermark()");

	if (batch->evict_watermark == DT_NOBEGIN)
		PG_RETURN_NULL();
	PG_RETURN_TIMESTAMPTZ(batch->evict_watermark);
}

Datum
stream_batch_id(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64(handlers_batch("stream.batch_id()")->batch_id);
}

Datum
stream_batch_time(PG_FUNCTION_ARGS)
{
	PG_RETURN_TIMESTAMPTZ(handlers_batch("stream.batch_time()")->batch_time);
}
