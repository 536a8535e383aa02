/* epoch_log.h: where an open epoch of a low-latency query stands. */
#ifndef STREAM_METADATA_EPOCH_LOG_H
#define STREAM_METADATA_EPOCH_LOG_H

#include "metadata/log.h"

/* stream.epoch_entry: one row per flush, in the flush's own transaction; all of them go when commits/N closes the epoch. */
typedef struct EpochEntry
{
	int64 batch_id;
	int64 flush;			/* 0: the one that opened the epoch */
	Jsonb *starts;			/* of the epoch */
	Jsonb *offsets;			/* where this flush ended */
	TimestampTz opened_at;
	TimestampTz flushed_at; /* batch time of this flush */
	Jsonb *conf;
	CommitEntry so_far;		/* what commits/N would be if the epoch were closed now */
	int ntotals;
	double *totals;			/* counters for the progress of the epoch, see batch/epoch.c */
} EpochEntry;

/* The newest flush; false: no epoch is open. In CurrentMemoryContext. */
extern bool epoch_log_last(int64 query_id, EpochEntry *entry);
extern void epoch_log_add(int64 query_id, const EpochEntry *entry);
extern void epoch_log_delete(int64 query_id);
extern void epoch_entry_copy(EpochEntry *copy, const EpochEntry *entry); /* deep, in CurrentMemoryContext */

#endif
