/*
 * trigger.c: when is the next batch due? Pure: times in, time out.
 */
#include "worker/trigger.h"

/* Multiples count from the Unix epoch, as in Spark; a TimestampTz counts from 2000-01-01. */
#define EPOCH_SHIFT ((POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * USECS_PER_DAY)

bool
trigger_is_immediate(const TriggerDef *trigger)
{
	return trigger->kind != TRIGGER_PROCESSING_TIME || trigger->period <= 0;
}

TimestampTz
trigger_next(int64 period, TimestampTz last, TimestampTz now)
{
	TimestampTz next;

	if (last == 0 || period <= 0)
		return now;
	next = last - (last + EPOCH_SHIFT) % period + period;
	if (next > now + period)
		next = now + period;
	return Max(next, now);
}
