/*
 * change.h: the changes source inside: what happened to the rows of a table of this database, by logical decoding.
 *
 *   change.c         options, columns, positions in the log, batches
 *   change_start.c   a query begins: its replication slot, and the rows that are there
 *   change_decode.c  WAL → rows: our output plugin (change_plugin.c), run inside the reader's own process
 *   change_scan.c    rows of a range
 *   change_buffer.c  decoded rows on their way to batches and scans
 *
 * Path: WAL → decoder → buffer → the batch's scan; the slot moves on when the batch has committed. A position names a place in the order of commits, so
 * whatever is lost on the way (the buffer, the slot's own memory) is decoded again. Danger: while decoding, the catalogs are those of the past.
 */
#ifndef STREAM_SOURCE_CHANGE_H
#define STREAM_SOURCE_CHANGE_H

#include "source/table.h"

#include "access/xlogdefs.h"
#include "metadata/change_slot.h"
#include "util/heap.h"
#include "utils/tuplestore.h"

/* What a column of the source holds. */
typedef enum ChangeColumn
{
	CHANGE_TABLE_COLUMN,
	CHANGE_OP,		  /* text: c, u, d, t; r: a row that was there */
	CHANGE_UNCHANGED, /* text[]: columns whose value the log does not hold */
	CHANGE_LSN,		  /* pg_lsn: end of the commit */
	CHANGE_TIME		  /* timestamptz: of the commit */
} ChangeColumn;

typedef struct ChangeOptions
{
	TableOptions table; /* first: the rows that are there are read as the table source does */
	char *op_column;
	char *snapshot;		/* initial, never */
	ChangeColumn *columns; /* per attribute */
	AttrNumber unchanged;  /* the column of that name, 0: not declared */
} ChangeOptions;

/*
 * Read so far: all transactions whose commit ends before lsn, and of the one that ends there the first `row` rows (CHANGE_ALL: all). lsn 0: the first
 * `row` of the rows that were there.
 */
typedef struct ChangePosition
{
	XLogRecPtr lsn;
	int64 row;
} ChangePosition;

#define CHANGE_ALL PG_INT64_MAX

/* Columns of a buffered row before the source's own. */
enum
{
	BUFFER_LSN,	  /* int8 */
	BUFFER_ROW,	  /* int8, in its transaction: 1, 2, … */
	BUFFER_ERROR, /* text: why it cannot be used; NULL: it can */
	BUFFER_OWN
};

typedef struct ChangeBuffer
{
	MemoryContext context; /* of the store */
	Tuplestorestate *store; /* NULL: nothing is buffered */
	TupleDesc desc;
	TupleTableSlot *slot;	/* for planning */
	ChangePosition begin;	/* the range to be scanned starts behind it; so does read pointer POINTER_BEGIN */
	ChangePosition next;	/* the next range to be planned; POINTER_NEXT */
	int64 rows, taken;		/* in the store; before POINTER_NEXT */
	XLogRecPtr last;		/* transaction of the last row in the store */
	XLogRecPtr decoded;		/* WAL up to here is in the store */
	bool *busy;				/* read pointers of scans */
	int pointers;
	MemoryContextCallback release;
} ChangeBuffer;

typedef struct ChangeReader
{
	TableReader table;
	ChangeSlot *slot; /* of query and source; NULL: not looked up yet */
	Horizon *seen;	  /* transactions that are no changes */
	ChangeBuffer buffer;
	XLogRecPtr acknowledged; /* the slot is there; 0: not known */
	XLogRecPtr idle_at;		 /* position of a trigger that found nothing */
	LocalTransactionId idle_in; /* and its transaction */
	LocalTransactionId rows_deleted_in; /* the transaction that deleted those that were there: they are read */
	bool rows_deleted;		 /* and they are gone for good */
} ChangeReader;

/* ---- change.c ---- */
extern int change_position_compare(ChangePosition a, ChangePosition b);
extern Position *change_position_make(ChangePosition position);

extern ChangePosition change_position_read(Position *position);
extern void change_slot_know(ChangeReader *reader); /* what the query keeps of this source: made when it began */

/* ---- change_scan.c ---- */
extern HeapScan *change_rows_scan(ChangeReader *reader, int64 from); /* rows that were there, behind number `from` */
extern void change_scan_begin(SourceScan *scan);
extern bool change_scan_next(SourceScan *scan, TupleTableSlot *slot);
extern void change_scan_rewind(SourceScan *scan);
extern void change_scan_end(SourceScan *scan);

/* ---- change_start.c ---- */
extern void change_check_table(SourceDef *def); /* can its changes be read, and in full? ereport */
extern void change_check_readable(SourceDef *def); /* may the source's owner read them? */
extern void change_check_server(SourceDef *def);
extern void change_arrive(SourceReader *reader);
extern Position *change_initial(SourceReader *reader);

/* ---- change_decode.c ---- */
/*
 * Appends the rows behind `from` to the buffer: of WAL up to `upto`, or less once there are `enough` (a transaction always whole).
 */
extern void change_decode(ChangeReader *reader, ChangePosition from, XLogRecPtr upto, int64 enough);
extern XLogRecPtr change_slot_create(const char *name); /* where its changes start */
extern void change_slot_confirm(ChangeReader *reader, XLogRecPtr lsn);

/* ---- change_buffer.c ---- */
extern void change_buffer_init(ChangeReader *reader);
extern void change_buffer_reset(ChangeReader *reader, ChangePosition at);
extern void change_buffer_append(ChangeReader *reader, Datum *values, bool *nulls);
/* The next row by a read pointer, into a slot for minimal tuples of buffer.desc; false at the end. */
extern bool change_buffer_fetch(ChangeReader *reader, int pointer, TupleTableSlot *slot);
extern ChangePosition change_buffer_position(TupleTableSlot *slot);
extern void change_buffer_skip(ChangeReader *reader, int pointer, int64 rows);
extern void change_buffer_take_upto(ChangeReader *reader, ChangePosition to); /* the range is given: POINTER_NEXT goes behind it */
extern void change_buffer_copy(ChangeReader *reader, int from, int to);
extern int change_buffer_pointer(ChangeReader *reader); /* for a scan, at `begin` */
extern void change_buffer_release(ChangeReader *reader, int pointer);

enum
{
	POINTER_REST, /* stays at the start: the active one while rows are appended */
	POINTER_NEXT,
	POINTER_BEGIN,
	POINTER_PEEK,
	POINTERS
};

#endif
