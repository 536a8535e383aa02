/* replay.h: dead letters that were asked to come again. */
#ifndef STREAM_METADATA_REPLAY_H
#define STREAM_METADATA_REPLAY_H

#include "postgres.h"
#include "util/json_build.h"

/*
 * stream.replay_entry. Waiting until a batch takes the letter; then with that batch's number, the letter hidden, until the batch is too old to come again: a
 * rewind needs both. All of it in the transactions of those batches.
 */
extern bool replay_add(int64 query_id, int64 letter_id); /* false: asked for already */
/* Ids of letters, in memory of their own when there are any. */
extern int replay_waiting(int64 query_id, int max, int64 **letter_ids);
extern int replay_taken_by(int64 query_id, int64 batch_id, int64 **letter_ids);
extern bool replay_is_waiting(int64 query_id, int64 letter_id);
extern void replay_take(int64 query_id, int64 letter_id, int64 batch_id);
extern void replay_forget(int64 query_id, int64 letter_id); /* it stays a dead letter */

/* Letters delivered by batches up to this one go for good. PG_INT64_MAX: also what waits is forgotten. */
extern void replay_purge(int64 query_id, int64 upto_batch);
/* What later batches took waits again: their log entries bring it. */
extern void replay_rewind(int64 query_id, int64 batch_id);

/* In an offset entry's conf: what its batch takes. */
extern void replay_ids_write(JsonBuild *conf, const int64 *letter_ids, int n);
extern int replay_ids_read(Jsonb *conf, int64 **letter_ids);

#endif
