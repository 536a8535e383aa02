/* clock.h: the one place time comes from, so that tests can set it (setting stream_ext.test_clock). */
#ifndef STREAM_UTIL_CLOCK_H
#define STREAM_UTIL_CLOCK_H

#include "postgres.h"
#include "datatype/timestamp.h"

extern TimestampTz clock_now(void);	 /* wall clock, microseconds since 2000-01-01 UTC; may step back */
extern int64 clock_monotonic_us(void); /* for durations and timers; never steps back */

#endif
