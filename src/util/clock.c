/*
 * clock.c: wall and monotonic time.
 * Everything that decides the next batch takes its time from here; durations never use the wall clock.
 */
#include "util/clock.h"

#include <time.h>

#include "utils/timestamp.h"

TimestampTz
clock_now(void)
{
	return GetCurrentTimestamp();
}

int64
clock_monotonic_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64) t.tv_sec * 1000000 + t.tv_nsec / 1000;
}
