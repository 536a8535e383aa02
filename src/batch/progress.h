/* progress.h: how a batch went, in the shape of Spark's StreamingQueryProgress. */
#ifndef STREAM_BATCH_PROGRESS_H
#define STREAM_BATCH_PROGRESS_H

#include "batch/batch.h"

/* Microseconds spent in the steps of a batch. */
typedef struct BatchDurations
{
	int64 started; /* monotonic */
	int64 latest_offset, wal_commit, query_planning, add_batch;
} BatchDurations;

typedef struct BatchRun
{
	BatchInfo info;
	OffsetEntry offsets;
	List *sources; /* SourceBatch, as plan->sources */
	int64 rows_out;
	char *warning; /* NULL: nothing to be warned of */
	BatchDurations durations;
} BatchRun;

/* Event time ahead of the clock makes honest rows late: said in the batch where it happens. Sets run->warning. */
extern void progress_watch_clock(QueryRuntime *rt, BatchRun *run, const CommitEntry *commit);
/* The warning to the log, once a minute at most. After the commit. */
extern void progress_warn(QueryRuntime *rt, BatchRun *run);
/* Nearly all rows of a source unreadable, or no longer: one line of the log each, and rt->unreadable or rt->readable. After the commit. */
extern void progress_watch_rows(QueryRuntime *rt, BatchRun *run);
extern Jsonb *progress_build(QueryRuntime *rt, BatchRun *run);

#endif
