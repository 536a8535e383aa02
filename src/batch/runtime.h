/* runtime.h: inside batch/: transactions and the parts of a QueryRuntime. */
#ifndef STREAM_BATCH_RUNTIME_H
#define STREAM_BATCH_RUNTIME_H

#include "batch/batch.h"

/* A transaction with settings pinned and the query locked, an active snapshot pushed. */
extern void runtime_begin(QueryRuntime *rt);
extern void runtime_commit(QueryRuntime *rt);

/* Inside such a transaction: the plan holds, its relations are locked, operators have their state. */
extern void runtime_prepare(QueryRuntime *rt);
/* Where the logs are; read again when not known, and always in the foreground, where another session may have run batches in between. */
extern void runtime_read_logs(QueryRuntime *rt);

/* Ends tasks that had nothing to do for a while; the next batch that wants some starts others. */
extern void runtime_rest_tasks(QueryRuntime *rt);

#endif
