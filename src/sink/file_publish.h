/*
 * file_publish.h: files of batches: written under a hidden name, seen under their own once the batch has committed.
 *
 *   DIR/.stream-1f3a9c2b-17-0-000000000042.json    written, durable, not committed or not known to be
 *   DIR/stream-1f3a9c2b-17-0-000000000042.json     committed: whole, and there once
 *
 * Where several batches share a file:
 *
 *   DIR/.part-stream-1f3a9c2b-17-0-000000000042                  written, waiting for the others
 *   DIR/.new-stream-1f3a9c2b-17-0-000000000040-000000000049.json  all of them, being written
 *   DIR/stream-1f3a9c2b-17-0-000000000040-000000000049.json      committed; the parts go once it is there
 *
 * Names hold the database, the query, its incarnation and the batch: files of other queries in the same directory are never touched.
 */
#ifndef STREAM_SINK_FILE_PUBLISH_H
#define STREAM_SINK_FILE_PUBLISH_H

#include "postgres.h"
#include "nodes/pg_list.h"

typedef struct FileSeries
{
	const char *directory;	/* as realpath() gives it */
	int64 query_id;
	int incarnation;
} FileSeries;

/* The hidden name of a batch's file; nothing is there. When this transaction ends the file appears, or goes. */
extern char *file_publish_prepare(const FileSeries *series, int64 batch_id, const char *extension);
/* The same for a batch that shares its file with others: it stays hidden when the transaction commits. */
extern char *file_publish_prepare_part(const FileSeries *series, int64 batch_id);
/* Parts of batches up to last_batch, in order, as paths; their first and last batch. */
extern List *file_publish_parts(const FileSeries *series, int64 last_batch, int64 *first, int64 *last);
/* The hidden name of the file they become. When this transaction commits the file appears, and the parts go. */
extern char *file_publish_prepare_whole(const FileSeries *series, int64 first, int64 last, const char *extension, List *parts);
/* The file is complete: makes its hidden name durable. */
extern void file_publish_ready(const FileSeries *series);
/*
 * What attempts that died have left: files of batches up to last_batch appear, files of later ones go, hidden or not.
 */
extern void file_publish_recover(const FileSeries *series, int64 last_batch);
/* Has a rename failed since the last recovery? */
extern bool file_publish_is_behind(void);
/*
 * When this transaction commits, files of batches from first_batch to last_batch go; visible: also those that have appeared. A file that other batches
 * share is an error: 55000.
 */
extern void file_publish_remove(const FileSeries *series, int64 first_batch, int64 last_batch, bool visible);

#endif
