/*
 * store.h: keyed state of one operator. Operators know nothing else of where state lives.
 *
 * An entry is a key (compared by the types' own equality, NULLs equal) and a value the operator owns in live form; the store
 * asks the operator to serialize it only when a commit writes what changed. Two providers: memory (hash + changelog) and table (rows in place).
 *
 * Life: open → per batch: begin, get/put/remove/expire …, flush (inside the batch's transaction), committed → forget after an abort → close.
 */
#ifndef STREAM_STATE_STORE_H
#define STREAM_STATE_STORE_H

#include "postgres.h"
#include "datatype/timestamp.h"
#include "executor/tuptable.h"
#include "lib/pairingheap.h"
#include "lib/stringinfo.h"
#include "nodes/pg_list.h"

typedef struct StateStore StateStore;

typedef struct StateEntry
{
	MinimalTuple key;	  /* first representative of the key */
	void *value;		  /* live value, the operator's; NULL right after creation */
	TimestampTz expires;  /* DT_NOEND: never */
	uint64 touched;		  /* the operator's: serial of the batch that touched it last, or what it likes */
	/* below: the provider's */
	pairingheap_node order; /* expiry order */
	char *packed;			/* serialized value nobody has asked for since it was loaded; value is NULL then */
	uint32 packed_length;
	uint32 hash;
	uint32 bytes;		  /* last serialized size, key included */
	bool dirty;
	bool stored;		  /* known to the tables */
	bool removed;
} StateEntry;

/* How the operator's live values go to bytes and back. context: where the live value must be allocated. */
typedef struct StateValueOps
{
	void (*serialize)(void *operator_private, StateEntry *entry, StringInfo out);
	void (*deserialize)(void *operator_private, StateEntry *entry, const char *bytes, Size len, MemoryContext context);
	void (*release)(void *operator_private, StateEntry *entry); /* free the live value */
	bool linked; /* live values are pointed to from elsewhere from batch to batch: they may not be packed away; makes the store resident */
} StateValueOps;

typedef struct StateSchema
{
	int64 query_id;
	int operator_id;
	const char *state_name;	 /* 'default', 'left', 'right', a processor's variable */
	TupleDesc keydesc;
	Oid *eq_operators;		 /* per key column */
	Oid *collations;
	int nprefix;			 /* scan_prefix goes by so many leading key columns; 0: never called */
	const StateValueOps *value_ops;
	void *operator_private;
	bool resident;	 /* the operator keeps pointers to entries from batch to batch: all of them stay in memory */
	bool unique;	 /* no key is put twice: a put need not look for it */
	bool releasable; /* the operator keeps no entry longer than until the next call: a provider may write entries and let go of them in mid-batch */
} StateSchema;

/* Keys that may be told ahead in one call. */
#define STATE_EXPECT_MAX 64

/* What they are for. */
typedef enum StateUse
{
	STATE_USE_KEY, /* get, put */
	STATE_USE_NEW, /* put of a key that is not there */
	STATE_USE_PREFIX /* scan_prefix */
} StateUse;

typedef struct StateMetrics
{
	int64 rows;	 /* entries held */
	int64 bytes; /* serialized size of them, key included; entries not yet flushed count by their last size */
	int64 changed; /* entries changed in this batch so far */
} StateMetrics;

typedef struct StateProvider
{
	const char *name; /* 'memory' */
	/* Opens in CurrentMemoryContext, with the state as of the last committed batch (batch_id, -1: nothing yet). */
	StateStore *(*open)(const StateSchema *schema, int64 batch_id);
	void (*begin)(StateStore *store, int64 batch_id); /* this batch comes now, in the current transaction */
	/* Keys are given as a slot, deformed, whose first columns are the key; more columns do no harm. */
	StateEntry *(*get)(StateStore *store, TupleTableSlot *key); /* NULL: absent */
	/* Finds or creates; marks it changed. *created tells. A new entry has value NULL and expires DT_NOEND. */
	StateEntry *(*put)(StateStore *store, TupleTableSlot *key, bool *created);
	/*
	 * Keys told ahead, all at once: what belongs to them is then at hand when they are asked for, one by one. For speed only. expects: is that worth the
	 * trouble at present?
	 */
	bool (*expects)(StateStore *store);
	void (*expect)(StateStore *store, TupleTableSlot **keys, int n, StateUse use);
	void (*changed)(StateStore *store, StateEntry *entry); /* value changed in place after get */
	void (*set_expiry)(StateStore *store, StateEntry *entry, TimestampTz expires);
	/* The same for an entry that would come to no harm with its old one after a restart: it need not be written. */
	void (*postpone)(StateStore *store, StateEntry *entry, TimestampTz expires);
	void (*remove)(StateStore *store, StateEntry *entry); /* gone from get and scan at once; memory freed at flush */
	/* Entries whose keys begin as these; the one given last may be removed. One such scan at a time. */
	void (*scan_prefix)(StateStore *store, TupleTableSlot *key);
	StateEntry *(*scan_prefix_next)(StateStore *store); /* NULL: no more */
	StateEntry *(*next_expired)(StateStore *store, TimestampTz upto); /* an entry with expires <= upto, earliest first, not removed by itself; NULL: none */
	TimestampTz (*first_expiry)(StateStore *store);					  /* DT_NOEND: nothing ever expires */
	/* All entries, in no order. Unless values are linked, an entry is good until the next call. Nothing may change meanwhile. */
	void (*scan_start)(StateStore *store);
	StateEntry *(*scan_next)(StateStore *store);
	/* Those put or changed in this batch and not removed. The same rules. */
	void (*scan_changed)(StateStore *store);
	StateEntry *(*scan_changed_next)(StateStore *store);
	void (*flush)(StateStore *store, int64 batch_id); /* writes what changed as of this batch, in the current transaction */
	void (*committed)(StateStore *store);			  /* that transaction is durable: changed marks are cleared */
	void (*forget)(StateStore *store, int64 batch_id); /* the transaction failed: back to the state as of batch_id */
	MemoryContext (*value_context)(StateStore *store); /* allocate live values here */
	StateMetrics (*metrics)(StateStore *store);
	void (*close)(StateStore *store);
} StateProvider;

struct StateStore
{
	const StateProvider *provider;
	StateSchema schema;
};

extern const StateProvider memory_state;
extern const StateProvider table_state;

/* By the value of the option state_provider. */
extern const StateProvider *state_provider(const char *name);
/* What holds the state of a query at present. */
extern const StateProvider *state_provider_of(int64 query_id);

/* Setting stream_ext.state_memory, kB: what the live state of this process may take; 0: no limit. */
extern int stream_state_memory_kb;

/* Refuses (0A000) key types that cannot be hashed or put into bytes. */
extern void state_check_key(const StateSchema *schema);
/* Makes what a provider needs before the query's first batch. */
extern void state_create(int64 query_id, const StateProvider *provider);
/* Back to the state as of a batch, which must be readable (state_oldest_batch). */
extern void state_rewind(int64 query_id, int64 batch_id);
/* Deletes all state of a query. */
extern void state_delete(int64 query_id);
/*
 * Hands the state of a stopped query, as of its last batch, to another provider. stores: every StateStore of the query, opened with table_state, when
 * that is the new one. History goes.
 */
extern void state_convert(int64 query_id, const StateProvider *provider, List *stores, int64 last_batch);
/*
 * A store of the memory provider, all of whose entries are marked as changed, becomes the state as of its last batch. History goes.
 */
extern void state_replace(StateStore *store, int64 last_batch);

/* ---- reading from outside a batch ---- */

/*
 * A store tells whose state, and how to read it; what it holds itself does not matter. Entries come one by one: each lives until the callback returns and
 * is in no store. 55000: no longer retained.
 */
typedef void (*StateEntryCallback)(void *arg, int64 batch_id, StateEntry *entry);
/* Every live entry as of a batch, in no order. */
extern void state_scan_asof(StateStore *store, int64 batch_id, StateEntryCallback callback, void *arg);
/* Every change of batches from..to, in order; removed: no value. */
extern void state_scan_changes(StateStore *store, int64 from_batch, int64 to_batch, StateEntryCallback callback, void *arg);
/* Rows and bytes as of a batch. */
extern StateMetrics state_measure(StateStore *store, int64 batch_id);
/* The lowest batch as of which this state can be read. */
extern int64 state_oldest_readable(StateStore *store);

/* The lowest batch as of which all state of the query can still be read; 0: any. A rewind below it is impossible. */
extern int64 state_oldest_batch(int64 query_id);
/* Folds the changelogs that have grown into snapshots as of a batch. True: did something. */
extern bool state_fold(int64 query_id, int64 last_batch);
/* Forgets what was needed to read state as of batches before that one. */
extern bool state_purge(int64 query_id, int64 oldest_retained);
/* Is folding worth while? Cheap; from counters the provider keeps. */
extern bool state_fold_due(StateStore *store);
/* How many bytes folding and purging would go through now. */
extern int64 state_fold_work(StateStore *store);
/* Folding began, here or elsewhere: none is due until it ended. last_batch: the one it went by. The latter in a transaction: true: this state was folded. */
extern void state_fold_begun(StateStore *store);
extern bool state_fold_ended(StateStore *store, int64 last_batch);

#endif
