/*
 * cursor.h: rows of the state tables in the order of their primary keys: query, operator, state, batch, (chunk), data.
 */
#ifndef STREAM_STATE_CURSOR_H
#define STREAM_STATE_CURSOR_H

#include "postgres.h"
#include "access/genam.h"
#include "access/sdir.h"
#include "executor/tuptable.h"
#include "state/changelog.h"
#include "storage/lockdefs.h"
#include "utils/snapshot.h"

/* Columns of all of them; those that have no chunks carry on where the chunk would be. */
enum
{
	COLUMN_QUERY = 1,
	COLUMN_OPERATOR,
	COLUMN_NAME,
	COLUMN_BATCH,
	COLUMN_CHUNK,
	COLUMN_DATA
};

typedef struct ChunkCursor
{
	Relation table, index;
	IndexScanDesc scan;
	TupleTableSlot *slot;
	Snapshot snapshot;
	ScanDirection direction;
} ChunkCursor;

typedef struct CursorKey
{
	int column;
	StrategyNumber strategy;
	Datum value;
} CursorKey;

/* snapshot NULL: the latest. Deleting takes RowExclusiveLock. */
extern ChunkCursor *cursor_begin(const char *table, const CursorKey *keys, int nkeys, ScanDirection direction, LOCKMODE lockmode,
								 Snapshot snapshot);
/* One state's rows of batches from..to, as id->snapshot sees them. */
extern ChunkCursor *cursor_over_batches(const char *table, const StateId *id, int64 from_batch, int64 to_batch,
										ScanDirection direction, LOCKMODE lockmode);
extern bool cursor_next(ChunkCursor *cursor);
extern Datum cursor_column(ChunkCursor *cursor, int column);
extern void cursor_end(ChunkCursor *cursor);

#endif
