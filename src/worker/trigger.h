/* trigger.h: when is the next batch due? Pure functions of times, so that tests need no clock. */
#ifndef STREAM_WORKER_TRIGGER_H
#define STREAM_WORKER_TRIGGER_H

#include "postgres.h"
#include "datatype/timestamp.h"
#include "metadata/query.h"

/* Woken by data (processing_time(0) and the low-latency kinds), or ticking? */
extern bool trigger_is_immediate(const TriggerDef *trigger);

/*
 * When the trigger after the one that began at `last` fires: the next multiple of the period after `last`, or at once if that is past.
 * Ticks do not queue. A clock that stepped back delays by one period at most. last 0: never fired, at once.
 */
extern TimestampTz trigger_next(int64 period, TimestampTz last, TimestampTz now);

#endif
