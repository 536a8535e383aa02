/* attempt.h: every attempt to run a query: recorded before it begins, and how it ended. Not dumped: it is this server's history. */
#ifndef STREAM_METADATA_ATTEMPT_H
#define STREAM_METADATA_ATTEMPT_H

#include "postgres.h"

#include "datatype/timestamp.h"

/*
 * All of them under the run lock. An attempt found open when the next begins was lost: nobody lived to end it.
 * run_id: of the launch, NULL: none.
 */
extern void attempt_begin(int64 query_id, const char *run_id);
/* outcome: stopped, shutdown, finished, failed, lost. sqlstate and error NULL: no failure. A failure without an open attempt is one by itself. */
extern void attempt_end(int64 query_id, const char *outcome, const char *sqlstate, const char *error);
/* The last one is open, and began before that time. */
extern bool attempt_began_before(int64 query_id, TimestampTz at);
extern void attempts_delete(int64 query_id);

#endif
