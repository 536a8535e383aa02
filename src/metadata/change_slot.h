/*
 * change_slot.h: the replication slots that `changes` sources read by, one per query and source, and the rows such a source begins with.
 * A slot is no row: it is made and dropped at once. So it is dropped only just before a transaction commits that forgot its row.
 */
#ifndef STREAM_METADATA_CHANGE_SLOT_H
#define STREAM_METADATA_CHANGE_SLOT_H

#include "postgres.h"
#include "access/xlogdefs.h"
#include "nodes/pg_list.h"
#include "utils/jsonb.h"

/* Columns of stream.change_row. */
enum
{
	ROW_QUERY, ROW_SOURCE, ROW_N, ROW_DATA, ROW_COLUMNS
};

typedef struct ChangeSlot
{
	int64 query_id;
	char *source;
	char *slot;			   /* name of the replication slot */
	XLogRecPtr start;	   /* changes of transactions that commit behind this come */
	int64 rows;			   /* rows that were there, kept in stream.change_row until they are read */
	char *seen;			   /* the pg_snapshot they were read under: what it sees is no change; NULL: none were read */
	XLogRecPtr seen_until; /* whoever commits behind this was not seen */
} ChangeSlot;

extern char *change_slot_name(int64 query_id, Oid source);
extern ChangeSlot *change_slot_get(int64 query_id, const char *source); /* in CurrentMemoryContext; NULL: there is none */
extern void change_slot_add(const ChangeSlot *slot);
/* What is kept for the query goes; its slots with the commit. */
extern void change_slots_forget(int64 query_id);
/* The same for sources that are not among these (char *): those it found. */
extern List *change_slots_keep(int64 query_id, List *sources);
extern void change_slots_gone(void); /* the extension is about to be dropped, and the table of slots with it */
/* The slot of this database by that name: a copy of a database names those of the other. */
extern struct ReplicationSlot *change_slot_find(const char *name);
/* Drops a replication slot now, if there is one. */
extern void change_slot_drop(const char *slot);

extern void change_row_add(const ChangeSlot *slot, int64 n, Jsonb *row);
extern int64 change_rows_delete(int64 query_id, const char *source);

#endif
