/* clock.h: the one place time comes from, so that tests can set it (setting stream_ext.test_clock of test builds, -DSTREAM_FAILPOINTS). */
#ifndef STREAM_UTIL_CLOCK_H
#define STREAM_UTIL_CLOCK_H

#include "postgres.h"
#include "datatype/timestamp.h"

#ifdef STREAM_FAILPOINTS
extern void clock_define_settings(void);
#endif
extern TimestampTz clock_now(void);	 /* wall clock, microseconds since 2000-01-01 UTC; may step back */
extern int64 clock_monotonic_us(void); /* for durations and timers; never steps back */

#endif
