/*
 * undo.h: the past of state that is kept in place: what entries were before each batch, and how many there were after it.
 *
 * An entry of the log is keyed by the bucket's hash (8 bytes) and the key's bytes; removed: there was none. Of several entries of a key in one batch the
 * first tells.
 */
#ifndef STREAM_STATE_UNDO_H
#define STREAM_STATE_UNDO_H

#include "state/changelog.h"
#include "state/rows.h"

/* As of the newest batch up to that one; zeros before the first. */
extern void size_read(const StateId *id, int64 upto_batch, int64 *rows, int64 *bytes);
extern void size_write(const StateId *id, int64 batch_id, int64 rows, int64 bytes);

extern void undo_read_asof(const StateId *id, int64 batch_id, PackedEntryCallback callback, void *arg);
extern void undo_read_changes(const StateId *id, int64 from_batch, int64 to_batch, PackedEntryCallback callback, void *arg);
/* Rows back to what they were after a batch. */
extern void undo_rewind(const StateId *id, int64 batch_id);
/* Forgets what led to batches before that one. */
extern bool undo_purge(const StateId *id, int64 oldest_retained);

#endif
