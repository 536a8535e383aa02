/*
 * clock.c: wall and monotonic time.
 * Everything that decides the next batch takes its time from here; durations never use the wall clock.
 */
#include "util/clock.h"

#include <time.h>

#include "utils/fmgrprotos.h"
#include "utils/guc.h"
#include "utils/timestamp.h"

#ifdef STREAM_FAILPOINTS
static char *test_clock = NULL;

void
clock_define_settings(void)
{
	DefineCustomStringVariable("stream_ext.test_clock", "What the time is, for tests.", "A timestamp with its zone; empty: what it is.", &test_clock, "", PGC_SUSET,
							   GUC_NOT_IN_SAMPLE, NULL, NULL, NULL);
}
#endif

TimestampTz
clock_now(void)
{
#ifdef STREAM_FAILPOINTS
	if (test_clock && test_clock[0] != '\0')
		return DatumGetTimestampTz(DirectFunctionCall3(timestamptz_in, CStringGetDatum(test_clock), ObjectIdGetDatum(InvalidOid), Int32GetDatum(-1)));
#endif
	return GetCurrentTimestamp();
}

int64
clock_monotonic_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64) t.tv_sec * 1000000 + t.tv_nsec / 1000;
}
