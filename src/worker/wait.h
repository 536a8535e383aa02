/* wait.h: how a worker waits for its next trigger: no transaction, no snapshot, no polling. */
#ifndef STREAM_WORKER_WAIT_H
#define STREAM_WORKER_WAIT_H

#include "postgres.h"
#include "batch/batch.h"

/* Sleeps until data, a request or the time comes. timeout_us -1: no time limit. True: some source may have news. */
extern bool wait_for_news(QueryRuntime *rt, int64 timeout_us);
/* Sleeps whatever happens, except for requests to stop and the death of the postmaster. */
extern void wait_for_time(int64 timeout_us);
/* Microseconds until something is due without anybody telling: timers, limits, sources that cannot tell; -1: nothing. */
extern int64 wait_limit(QueryRuntime *rt, int64 last_trigger_mono);
/* Of two waits; -1: for ever. */
extern int64 wait_sooner(int64 a, int64 b);

#endif
