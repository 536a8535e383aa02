/*
 * limit.c: LIMIT n in append mode: the first n rows of the query's life.
 * State: one number, the rows let through so far, kept under an empty key.
 */
#include "operator/operator.h"

#include "executor/executor.h"
#include "utils/memutils.h"

typedef struct RowLimit
{
	Operator base;
	StateStore *store;
	TupleTableSlot *key;
	StateEntry *entry; /* of the running batch */
} RowLimit;

static int64 *
limit_count(StateEntry *entry)
{
	return (int64 *) entry->value;
}

static void
limit_serialize(void *arg, StateEntry *entry, StringInfo out)
{
	appendBinaryStringInfo(out, entry->value, sizeof(int64));
}

static void
limit_deserialize(void *arg, StateEntry *entry, const char *bytes, Size len, MemoryContext context)
{
	entry->value = MemoryContextAllocZero(context, sizeof(int64));
	memcpy(entry->value, bytes, Min(len, sizeof(int64)));
}

static void
limit_release(void *arg, StateEntry *entry)
{
	if (entry->value)
		pfree(entry->value);
	entry->value = NULL;
}

static const StateValueOps limit_value_ops = {limit_serialize, limit_deserialize, limit_release};

static Operator *
limit_open(OperatorSpec *base, int64 query_id, const StateProvider *provider, int64 last_batch)
{
	RowLimit *limit = palloc0(sizeof(RowLimit));
	StateSchema schema = {.query_id = query_id, .operator_id = base->id, .state_name = "default"};

	limit->base.ops = &limit_operator;
	limit->base.spec = base;
	limit->base.context = CurrentMemoryContext;
	schema.keydesc = CreateTemplateTupleDesc(0);
	schema.value_ops = &limit_value_ops;
	schema.operator_private = limit;
	limit->store = provider->open(&schema, last_batch);
	limit->base.stores = list_make1(limit->store);
	limit->key = MakeSingleTupleTableSlot(schema.keydesc, &TTSOpsVirtual);
	return &limit->base;
}

static void
limit_begin(Operator *op, const BatchInfo *batch)
{
	op->batch = batch;
	((RowLimit *) op)->entry = NULL;
}

static StateEntry *
limit_entry(RowLimit *limit)
{
	const StateProvider *provider = limit->store->provider;
	bool created;

	if (limit->entry)
		return limit->entry;
	ExecClearTuple(limit->key);
	ExecStoreVirtualTuple(limit->key);
	limit->entry = provider->put(limit->store, limit->key, &created);
	if (created)
		limit->entry->value = MemoryContextAllocZero(provider->value_context(limit->store), sizeof(int64));
	return limit->entry;
}

static void
limit_receive(Operator *op, int input, TupleTableSlot *slot)
{
	StateEntry *entry = limit_entry((RowLimit *) op);

	if (*limit_count(entry) >= ((LimitSpec *) op->spec)->count)
		return;
	++*limit_count(entry);
	op->metrics.updated = 1;
	tuplestore_puttupleslot(op->out, slot);
}

static void
limit_finish(Operator *op, Tuplestorestate *out)
{
}

static bool
limit_wants_batch(Operator *op, TimestampTz evicted_at, TimestampTz next_watermark)
{
	return false;
}

static void
limit_close(Operator *op)
{
	ExecDropSingleTupleTableSlot(((RowLimit *) op)->key);
	operator_close_stores(op);
}

const OperatorOps limit_operator = {
	.name = "globalLimit",
	.open = limit_open,
	.begin = limit_begin,
	.receive = limit_receive,
	.finish = limit_finish,
	.flush = operator_flush,
	.committed = operator_committed,
	.forget = operator_forget,
	.wants_batch = limit_wants_batch,
	.close = limit_close,
};
