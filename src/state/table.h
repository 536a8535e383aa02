/* table.h: what the rest of state/ may ask of a store of the table provider. */
#ifndef STREAM_STATE_TABLE_H
#define STREAM_STATE_TABLE_H

#include "state/rows.h"
#include "state/store.h"

/* Fills an empty store with what the memory provider saved, as of its last batch. */
extern void table_store_import(StateStore *store, int64 batch_id);

/* Bytes in the undo log that a purge would go through one day; and: it does. */
extern int64 table_store_purge_work(StateStore *store);
extern void table_store_purging(StateStore *store);

#endif
