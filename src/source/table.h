/*
 * table.h: the table source inside: which rows are in a range (table_position.c), reading them in order (table_scan.c), and the two columns that
 * make both possible (table_stamp.c).
 *
 * Every row of the base table carries stream_xid, the transaction that brought it, and stream_seq, its number in that transaction. A range is a pair of
 * snapshots: rows that the new one sees and the old one does not, whatever order transactions commit in. Order: by transaction, then by number.
 */
#ifndef STREAM_SOURCE_TABLE_H
#define STREAM_SOURCE_TABLE_H

#include "source/source.h"

#include "executor/execdesc.h"
#include "lib/ilist.h"
#include "nodes/params.h"

#define STAMP_XID "stream_xid"
#define STAMP_SEQ "stream_seq"

typedef struct TableOptions
{
	char *table; /* as in the option: schema-qualified after create_source */
	Oid relid;
	bool strict_append;
} TableOptions;

typedef struct TableReader
{
	SourceReader base;
	char *incarnation; /* of the database: where its transaction ids mean something */
	bool prepared;	   /* the stamps have been found in place */
	bool stale;		   /* a relation of a plan has changed */
	List *plans;	   /* TablePlan */
	MemoryContext plan_context;
	dlist_node link;
	MemoryContextCallback release;
} TableReader;

/* Order of rows. */
typedef struct Stamp
{
	uint64 xid;
	int64 seq;
} Stamp;

/* What a pg_snapshot says, in full transaction ids. */
typedef struct Horizon
{
	uint64 xmax;
	int nxip;
	uint64 *xip;
	char *text;
} Horizon;

/* A position: everything `read` sees; while a limit splits a range also what `until` sees, up to and including `last`. */
typedef struct TablePosition
{
	Horizon *read; /* NULL: the very start, nothing is read */
	Horizon *until;
	Stamp last;
} TablePosition;

/* Rows that `high` sees and `low` does not, behind `after` and up to `upto`. */
typedef struct TablePiece
{
	Horizon *low, *high;
	Stamp after, upto;
} TablePiece;

extern const Stamp STAMP_FIRST, STAMP_LAST;

/* ---- table.c ---- */
extern char *table_columns(Oid relid); /* as a column list */
extern Oid table_named(const char *name, List *options);
extern Oid table_of_def(SourceDef *def);
extern void table_check_column(SourceDef *def, Oid relid, Form_pg_attribute att);

/* ---- table_position.c ---- */
extern TablePosition position_read(TableReader *reader, Position *position);
extern Position *position_make(TableReader *reader, Horizon *read, Horizon *until, const Stamp *last);
extern Horizon *horizon_now(void); /* of the active snapshot */
extern Horizon *horizon_from_text(const char *text);
/* The range between two positions: one piece, or two when a split range is finished and a new one begun. List of TablePiece. */
extern List *position_pieces(TablePosition from, TablePosition to);

/* ---- table_scan.c ---- */
typedef struct TableScan TableScan;

/* What a scan delivers. */
typedef enum TableContent
{
	TABLE_COLUMNS, /* of the source; needed: attribute numbers, NULL: all */
	TABLE_STAMPS,
	TABLE_SIZES	   /* stamps and the row's bytes */
} TableContent;

extern TableScan *table_scan_begin(TableReader *reader, List *pieces, Bitmapset *needed, TableContent content);
extern TableScan *table_scan_begin_all(TableReader *reader, Bitmapset *needed); /* all rows there are now, in no order */
extern bool table_scan_row(TableScan *scan, TupleTableSlot *slot);				/* values of the needed columns, in attribute order; NULL elsewhere */
extern uint64 table_scan_rows(TableScan *scan);								/* how many came before the last one */
extern bool table_scan_stamp(TableScan *scan, Stamp *stamp, int64 *bytes);
extern void table_scan_rewind(TableScan *scan);
extern void table_scan_end(TableScan *scan);
extern void table_reader_watch(TableReader *reader); /* plans are dropped when a relation changes */

/* ---- table_stamp.c ---- */
extern bool table_is_stamped(Oid relid);
extern void table_add_stamps(Oid relid);
extern char *table_full_name(Oid relid);
extern Oid table_by_name(const char *name, bool missing_ok); /* without looking at privileges: the source's owner has them or not */
extern Oid table_of_source(Oid source, const char *name); /* by name, or where the table has been renamed by dependency */

#endif
