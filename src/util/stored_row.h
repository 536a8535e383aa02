/* stored_row.h: rows of a tuplestore, in memory or on disk. */
#ifndef STREAM_UTIL_STORED_ROW_H
#define STREAM_UTIL_STORED_ROW_H

#include "postgres.h"
#include "executor/tuptable.h"
#include "utils/tuplestore.h"

/*
 * The next row, into the slot. What comes from disk is allocated, and let go of when the next one comes: it must live as long as the slot, not in a context
 * for single rows, which is empty by then.
 */
static inline bool
stored_row_next(Tuplestorestate *store, TupleTableSlot *slot)
{
	MemoryContext old = MemoryContextSwitchTo(slot->tts_mcxt);
	bool found = tuplestore_gettupleslot(store, true, false, slot);

	MemoryContextSwitchTo(old);
	return found;
}

#endif
