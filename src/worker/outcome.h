/* outcome.h: what a worker writes into stream.query_run. Each call is a transaction of its own, under the run lock. */
#ifndef STREAM_WORKER_OUTCOME_H
#define STREAM_WORKER_OUTCOME_H

#include "postgres.h"

/* All return false when the query is not wanted any more: leave. */
extern bool outcome_attempt(int64 query_id); /* about to try: recorded before anything may go wrong */
extern bool outcome_running(int64 query_id, int64 last_batch, bool *had_failures); /* up: status running, event start */
extern bool outcome_succeeded(int64 query_id); /* a trigger went well after failures: they are forgotten */
extern bool outcome_failed(int64 query_id, const ErrorData *error, int64 delay_us, int64 last_batch); /* delay -1: for good */
extern bool outcome_finished(int64 query_id, int64 last_batch);

#endif
