/* memory.h: what the rest of state/ may ask of the stores the memory provider has open in this process. */
#ifndef STREAM_STATE_MEMORY_H
#define STREAM_STATE_MEMORY_H

#include "state/changelog.h"
#include "state/store.h"

extern StateStore *memory_store_find(const StateId *id); /* NULL: not open here */
/* A snapshot as of batch_id was written: what changed before no longer waits for folding. */
extern void memory_store_folded(const StateId *id, int64 batch_id);

#endif
