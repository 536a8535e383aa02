/*
 * changelog.h: state as it lies in stream.state_change and stream.state_snapshot, entry by entry, without knowing any type.
 *
 * A row is a chunk: header (format, major version), then entries: flags, key length and bytes, expiry if any, value length and
 * bytes. A key's bytes never change while the key lives, so bytes identify it here.
 */
#ifndef STREAM_STATE_CHANGELOG_H
#define STREAM_STATE_CHANGELOG_H

#include "postgres.h"
#include "datatype/timestamp.h"
#include "nodes/pg_list.h"

/* 1, of version 0.1.0: state in place may lie under other hashes (table_store_rehash); all else is as in 2. */
#define STATE_FORMAT 2
#define STATE_FORMAT_OLDEST 1

/* Of the memory provider. */
#define STATE_CHANGE "state_change"
#define STATE_SNAPSHOT "state_snapshot"
/* Of the table provider: what entries were before a batch, and how many there are after it. */
#define STATE_UNDO "state_undo"
#define STATE_SIZE "state_size"

typedef struct StateId
{
	int64 query_id;
	int operator_id;
	const char *state_name;
	struct SnapshotData *snapshot; /* what reading sees; NULL: each look the latest */
} StateId;

typedef struct PackedEntry
{
	bool removed; /* a tombstone: no value, no expiry */
	TimestampTz expires; /* DT_NOEND: never */
	const char *key;
	uint32 key_length;
	const char *value;
	uint32 value_length;
} PackedEntry;

/* ---- writing ---- */
typedef struct ChunkWriter ChunkWriter;

extern ChunkWriter *chunk_writer_begin(const char *table, const StateId *id, int64 batch_id, int first_chunk);
extern void chunk_writer_add(ChunkWriter *writer, const PackedEntry *entry);
/* Returns the number after the last chunk written; *bytes grows by what was written. even_empty: at least one chunk. */
extern int chunk_writer_end(ChunkWriter *writer, bool even_empty, int64 *bytes);

/* ---- reading, oldest first ---- */
typedef struct ChunkScan
{
	int64 batch_id; /* of the entry just read */
	int chunk;
	int64 bytes;	/* read so far */
	/* below: private */
	struct ChunkCursor *cursor;
	void *detoasted; /* the chunk, when it lay out of line */
	const char *at, *end;
} ChunkScan;

/* Batches from..to, both included. */
extern ChunkScan *chunk_scan_begin(const char *table, const StateId *id, int64 from_batch, int64 to_batch);
extern bool chunk_scan_next(ChunkScan *scan, PackedEntry *entry); /* pointers live until the next call */
extern void chunk_scan_end(ChunkScan *scan);

extern int64 chunk_first_batch(const char *table, const StateId *id, int64 from_batch, int64 to_batch); /* -1: none */
extern int64 chunk_last_batch(const char *table, const StateId *id, int64 from_batch, int64 to_batch);
extern int chunk_next_number(const char *table, const StateId *id, int64 batch_id);
extern int64 snapshot_newest(const StateId *id, int64 upto_batch); /* -1: none */
extern int64 chunk_bytes(const char *table, const StateId *id, int64 from_batch, int64 to_batch);
extern int64 chunk_delete(const char *table, const StateId *id, int64 from_batch, int64 to_batch); /* rows */
extern List *state_ids(int64 query_id); /* StateId of everything stored for the query, in order */
extern int64 state_oldest(const StateId *id); /* the lowest batch as of which it can be read */
/* Raises 55000 when state as of batch_id cannot be told any more. */
extern void state_check_retained(const StateId *id, int64 batch_id);

/* ---- fold.c ---- */
typedef void (*PackedEntryCallback)(void *arg, int64 batch_id, const PackedEntry *entry);

/* Is the changelog so much longer than what lives that a snapshot pays? */
extern bool fold_is_due(int64 changed_bytes, int64 live_bytes);

/* What the memory provider wrote. */
extern void changelog_read_asof(const StateId *id, int64 batch_id, PackedEntryCallback callback, void *arg);
extern void changelog_read_changes(const StateId *id, int64 from_batch, int64 to_batch, PackedEntryCallback callback, void *arg);
extern void snapshot_write(const StateId *id, int64 batch_id); /* what state_read_asof tells */

/* ---- history.c: whoever wrote it ---- */

/* Every live entry as of a batch. */
extern void state_read_asof(const StateId *id, int64 batch_id, PackedEntryCallback callback, void *arg);

#endif
