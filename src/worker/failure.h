/* failure.h: what an error means for a query: try again, how soon, and what the log says about it. */
#ifndef STREAM_WORKER_FAILURE_H
#define STREAM_WORKER_FAILURE_H

#include "postgres.h"

/* Causes that pass by themselves: retried for ever, never counted against max_retries. */
extern bool failure_is_transient(int sqlstate);
/* Microseconds before the attempt after `failures` failures in a row: 100 ms doubling up to 60 s, ± a quarter by chance. */
extern int64 failure_delay_us(int failures);
/* After a worker that ended without a report: the first time the same, then 1 s doubling up to 5 minutes. */
extern int64 failure_crash_delay_us(int failures);

/* Message, detail, hint and context as one text; failure_split finds the message again. */
extern char *failure_text(const ErrorData *error);
extern char *failure_message(const char *text);
extern char *failure_rest(const char *text); /* NULL: message only */

/* At most ten lines a minute per process: repeats are counted instead. final: always said. */
extern void failure_log(const char *query_name, const ErrorData *error, int failures, int64 delay_us, bool final);

#endif
