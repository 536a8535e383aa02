/* memory.h: a store of the memory provider, private to memory*.c. */
#ifndef STREAM_STATE_MEMORY_H
#define STREAM_STATE_MEMORY_H

#include "state/live.h"

typedef struct MemoryStore
{
	LiveStore live;
	struct members_hash *members;
	struct members_iterator *scan;
	int64 changed_bytes; /* changelog since the newest snapshot */
	int64 last_bytes;	 /* of it, the last batch's */
	int64 folding;		 /* of it, what is being folded at present */
	int64 released;		 /* values released since the last repacking */
	int64 puts, check_at; /* when the memory is measured next */
	int64 flushed_batch; /* its next chunk number is next_chunk */
	int next_chunk;
	int64 stale_batch; /* live.stale: to be read again, as of this one */
} MemoryStore;

extern void memory_clear(MemoryStore *store);
/* What the tables say of an entry. */
extern void memory_load_entry(MemoryStore *store, const PackedEntry *packed);
/* Everything, as of a batch. */
extern void memory_load(MemoryStore *store, int64 batch_id);

/* Is there so much of it that keys are worth telling ahead? */
extern bool memory_expects(StateStore *base);
extern void memory_expect(StateStore *base, TupleTableSlot **keys, int n, StateUse use);

extern bool memory_fold_due(MemoryStore *store);
extern void memory_fold_begun(MemoryStore *store);
extern bool memory_fold_ended(MemoryStore *store, int64 last_batch); /* true: it was folded */

#endif
