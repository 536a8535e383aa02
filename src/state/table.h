/*
 * table.h: a store of the table provider, private to table*.c but for table_store_import.
 * table.c opens, finds and ends batches; table_entry.c holds what is in memory; table_scan.c goes by prefix, expiry and over all; table_write.c writes.
 */
#ifndef STREAM_STATE_TABLE_H
#define STREAM_STATE_TABLE_H

#include "state/live.h"
#include "state/rows.h"
#include "util/compat.h"

typedef struct TableEntry
{
	StateEntry base; /* stored: tid is its row; dirty, removed as usual */
	uint64 hash;
	ItemPointerData tid;
	int64 batch_id; /* that wrote the row */
	TimestampTz row_expires;
	PrefixLink link;
} TableEntry;

typedef struct TableStore
{
	LiveStore live;
	MemoryContext scan_context; /* of the row a scan is at */
	struct members_hash *members;
	ItemPointerData sought_tid;
	int64 changed; /* entries, in this batch */
	int64 calls;
	bool resident; /* all entries are in memory, always */
	bool missed; /* the last get found no row at all under that hash */
	uint64 missed_hash;
	/* of the running batch */
	int64 batch_id;
	StateRows *table; /* NULL: not open */
	LocalTransactionId table_lxid; /* the transaction it is open in: what one that ended without flush had open went with it */
	int number; /* -1: not known, or none yet */
	bool old_hashes; /* its rows may lie under hashes of an older version */
	bool wrote;
	int next_chunk; /* of the undo log; -1: not known */
	ItemPointerData *written; /* rows written in mid-batch */
	int64 nwritten, maxwritten;
	/* expiry order: rows before floor are in memory, or do not exist */
	TimestampTz floor;
	bool expiry_open, peeked, expiry_done;
	StateRow peek;
	/* scans */
	struct members_iterator *scan;
	bool scan_members;
	int64 written_at;
	TableEntry scan_entry;
} TableStore;

/* ---- table.c ---- */

/* Entries can be looked for: read again after an abort, the table open. */
extern TableStore *table_store_ready(StateStore *base);
extern void table_store_open(TableStore *store);
extern void table_store_close(TableStore *store);
/* At every call: now and then measures memory, and lets go of it where it may. */
extern void table_store_call_counted(TableStore *store);

static inline bool
table_store_is_open(TableStore *store)
{
	return store->table != NULL && store->table_lxid == MY_LOCAL_XID;
}

/* ---- table_entry.c ---- */

extern uint64 table_store_hash_key(TableStore *store, const Datum *values, const bool *nulls);
/* The entry in memory of the probe, of a row; NULL: there is none. */
extern TableEntry *table_store_find_probe(TableStore *store, uint64 hash);
extern TableEntry *table_store_find_row(TableStore *store, const StateRow *row);
extern TableEntry *table_store_add(TableStore *store, uint64 hash, MinimalTuple key, const Datum *values, const bool *nulls);
/* A row that is not in memory becomes an entry. key: its key, read already, NULL: not yet. */
extern TableEntry *table_store_load_row(TableStore *store, const StateRow *row, MinimalTuple key);
extern MinimalTuple table_store_row_key(TableStore *store, const StateRow *row, MemoryContext context);
/* The row as an entry that lives until the next one. */
extern StateEntry *table_store_scan_row(TableStore *store, const StateRow *row);
extern void table_store_drop_entry(TableStore *store, TableEntry *entry);
/* All in memory, one after the other. */
extern void table_store_members_start(TableStore *store);
extern TableEntry *table_store_members_next(TableStore *store);
extern void table_store_clear(TableStore *store);

/* ---- table_scan.c ---- */

extern void table_store_scan_prefix(StateStore *base, TupleTableSlot *key);
extern StateEntry *table_store_next_expired(StateStore *base, TimestampTz upto);
extern TimestampTz table_store_first_expiry(StateStore *base);
extern void table_store_scan_start(StateStore *base);
extern StateEntry *table_store_scan_next(StateStore *base);
extern void table_store_scan_changed(StateStore *base);
extern StateEntry *table_store_scan_changed_next(StateStore *base);
/* Where the rows begin in expiry order, before memory is let go of, and exactly, so that a wake-up by time does not come for nothing. */
extern void table_store_floor_settle(TableStore *store);
extern void table_store_floor_find(TableStore *store);

/* ---- table_write.c ---- */

/* Rows and undo log of everything changed. */
extern void table_store_write_dirty(TableStore *store);
/* In mid-batch: writes what changed and lets go of everything. */
extern void table_store_release(TableStore *store);
/* Puts rows of an older version under the hashes of this one. */
extern void table_store_rehash(TableStore *store);
/* Fills an empty store with what the memory provider saved, as of its last batch. */
extern void table_store_import(StateStore *store, int64 batch_id);

#endif
