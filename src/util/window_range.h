/*
 * window_range.h: windows as ranges of two finite timestamps, [start, end), made and read by hand: no range type's functions, no typcache.
 */
#ifndef STREAM_UTIL_WINDOW_RANGE_H
#define STREAM_UTIL_WINDOW_RANGE_H

#include "postgres.h"
#include "datatype/timestamp.h"

/* Midnight of 1970-01-01 in microseconds since 2000-01-01: where windows start counting. */
#define WINDOW_EPOCH (-(int64) (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * USECS_PER_DAY)

/* False if no window covers the instant: it is infinite, or a bound would be out of range. NULL then, as without a time: one such row must not stop a query. */
extern bool window_bounds(int64 at, int64 size, int64 origin, int64 *start, int64 *end);
/* Starts of the oldest and the newest sliding window that cover the instant; the others lie a slide apart. False: none does. */
extern bool window_hops(int64 at, int64 size, int64 slide, int64 origin, int64 *first, int64 *last);

/* [start, end) as tstzrange or tsrange; in CurrentMemoryContext. */
extern Datum window_range_make(Oid type, int64 start, int64 end);
/* The bounds of what window_range_make made, wherever it has been stored since. */
extern void window_range_read(Datum range, int64 *start, int64 *end);

/* An interval in microseconds, days as 24 hours. 22023 when it has months; false, or 22023 too, when it is not positive. `what` names it. */
extern bool window_length(const Interval *length, const char *what, int64 *us);
extern int64 window_fixed_length(const Interval *length, const char *what);
/* 22023 when sliding windows would leave gaps. */
extern void window_check_slide(int64 size, int64 slide);

#endif
