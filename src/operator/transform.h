/*
 * transform.h: the parts of the transform_with_state operator, and what the SQL functions of the handlers (api/state_function.c) see of it.
 *
 * Every variable has a store of its own: a value is kept under the key, a list's elements under (key, serial), a map's under (key, map key), timers
 * under (key, time). Elements of one key are found through its KeyRecord, which lives in memory only and is made anew from the stores at start.
 */
#ifndef STREAM_OPERATOR_TRANSFORM_H
#define STREAM_OPERATOR_TRANSFORM_H

#include "postgres.h"
#include "fmgr.h"
#include "lib/ilist.h"
#include "metadata/processor.h"
#include "nodes/execnodes.h"
#include "operator/operator.h"
#include "state/codec.h"
#include "state/keys.h"

typedef struct Transform Transform;

typedef struct RowSpool RowSpool;

typedef struct KeyRecord
{
	MinimalTuple key;
	uint32 hash;
	int elements; /* in all lists below */
	int nrows;	  /* of this batch, not handled yet */
	int64 number; /* among the keys of this batch */
	struct WaitingRow *first, *last;
	struct KeyRecord *next;					 /* in the order of their first rows */
	dlist_head lists[FLEXIBLE_ARRAY_MEMBER]; /* Element, by serial: one per list, map, and the timers */
} KeyRecord;

/* An element of a list, an entry of a map, a timer: the live value of a state entry. */
typedef struct Element
{
	dlist_node node;
	KeyRecord *record;
	StateEntry *entry;
	int64 serial; /* order of insertion; of timers: their time */
	Datum value;
} Element;

typedef struct Variable
{
	Transform *op;
	ProcessorVariable *declared; /* NULL: the timers */
	int list;					 /* its place in a KeyRecord; -1: a single value */
	StateStore *store;
	DatumCodec codec;
	int16 length;
	bool by_value;
	int16 key_length; /* of a map's keys */
	bool key_by_value;
	TupleTableSlot *shown; /* to the state reader: key, value, and what tells elements of one key apart */
	/* of the running call */
	StateEntry *current; /* single value: the current key's entry, once looked up */
	bool current_known;
} Variable;

typedef struct Handler
{
	Oid function;
	FmgrInfo info;
	FunctionCallInfo call;
	TupleDesc result; /* one column when it returns no rows */
	bool returns_row;
	TupleTableSlot *row;	/* for rows that come as datums */
	TupleTableSlot *stored; /* for rows that come in a tuplestore */
} Handler;

typedef struct UndoEntry
{
	SubTransactionId subid;
	bool aborted;
	Variable *variable;
	Datum second; /* list serial, map key, timer */
	bool existed;
	Datum value;
	TimestampTz expires;
	int64 serial;
	struct UndoEntry *next; /* older */
} UndoEntry;

struct Transform
{
	Operator base;
	TransformSpec *spec;
	Processor *processor;
	const StateProvider *provider;
	int nvariables;
	Variable *variables; /* as declared, then the timers */
	Variable *timers;	 /* NULL in time mode none */
	int nlists;
	int64 next_serial;
	bool stale;			   /* state was forgotten: elements are to be found again */
	TupleTableSlot *probe; /* key and second key column, for the stores */
	/* keys: those with elements, and those of the running batch */
	KeyType *key_type;
	struct records_hash *records;
	MemoryContext record_context;
	const Datum *probe_key;
	const bool *probe_null;
	/* rows and functions of the running batch */
	KeyRecord *first_waiting, *last_waiting;
	int64 nkeys_waiting, nrows_waiting;
	MemoryContext rows_context;
	RowSpool *spool; /* NULL: all rows are in memory */
	MemoryContext batch_context;
	MemoryContext call_context; /* reset after every call of a handler */
	ExprContext *econtext;
	int16 row_length;
	bool row_by_value;
	char row_align;
	Handler input, timer;
	TupleTableSlot *output;
	/* the call being made */
	KeyRecord *record;
	Datum key;
	bool key_null;
	bool firing;	 /* timers: what is registered now and due already waits for the next batch */
	List *deferred;	 /* StateEntry: those */
	int nest_level;	 /* of subtransactions, when the call began */
	UndoEntry *undo; /* newest first */
	bool undo_due;
};

/* ---- transform_call.c: handlers ---- */
typedef struct HandlerShape
{
	Oid key_type;
	Oid second_type; /* rows R[], or the timer's time */
	TupleDesc result;
	bool returns_row;
} HandlerShape;

/* Looks at a handler: 42883, 22023 when it cannot be one. what: "handle_input" or "handle_timer". */
extern HandlerShape transform_handler_shape(Oid function, const char *what);
/* Do the columns of a handler's result fit those of the query? 42804 naming the first that does not. */
extern void transform_handler_check_result(Oid function, TupleDesc result, TupleDesc wanted, int ncolumns);
/* Functions, privileges and result types for a batch. */
extern void transform_handlers_resolve(Transform *op);
extern void transform_call_input(Transform *op, KeyRecord *record, int max_rows);
extern void transform_call_timer(Transform *op, KeyRecord *record, TimestampTz at);
/* The operator whose handler is running; NULL: none. */
extern Transform *transform_running(void);

/* ---- transform_rows.c: rows waiting for their key's turn ---- */
extern void transform_rows_begin(Transform *op);
extern void transform_rows_add(Transform *op, KeyRecord *record, Datum value, bool isnull);
extern void transform_rows_end(Transform *op); /* all are there */
extern Datum transform_rows_take(Transform *op, KeyRecord *record,
								 int limit); /* the array; keys must be taken in their order, each to its end */
extern void transform_rows_done(Transform *op);

/* ---- transform_key.c: KeyRecords ---- */
extern void transform_records_create(Transform *op);
extern KeyRecord *transform_record_find_or_add(Transform *op, const Datum *key, const bool *isnull);
extern void transform_record_drop_if_empty(Transform *op, KeyRecord *record);
extern void transform_records_clear(Transform *op); /* drops all; they must be empty */
extern void element_link(Transform *op, Variable *variable, KeyRecord *record, Element *element);

/* ---- transform_store.c: the stores of variables and timers ---- */
extern void transform_stores_open(Transform *op, int64 query_id, int64 last_batch);
extern void transform_elements_load(Transform *op); /* finds every element's key again */
extern void transform_show(Operator *base, StateStore *store, StateEntry *entry, OperatorShow tell, void *arg);

static inline bool
variable_is_single(Variable *variable)
{
	return variable->list < 0;
}

static inline bool
variable_is_map(Variable *variable)
{
	return variable->declared && variable->declared->kind == VARIABLE_MAP;
}

/* A single value's entry->value is the value itself, or a cell that holds it. */
extern Datum variable_single_value(Variable *variable, StateEntry *entry);
extern void *variable_single_pack(Variable *variable, Datum value); /* in CurrentMemoryContext */
/* Whole and in one piece, in CurrentMemoryContext: what is kept must not point anywhere. */
extern Datum variable_value_copy(Variable *variable, Datum value);
/* The second column of an entry's key, if there is one, and the first. */
extern Datum variable_entry_second(Variable *variable, StateEntry *entry, Datum *key, bool *key_null);

/* ---- transform_state.c: what handlers do to state. All about the current key ---- */
extern void transform_call_state_reset(Transform *op);
extern void transform_undo_apply(Transform *op);
extern void transform_evict(Transform *op); /* TTL */
extern void element_remove(Variable *variable, Element *element);

extern Variable *transform_variable(Transform *op, const char *name, int length);
extern bool variable_exists(Variable *variable);
extern bool variable_get(Variable *variable, Datum *value); /* points into the state: copy it */
extern void variable_set(Variable *variable, Datum value);
extern void variable_clear(Variable *variable); /* whatever its kind */
/* Elements in order: pass NULL first. Expired ones are not shown. */
extern Element *variable_next(Variable *variable, Element *element);
extern Datum element_map_key(Variable *variable, Element *element);
extern void variable_append(Variable *variable, Datum value);
extern Element *variable_map_find(Variable *variable, Datum key);
extern void variable_map_put(Variable *variable, Datum key, Datum value);
extern void variable_map_remove(Variable *variable, Datum key);
extern void transform_timer_register(Transform *op, TimestampTz at);
extern void transform_timer_delete(Transform *op, TimestampTz at);

#endif
