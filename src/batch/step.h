/* step.h: inside batch/: the steps of a batch that more than one kind of batch takes. */
#ifndef STREAM_BATCH_STEP_H
#define STREAM_BATCH_STEP_H

#include "batch/batch.h"
#include "batch/progress.h"

/* ---- next.c ---- */

/* The next batch, from where the logs are: ranges, watermarks, time. False: there is nothing to do. Inside a transaction, in CurrentMemoryContext. */
extern bool batch_plan(QueryRuntime *rt, OffsetEntry *entry);
extern Position *position_get(Jsonb *positions, const char *source);

/* ---- execute.c ---- */

/* Runs run->offsets' ranges into the sink; run->info is filled. Inside the batch's transaction. */
extern void batch_execute(QueryRuntime *rt, BatchRun *run);

#endif
