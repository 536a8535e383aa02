/*
 * rows.h: state in place: the rows of stream.state_row_<query id>, without knowing any type.
 *
 * One table per query, so that dropping or resetting a query gives its space back at once. A row is found by its bucket: the number of its state
 * (see stream.state_store) above 48 bits of the key's hash; the key's bytes tell which of several it is. An update changes no indexed column unless the
 * expiry moves, so it stays in its page (HOT).
 */
#ifndef STREAM_STATE_ROWS_H
#define STREAM_STATE_ROWS_H

#include "postgres.h"
#include "datatype/timestamp.h"
#include "storage/itemptr.h"
#include "utils/snapshot.h"

#define BUCKET_BITS 48
#define BUCKET_MASK ((UINT64CONST(1) << BUCKET_BITS) - 1)
#define MAX_STATE_NUMBER INT16_MAX

typedef struct StateRow
{
	ItemPointerData tid;
	uint64 hash; /* the bucket's lower bits */
	int64 batch_id; /* that wrote it */
	TimestampTz expires; /* DT_NOEND: never */
	const char *key;
	uint32 key_length;
	const char *value;
	uint32 value_length;
} StateRow;

typedef struct StateRows StateRows;

/* ---- rows_table.c: the table of a query ---- */
extern char *rows_relation_name(int64 query_id);
extern Oid rows_relation(int64 query_id); /* InvalidOid: there is none, state is the memory provider's */
extern void rows_create(int64 query_id);
extern void rows_drop(int64 query_id); /* with what else there is of its states */

/* ---- its rows ---- */

/*
 * For use within one transaction, whatever subtransactions come and go; in CurrentMemoryContext. number: which state. snapshot: SnapshotSelf for the
 * writer, who then sees its own changes at once.
 */
extern StateRows *rows_open(int64 query_id, int number, Snapshot snapshot);
extern void rows_set_number(StateRows *rows, int number);
extern void rows_close(StateRows *rows);

/* Three ways to read, each at one place at a time; a row's pointers live until the next call of the same. */
extern void rows_seek(StateRows *rows, uint64 low_hash, uint64 high_hash);
extern bool rows_seek_next(StateRows *rows, StateRow *row);
extern void rows_expiry_seek(StateRows *rows, TimestampTz from); /* by expiry, earliest first; those that never expire are not among them */
extern bool rows_expiry_next(StateRows *rows, StateRow *row);
extern void rows_scan(StateRows *rows); /* all, in no order */
extern bool rows_scan_next(StateRows *rows, StateRow *row);
/* That very row, if it is still there. */
extern bool rows_fetch(StateRows *rows, ItemPointer tid, StateRow *row);

/* row->tid is set to where it lies now. None of these may be called twice for a row without a CommandCounterIncrement in between. */
extern void rows_insert(StateRows *rows, StateRow *row);
extern void rows_update(StateRows *rows, StateRow *row, bool same_expiry);
extern void rows_delete(StateRows *rows, ItemPointer tid);

/* ---- numbers of states ---- */
extern int state_number(int64 query_id, int operator_id, const char *state_name); /* -1: none yet. 55000: written by another version */
extern int state_number_format(int64 query_id, int operator_id, const char *state_name); /* STATE_FORMAT of its rows; of state there is */
extern void state_number_renew(int64 query_id, int operator_id, const char *state_name); /* they are in the present one now */
extern int state_number_assign(int64 query_id, int operator_id, const char *state_name);

#endif
