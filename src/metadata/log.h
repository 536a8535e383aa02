/* log.h: the offset log, the commit log and the progress rows: what each batch was told, that it is done, how it went. */
#ifndef STREAM_METADATA_LOG_H
#define STREAM_METADATA_LOG_H

#include "postgres.h"
#include "datatype/timestamp.h"
#include "utils/jsonb.h"

/* stream.offset_entry. Written before the batch runs; a retry obeys it. */
typedef struct OffsetEntry
{
	int64 batch_id;
	Jsonb *starts;	 /* {source name: position}, from */
	Jsonb *offsets;	 /* {source name: position}, to */
	TimestampTz watermark; /* eviction; DT_NOBEGIN: none, stored as NULL */
	TimestampTz late_watermark;
	TimestampTz batch_time;
	Jsonb *conf;	 /* {"behind": {source: [lanes]}, …} */
} OffsetEntry;

/* stream.commit_entry. In the batch's own transaction. */
typedef struct CommitEntry
{
	int64 batch_id;
	TimestampTz next_watermark;
	Jsonb *watermarks; /* {source: {"watermark": µs, "lanes": {"0": µs}}}: each source's own, for the next batch */
	/* Totals since creation, this batch included. */
	int64 rows_late, rows_bad;
	int64 rows_in, rows_out;
	int64 busy_us;
} CommitEntry;

/* Deep copies in CurrentMemoryContext: entries outlive the batch that made them, they are the start of the next. */
extern void offset_entry_copy(OffsetEntry *copy, const OffsetEntry *entry);
extern void commit_entry_copy(CommitEntry *copy, const CommitEntry *entry);

/* Newest entries; false: none yet. In CurrentMemoryContext. */
extern bool offset_log_last(int64 query_id, OffsetEntry *entry);
extern bool commit_log_last(int64 query_id, CommitEntry *entry);
extern bool offset_log_get(int64 query_id, int64 batch_id, OffsetEntry *entry);

/* A second writer of the same batch is a unique violation (23505). C table access; visible to the next command. */
extern void offset_log_add(int64 query_id, const OffsetEntry *entry);
extern void commit_log_add(int64 query_id, const CommitEntry *entry);
extern void progress_add(int64 query_id, int64 batch_id, Jsonb *progress);

/* Forgets everything (reset, drop), or everything at and below a batch (purge). */
extern void logs_truncate(int64 query_id);
/* Rewind: batches after this one are not done any more; their offset entries stay, so that they come again over the same ranges. */
extern void commits_truncate_after(int64 query_id, int64 batch_id);
extern void logs_purge(int64 query_id, int64 upto_batch);
extern bool logs_purged(int64 query_id, int64 upto_batch); /* nothing of it is left */

#endif
