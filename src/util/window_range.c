/*
 * window_range.c: which windows cover an instant, and the range a window is: header, lower, upper, flags, as range_serialize lays out two finite timestamps.
 * A row passes through here once per window, so the range type's own functions and their caches stay out of it.
 */
#include "util/window_range.h"

#include "common/int.h"
#include "util/compat.h"
#include "utils/fmgrprotos.h"
#include "utils/rangetypes.h"
#include "utils/timestamp.h"

#define WINDOW_SIZE (sizeof(RangeType) + 2 * sizeof(int64) + 1)

/* How far at lies behind the last multiple of size counted from origin; phase: origin % size. Remainders first: the difference of two instants may overflow. */
static bool
distance_behind(int64 at, int64 size, int64 phase, int64 *rest)
{
	if (pg_sub_s64_overflow(at % size, phase, rest))
		return false;
	if (*rest < 0)
		*rest += size;
	if (*rest < 0)
		*rest += size;
	if (*rest >= size)
		*rest -= size;
	return true;
}

static bool
window_find(int64 at, int64 size, int64 origin, int64 phase, int64 *start, int64 *end)
{
	int64 behind;

	return !TIMESTAMP_NOT_FINITE(at) && !TIMESTAMP_NOT_FINITE(origin) && distance_behind(at, size, phase, &behind) &&
		!pg_sub_s64_overflow(at, behind, start) && !pg_add_s64_overflow(*start, size, end) &&
		IS_VALID_TIMESTAMP(*start) && IS_VALID_TIMESTAMP(*end);
}

/* Rows come in bunches, and ask twice: for their window and for its end. The window found last is remembered. */
bool
window_bounds(int64 at, int64 size, int64 origin, int64 *start, int64 *end)
{
	static int64 last_size = 0, last_origin, phase, last_start, last_end;

	if (size != last_size || origin != last_origin)
	{
		phase = origin % size;
		last_size = size;
		last_origin = origin;
		last_start = last_end = 0;
	}
	if ((at < last_start || at >= last_end) && !window_find(at, size, origin, phase, &last_start, &last_end))
	{
		last_start = last_end = 0;
		return false;
	}
	*start = last_start;
	*end = last_end;
	return true;
}

bool
window_hops(int64 at, int64 size, int64 slide, int64 origin, int64 *first, int64 *last)
{
	int64 behind, older, end;

	if (!window_bounds(at, slide, origin, last, &end))
		return false;
	behind = at - *last;
	/* windows that start older slides before the last one still cover the row while older * slide + behind < size */
	older = (size - behind - 1) / slide;
	return !pg_sub_s64_overflow(*last, older * slide, first) && IS_VALID_TIMESTAMP(*first) &&
		!pg_add_s64_overflow(*last, size, &end) && IS_VALID_TIMESTAMP(end);
}

Datum
window_range_make(Oid type, int64 start, int64 end)
{
	char *range = palloc0(WINDOW_SIZE);

	SET_VARSIZE(range, WINDOW_SIZE);
	((RangeType *) range)->rangetypid = type;
	memcpy(range + sizeof(RangeType), &start, sizeof(start));
	memcpy(range + sizeof(RangeType) + sizeof(start), &end, sizeof(end));
	range[WINDOW_SIZE - 1] = RANGE_LB_INC;
	return PointerGetDatum(range);
}

void
window_range_read(Datum range, int64 *start, int64 *end)
{
	struct varlena *bytes = PG_DETOAST_DATUM_PACKED(range);
	const char *bounds = VARDATA_ANY(bytes) + sizeof(Oid);

	Assert(VARSIZE_ANY_EXHDR(bytes) == WINDOW_SIZE - VARHDRSZ);
	memcpy(start, bounds, sizeof(*start));
	memcpy(end, bounds + sizeof(*start), sizeof(*end));
}

bool
window_length(const Interval *length, const char *what, int64 *us)
{
	if (length->month != 0)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("%s must be a fixed length of time, not months or years", what),
						errhint("To group by months, use date_trunc('month', …): it closes by the watermark as well.")));
	return !pg_mul_s64_overflow(length->day, USECS_PER_DAY, us) && !pg_add_s64_overflow(*us, length->time, us) && *us > 0;
}

int64
window_fixed_length(const Interval *length, const char *what)
{
	int64 us;

	if (!window_length(length, what, &us))
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("%s must be positive", what),
						errdetail("It is %s.", DatumGetCString(DirectFunctionCall1(interval_out, IntervalPGetDatum(length))))));
	return us;
}

void
window_check_slide(int64 size, int64 slide)
{
	if (slide > size)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("window slide must not exceed window size"),
						errdetail("Rows between two windows would be lost."),
						errhint("Use stream.tumble, or filter the rows in a WHERE clause.")));
}
