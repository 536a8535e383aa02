/*
 * aggregate.h: the parts of the aggregate operator, private to aggregate*.c.
 *
 * A group's live value is an array of cells, one per transition. A transition either folds its input at once (its cell holds the
 * transition value) or, where that value cannot be stored or the order of the input matters, keeps the input (its cell holds
 * an InputList) and folds it whenever the group is emitted. DISTINCT passes each input through a set first, a state of its own.
 *
 * Where groups merge (sessions), cells are combined, or their inputs brought together: each input carries its place in the order of arrival, and
 * DISTINCT is left to the folding.
 */
#ifndef STREAM_OPERATOR_AGGREGATE_H
#define STREAM_OPERATOR_AGGREGATE_H

#include "postgres.h"
#include "executor/nodeAgg.h"
#include "operator/operator.h"
#include "operator/row_group.h"
#include "state/codec.h"
#include "utils/sortsupport.h"

typedef struct Cell
{
	Datum value;
	bool isnull;
	bool unset; /* strict and no input yet: the first input becomes the value */
} Cell;

/* Packed argument tuples in order of arrival: per column a flag and, unless NULL, the codec's bytes. */
typedef struct InputList
{
	uint64 count;
	StringInfoData bytes;
} InputList;

typedef struct Transition
{
	Aggref *aggref; /* of the first call that uses it */
	int first_arg;	/* input columns, 1-based */
	int nargs;		/* ORDER BY columns included */
	int npassed;	/* of them handed to the function */
	int filter;
	/* how */
	bool keeps_inputs;
	int set; /* DISTINCT: index into the operator's sets; -1: none */
	/* the transition function and its value */
	Oid function_oid;
	FmgrInfo function;
	FunctionCallInfo call;
	Oid type;
	int16 length;
	bool by_value;
	Datum initial;
	bool initial_null;
	char *initial_text; /* for comparing */
	Oid combine_oid; /* groups that merge; values of type internal that are read back */
	FmgrInfo combine_function;
	FunctionCallInfo combine;
	/* the value in bytes */
	Oid serial_oid, deserial_oid; /* type internal only */
	FunctionCallInfo serial, deserial;
	DatumCodec codec;
	/* inputs in bytes, and their order */
	DatumCodec *input_codecs;
	int nsort;
	int *sort_columns; /* 0-based within the arguments */
	SortSupport sort;
} Transition;

typedef struct Final
{
	Aggref *aggref;
	int transition;
	Oid function_oid; /* invalid: the transition value is the result */
	FmgrInfo function;
	FunctionCallInfo call;
	int nargs;
	List *direct_args; /* ExprState */
} Final;

/* The set behind DISTINCT: keys are the group's keys and the arguments. */
typedef struct DistinctSet
{
	int transition;
	StateStore *store;
	TupleTableSlot *probe;
} DistinctSet;

typedef struct AggregateOperator
{
	Operator base;
	AggregateSpec *spec;
	const StateProvider *provider;
	StateStore *groups;
	int ntransitions;
	Transition *transitions;
	int nfinals;
	Final *finals;
	int nsets;
	DistinctSet *sets;
	/* what aggregate functions see through fcinfo->context */
	AggState *aggstate;
	ExprContext *live_context; /* transition values that stay */
	ExprContext *emit_context; /* everything made while one group is emitted */
	MemoryContext row_context;
	bool closes; /* event time closes groups in this query */
	bool combines; /* sessions and panes: transition values are combined, entries held until the batch ends */
	bool merges; /* groups merge; their cells are one more than the transitions: `reach`, any number of the operator's */
	uint64 arrival; /* of the row being received: grows over the query's life */
	uint64 serial; /* of the batch */
	MemoryContext batch_context;
	int *layout, nlayout; /* of values saved with other calls: which transition each part belongs to; NULL: in order */
	int nprefix; /* sessions: entries are found by so many leading keys */
	TupleTableSlot *key_slot, *output_slot;
	MemoryContext partial_context; /* of a group that comes from elsewhere; NULL: none has */
	RowGroup *group; /* aggregate.c's own */
} AggregateOperator;

/* ---- aggregate.c: for operators that are aggregates and more ---- */
/* Everything but keys and stores' use: in op->base.context, which the caller has made and entered. */
extern void aggregate_init(AggregateOperator *op, const OperatorOps *ops, OperatorSpec *spec, int64 query_id, const StateProvider *provider,
						   int64 last_batch);
extern void aggregate_check(OperatorSpec *spec);
extern void aggregate_extend(Operator *base, OperatorSpec *saved, List *places);
/* The keys before the last one, the window: under them panes, or sessions, are brought together. */
extern StateSchema aggregate_list_schema(AggregateOperator *op);
/* The group's row; cells NULL: its key only. Lives until aggregate_group_row_done. Columns after the calls' are the caller's to fill. */
extern TupleTableSlot *aggregate_group_row(AggregateOperator *op, MinimalTuple key, Cell *cells);
extern void aggregate_group_row_done(AggregateOperator *op);
extern void aggregate_measure(AggregateOperator *op);
/* Rows held back, into their groups. */
extern void aggregate_drain(AggregateOperator *op);
extern void aggregate_flush(Operator *base);
extern void aggregate_committed(Operator *base);
extern void aggregate_forget(Operator *base, int64 last_batch);
extern bool aggregate_wants_batch(Operator *base, TimestampTz evicted_at, TimestampTz next_watermark);
extern void aggregate_show(Operator *base, StateStore *store, StateEntry *entry, OperatorShow tell, void *arg);
extern void aggregate_close(Operator *base);

/* ---- aggregate_call.c: from Aggrefs to transitions and finals ---- */
extern void aggregate_prepare_calls(AggregateOperator *op);
/* Combine functions of all transitions, of an operator that does not combine otherwise. */
extern void aggregate_prepare_combines(AggregateOperator *op);
extern void aggregate_check_permissions(AggregateOperator *op); /* 42501 */

/* ---- aggregate_value.c: the life of a group's value ---- */
extern Size aggregate_value_size(AggregateOperator *op);
extern Cell *aggregate_value_create(AggregateOperator *op, MemoryContext context);
/* One input row into one group. entry: what DISTINCT's sets belong to; NULL where groups merge, which have none. */
extern void aggregate_value_advance(AggregateOperator *op, Cell *cells, StateEntry *entry, TupleTableSlot *slot);
/* All of `from` into `into`; from is empty then, and still to be freed. */
extern void aggregate_value_merge(AggregateOperator *op, Cell *into, Cell *from);
/* All of `from`, which stays, into `into`, which lives in context. */
extern void aggregate_value_add(AggregateOperator *op, ExprContext *context, Cell *into, Cell *from);
extern void aggregate_value_free(AggregateOperator *op, Cell *cells);
extern Cell *aggregate_value_reach(AggregateOperator *op, Cell *cells);
/* The result of call i for a group, in the emission's memory. */
extern Datum aggregate_value_final(AggregateOperator *op, int i, Cell *cells, bool *isnull);
/* What values refer to outside the state's contexts; after the state was forgotten. */
extern void aggregate_contexts_reset(AggregateOperator *op, bool failed);

/* ---- aggregate_bytes.c: values in bytes ---- */
extern const StateValueOps aggregate_value_ops;
/* A value of type internal. */
extern void aggregate_opaque_write(AggregateOperator *op, Transition *transition, Datum value, StringInfo out);
extern Datum aggregate_opaque_read(AggregateOperator *op, Transition *transition, ByteReader *reader, MemoryContext context);

/* ---- aggregate_input.c: inputs that are kept ---- */
extern void input_list_init(InputList *list, MemoryContext context);
extern void input_list_add(AggregateOperator *op, Transition *transition, InputList *list, TupleTableSlot *slot);
extern void input_list_append(InputList *into, InputList *from);
typedef void (*InputCallback)(AggregateOperator *op, Transition *transition, Cell *cell, const Datum *values, const bool *nulls);
/* All inputs in the order the aggregate asks for; everything in CurrentMemoryContext. */
extern void input_list_replay(AggregateOperator *op, Transition *transition, InputList *list, InputCallback callback, Cell *cell);

#endif
