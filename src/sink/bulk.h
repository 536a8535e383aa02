/*
 * bulk.h: rows for a plain table, added many at a time, or put in the place of those with their keys. The statement gives the target's rows instead of inserting them.
 */
#ifndef STREAM_SINK_BULK_H
#define STREAM_SINK_BULK_H

#include "postgres.h"
#include "executor/tuptable.h"
#include "nodes/parsenodes.h"

typedef struct Bulk Bulk;

/* Makes an analysed INSERT … SELECT [ON CONFLICT DO UPDATE] the SELECT of whole rows of its target, in CurrentMemoryContext; NULL, and no change: it is for the executor to insert them. */
extern Bulk *bulk_create(Query *insert);
extern void bulk_begin(Bulk *bulk); /* in memory that ends with the batch */
extern void bulk_receive(Bulk *bulk, TupleTableSlot *slot);
extern void bulk_finish(Bulk *bulk);

#endif
