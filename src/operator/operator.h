/*
 * operator.h: what Postgres's executor cannot do alone, because it remembers: aggregation, deduplication, joins, …
 *
 * A stage (SELECT) pushes its rows into an operator; the operator keeps state and, when all its inputs are fed, emits rows into a
 * tuplestore that the next stage reads as an ephemeral named relation. The spec comes from plan/ and is the whole of what an operator knows
 * about the query.
 */
#ifndef STREAM_OPERATOR_OPERATOR_H
#define STREAM_OPERATOR_OPERATOR_H

#include "postgres.h"
#include "executor/tuptable.h"
#include "metadata/batch_info.h"
#include "nodes/pg_list.h"
#include "state/store.h"
#include "utils/jsonb.h"
#include "utils/tuplestore.h"

typedef struct OperatorOps OperatorOps;

/* Written by plan/; lives as long as the plan. Concrete specs embed it first. */
typedef struct OperatorSpec
{
	const OperatorOps *ops;
	int id;				  /* operator_id of the state reader: position in the plan, 0 first */
	int ninputs;
	TupleDesc *input;	  /* per input: what its stage delivers */
	TupleDesc output;	  /* what it emits */
	Jsonb *signature;	  /* what saved state depends on: keys, aggregates, types. Compared on alter and start */
	bool has_watermark;	  /* event time among its keys: drops late rows, evicts */
	OutputMode output_mode; /* of the query: complete never drops, evicts, or wants a batch without data */
} OperatorSpec;

/*
 * Takes a row for the state reader: its first nkeys columns are the key, the others the value. bare: one column each, shown without
 * their names; a third one tells entries of one key apart.
 */
typedef void (*OperatorShow)(void *arg, TupleTableSlot *row, int nkeys, bool bare, TimestampTz expires);

typedef struct OperatorMetrics
{
	int64 updated, removed, dropped; /* this batch; dropped = late rows */
	int64 rows_total, bytes;		 /* after it */
	const char *custom_name;		 /* one more counter under the operator's own name, NULL: none */
	int64 custom;
	bool custom_is_late;			 /* what it counts counts as late in rows_late, though no watermark dropped it */
	int64 flush_us;					 /* writing its state took */
} OperatorMetrics;

typedef struct Operator
{
	const OperatorOps *ops;
	OperatorSpec *spec;
	const BatchInfo *batch; /* the running one */
	OperatorMetrics metrics;
	List *stores;			/* StateStore: what operator_flush and its kin go over */
	Tuplestorestate *out;	/* where its rows go, also while it is being fed; set before begin */
	MemoryContext context; /* lives as long as the query runs in this process */
} Operator;

struct OperatorOps
{
	const char *name; /* Spark's operatorName: 'stateStoreSave', 'dedupe', 'symmetricHashJoin', … */
	/* Loads state as of last_batch (-1: none). In CurrentMemoryContext. */
	Operator *(*open)(OperatorSpec *spec, int64 query_id, const StateProvider *provider, int64 last_batch);
	void (*begin)(Operator *op, const BatchInfo *batch);
	void (*receive)(Operator *op, int input, TupleTableSlot *slot); /* the hot path */
	void (*finish)(Operator *op, Tuplestorestate *out);				/* evict by batch->evict_watermark, emit by output mode */
	void (*flush)(Operator *op);									/* state to the tables, in the batch's transaction */
	void (*committed)(Operator *op);
	void (*forget)(Operator *op, int64 last_batch);					/* after an abort */
	/* Would a batch without data do something at this watermark? (batch.evict → next) */
	bool (*wants_batch)(Operator *op, TimestampTz evicted_at, TimestampTz next_watermark);
	/* When, by the clock, it has something to do without data (timers, TTL); DT_NOEND: never. May be NULL. */
	TimestampTz (*next_due)(Operator *op);
	void (*close)(Operator *op);
	/* Refuses (0A000) what the operator could not keep or call; when the query is made. May be NULL. */
	void (*check)(OperatorSpec *spec);
	/*
	 * The operator was opened on what another one saved, whose calls stand at these places among its own: every entry becomes its own, changed, calls that
	 * are new starting empty. May refuse (0A000), and is NULL where nothing can be new.
	 */
	void (*extend)(Operator *op, OperatorSpec *saved, List *places);
	/* An entry of one of its stores as people see it: any number of rows. A removed entry has no value. NULL: operator_show_key. */
	void (*show)(Operator *op, StateStore *store, StateEntry *entry, OperatorShow tell, void *arg);
};

/* For operators whose values say nothing to people. */
extern void operator_show_key(Operator *op, StateStore *store, StateEntry *entry, OperatorShow tell, void *arg);

/* A late row: counts it, and keeps it in the dead letters when the query asks for that. */
extern void operator_late_row(Operator *op, TupleTableSlot *slot);
/* Counted as custom, not as dropped by the watermark. */
extern void operator_windowless_row(Operator *op, TupleTableSlot *slot);

/* Before an operator's own begin. */
extern void operator_begin_stores(Operator *op, int64 batch_id);

/* Callbacks for operators whose state is op->stores and nothing else. flush fills rows_total and bytes. */
extern void operator_flush(Operator *op);
extern void operator_committed(Operator *op);
extern void operator_forget(Operator *op, int64 last_batch);
extern void operator_close_stores(Operator *op);
/* Wants a batch without data whenever the watermark has moved. */
extern bool operator_wants_batch(Operator *op, TimestampTz evicted_at, TimestampTz next_watermark);

/* ---- aggregate.c ---- */

/* One aggregate of the query: arguments and filter are columns of the input. Aggregates that share a transition share a column of state. */
typedef struct AggregateCall
{
	struct Aggref *aggref; /* as in the query */
	int first_arg;		   /* 1-based input column of its first argument; the others follow */
	int nargs;
	int filter;			   /* 1-based input column of the FILTER result, 0: none */
} AggregateCall;

/*
 * Input columns: the group keys 1..nkeys, then whatever the calls point to, then the event-time column.
 * Output columns: the keys 1..nkeys, then one column per call in order.
 */
typedef struct AggregateSpec
{
	OperatorSpec base;
	int nkeys;
	Oid *eq_operators;
	Oid *collations;
	List *calls;	/* AggregateCall */
	bool merges;	/* groups grow together (sessions): what an aggregate cannot combine it keeps as inputs */
	bool combines;	/* groups are combined into results (panes): every aggregate can, aggregate_combines */
	int event_time; /* 1-based input column, timestamptz: when the row's group closes (end of its window). 0: never. NULL there: dropped, counted late */
} AggregateSpec;

extern const OperatorOps aggregate_operator;

/* ---- aggregate_partial.c: groups folded elsewhere ---- */

/*
 * Can rows be folded into groups in shares, and the groups be combined, so that the result is the same? (But for the order in which floating-point numbers
 * are added.) The spec as bytes and back: as much as folding needs.
 */
extern bool aggregate_has_partials(OperatorSpec *spec);
extern void aggregate_spec_write(OperatorSpec *spec, StringInfo out);
struct ByteReader;
extern OperatorSpec *aggregate_spec_read(struct ByteReader *reader);
/* Of an operator opened for the purpose: every group as bytes. */
typedef void (*PartialTaker)(void *arg, const char *bytes, Size length);
extern void aggregate_partials_give(Operator *op, PartialTaker take, void *arg);
/* Such a group into the one of the same key. */
extern void aggregate_partial_take(Operator *op, struct ByteReader *reader);

/* Can its transition values be combined, and without a look at the order of its inputs? */
extern bool aggregate_combines(struct Aggref *aggref);

/* ---- hop.c: GROUP BY stream.hop(ts, size, slide), from panes ---- */

/*
 * As an aggregate whose last key is the window, a range; in the input that column is NULL. In the state it is a pane: of the greatest length that
 * divides windows and what lies between their starts. Windows are put together from panes when they are emitted.
 */
typedef struct HopSpec
{
	AggregateSpec aggregate;
	int start; /* input column: the row's time, timestamp or timestamptz. NULL: dropped, counted late where windows close */
	int64 size, slide, origin; /* microseconds; several windows cover an instant */
} HopSpec;

extern const OperatorOps hop_operator;
/* The length of panes; what a window of that kind is put together from. */
extern int64 hop_pane(int64 size, int64 slide);

/* ---- session.c: GROUP BY stream.session(ts, gap) beside other keys ---- */

/*
 * As an aggregate whose last key is the session, a range; in the input that column is NULL: the operator says which session a row belongs to.
 * In update mode the last output column (boolean) is true in rows that only tell the key of a session that is no more.
 */
typedef struct SessionSpec
{
	AggregateSpec aggregate;
	int start; /* input column: the row's time, timestamp or timestamptz. NULL: dropped, counted late */
	int gap;   /* input column: interval; 22023 unless positive. NULL: dropped, counted late */
} SessionSpec;

extern const OperatorOps session_operator;

/* ---- dedup.c: SELECT DISTINCT, DISTINCT ON: the first row of a key wins ---- */

/*
 * Input columns: the keys 1..nkeys, then the output columns, then whatever event_time and key_closes point to.
 * Output columns: those after the keys.
 */
typedef struct DedupSpec
{
	OperatorSpec base;
	int nkeys;
	Oid *eq_operators;
	Oid *collations;
	int event_time; /* 1-based input column, timestamptz: the row's event time; 0: no watermark, nothing is late. NULL there: dropped, counted late */
	int key_closes; /* 1-based input column, timestamptz: when the key can be forgotten (event time among the keys); 0: never */
	int64 within;	/* option dedup_within_watermark: a key is forgotten this many microseconds after its first row's event time; -1: off */
} DedupSpec;

extern const OperatorOps dedup_operator;

/* ---- best.c: the best n rows of each key: DISTINCT ON … ORDER BY, row_number() … <= n ---- */

/*
 * Input columns: the keys 1..nkeys, then nkept columns that are kept of a row, then the event-time column.
 * Output columns: the keys, the row's place in its key (bigint), the kept columns, then boolean: the row leaves the target.
 */
typedef struct BestSpec
{
	OperatorSpec base;
	int nkeys;
	Oid *eq_operators;
	Oid *collations;
	int nkept;
	int nsort;
	int *sort_columns; /* 0-based among the kept ones */
	Oid *sort_operators;
	Oid *sort_collations;
	bool *nulls_first;
	int64 count;   /* how many rows of a key */
	int closes;	   /* 1-based input column, timestamptz: when the key closes; 0: never. NULL there: dropped, counted late */
	bool by_place; /* a row that moves to another place is another row */
	bool leaves;   /* tell which rows leave; else others take their places under the same key */
} BestSpec;

extern const OperatorOps best_operator;

/* ---- limit.c: LIMIT n: the first n rows of the query's life ---- */

/* Input and output columns are the same. */
typedef struct LimitSpec
{
	OperatorSpec base;
	int64 count;
} LimitSpec;

extern const OperatorOps limit_operator;

/* ---- join.c: stream-stream joins ---- */

typedef enum StreamJoinType
{
	STREAM_JOIN_INNER,
	STREAM_JOIN_LEFT,
	STREAM_JOIN_RIGHT,
	STREAM_JOIN_FULL,
	STREAM_JOIN_SEMI /* left rows that have a match, once each: EXISTS, IN */
} StreamJoinType;

/*
 * Two inputs, 0 left and 1 right; the left one is fed first. Columns of each: the join keys 1..nkeys (same types on both sides), then npayload columns,
 * then whatever the fields below point to. Output: the left payload, then the right payload (left only for semi).
 */
typedef struct JoinSpec
{
	OperatorSpec base;
	StreamJoinType type;
	int nkeys;
	Oid *eq_operators;
	Oid *collations;
	bool *nulls_match; /* per key: NULLs are equal; else a NULL matches nothing */
	int npayload[2];
	int event_time[2]; /* input column, timestamptz: the row's event time for lateness (NULL: late); 0: this side has no watermark */
	int expires[2];	   /* input column, timestamptz: no row of the other side that is still to come can match once the watermark has reached it;
						* from key windows and range conditions, 1 µs later for inclusive bounds. 0 or NULL: never */
	int own[2];		   /* input column, boolean: conjuncts over this side alone; false or NULL: the row matches nothing and is not stored. 0: none */
	List *qual;		   /* remaining conjuncts over both sides; Vars are OUTER_VAR (left input column), INNER_VAR (right input column) */
	bool bounded;	   /* a state bound exists on some side: batches without data make sense */
} JoinSpec;

extern const OperatorOps join_operator;

/* ---- transform.c: transform_with_state: the user's functions over state of their own ---- */

/*
 * Input columns: the key, the row (both of the types the handlers take), then the event-time column.
 * Output columns: what the handlers return, then the key.
 */
typedef struct TransformSpec
{
	OperatorSpec base;
	struct Processor *processor;
	Oid eq_operator; /* of the key */
	Oid collation;
	Oid rows_type; /* of the array the handler takes */
	int event_time; /* 1-based input column, timestamptz: rows at or behind the watermark are late (NULL too). 0: nothing is late */
} TransformSpec;

extern const OperatorOps transform_operator;

#endif
