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

/* SourceBatch per reader for the ranges of run->offsets. */
extern List *batch_sources(QueryRuntime *rt, BatchRun *run);

/* Runs run->offsets' ranges into the sink; run->info is filled. Inside the batch's transaction. */
extern void batch_execute(QueryRuntime *rt, BatchRun *run);

/* ---- batch.c ---- */

/* run->info from run->offsets. */
extern void batch_run_begin(QueryRuntime *rt, BatchRun *run);
/* State into the batch's transaction, and what the commit entry says after it; before: the entry to go on from. */
extern void batch_settle(QueryRuntime *rt, BatchRun *run, const CommitEntry *before, CommitEntry *after);
/* The counters of the commit entry, from the batch's: what came in, went out, and how long it took so far. */
extern void batch_count(BatchRun *run, const CommitEntry *before, CommitEntry *commit);
/* A batch is done: what it was told and left behind is where the next one starts. Still before the commit, undone by runtime_forget. */
extern void batch_advance(QueryRuntime *rt, const OffsetEntry *offsets, const CommitEntry *commit);
/* Commits the transaction, durably where what it explains cannot be undone. */
extern void batch_commit(QueryRuntime *rt);
/* After the commit. */
extern void batch_finished(QueryRuntime *rt, BatchRun *run);

/* ---- epoch.c ---- */

/* Does this query run in epochs here? A low-latency trigger, in a worker. */
extern bool epoch_is_wanted(QueryRuntime *rt);
/* One trigger of such a query, inside a transaction that it commits: a flush, the end of the epoch, both; false: nothing to do. */
extern bool epoch_run(QueryRuntime *rt, BatchRun *run);
/* offsets/N and commits/N for the open epoch, in the present transaction. */
extern void epoch_close(QueryRuntime *rt);
extern TimestampTz epoch_end(QueryRuntime *rt); /* DT_NOEND: none is open */

#endif
