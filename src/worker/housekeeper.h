/* housekeeper.h: folding and purging beside the batches, in a process that lives as long as that takes. */
#ifndef STREAM_WORKER_HOUSEKEEPER_H
#define STREAM_WORKER_HOUSEKEEPER_H

#include "batch/batch.h"
#include "util/compat.h"

/* After a batch of the query that this worker runs: does small work at once, lets a process of its own do the big, and learns what became of it. */
extern void housekeeper_look(QueryRuntime *rt, Oid owner);
/* The worker leaves: what is half done is not wanted, and must not keep anybody from the database. */
extern void housekeeper_stop(void);

extern PGDLLEXPORT void stream_housekeeper_main(Datum arg) pg_attribute_noreturn();

#endif
