/* watermark.h: how far event time has come: per lane, per source, per query. */
#ifndef STREAM_BATCH_WATERMARK_H
#define STREAM_BATCH_WATERMARK_H

#include "postgres.h"
#include "metadata/log.h"
#include "metadata/query.h"
#include "nodes/pg_list.h"

/*
 * The commit entry's watermarks after a batch: from those before, what its sources observed (List of SourceBatch) and which lanes still have
 * unread data ({source: [lane, …]}). A pure function of its arguments: a restart changes nothing.
 */
extern void watermark_advance(const QueryOptions *options, List *batches, Jsonb *behind, const CommitEntry *before, TimestampTz batch_time,
							  CommitEntry *after);

/*
 * When, if no row comes, a source of these (SourceReader) will have been silent for idle_timeout and the watermark would go on without it; DT_NOEND: never.
 * In CurrentMemoryContext.
 */
extern TimestampTz watermark_idle_due(const QueryOptions *options, List *readers, const CommitEntry *commit);

#endif
