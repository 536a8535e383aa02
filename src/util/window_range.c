/*
 * window_range.c: the range a window is: header, lower, upper, flags, as range_serialize lays out two finite timestamps.
 * A row passes through here once per window, so the range type's own functions and their caches stay out of it.
 */
#include "util/window_range.h"

#include "common/int.h"
#include "util/compat.h"
#include "utils/fmgrprotos.h"
#include "utils/rangetypes.h"
#include "utils/timestamp.h"

#define WINDOW_SIZE (sizeof(RangeType) + 2 * sizeof(int64) + 1)

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
