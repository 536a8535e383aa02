/*
 * dedup.c: SELECT DISTINCT and DISTINCT ON over a stream: the first row of each key goes through at once, later ones are dropped.
 * State: the keys seen. They are forgotten when event time is one of them and has passed, or (within the watermark) a delay after the first row.
 */
#include "operator/operator.h"

#include "common/int.h"
#include "executor/executor.h"
#include "operator/row_group.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

typedef struct Dedup
{
	Operator base;
	StateStore *store;
	RowGroup *group;
	TupleTableSlot *output; /* virtual, of the output columns */
} Dedup;

/* ---- values: a key needs none ---- */

static void
dedup_serialize(void *arg, StateEntry *entry, StringInfo out)
{
}

static void
dedup_deserialize(void *arg, StateEntry *entry, const char *bytes, Size len, MemoryContext context)
{
}

static void
dedup_release(void *arg, StateEntry *entry)
{
}

static const StateValueOps dedup_value_ops = {dedup_serialize, dedup_deserialize, dedup_release};

/* ---- the operator ---- */

static StateSchema
dedup_schema(DedupSpec *spec, int64 query_id)
{
	StateSchema schema = {.query_id = query_id, .operator_id = spec->base.id, .state_name = "default"};

	schema.keydesc = CreateTemplateTupleDesc(spec->nkeys);
	for (int i = 1; i <= spec->nkeys; i++)
		TupleDescCopyEntry(schema.keydesc, i, spec->base.input[0], i);
	schema.eq_operators = spec->eq_operators;
	schema.collations = spec->collations;
	schema.value_ops = &dedup_value_ops;
	schema.releasable = true;
	return schema;
}

static void
dedup_check(OperatorSpec *base)
{
	StateSchema schema = dedup_schema((DedupSpec *) base, -1);

	state_check_key(&schema);
}

static Operator *
dedup_open(OperatorSpec *base, int64 query_id, const StateProvider *provider, int64 last_batch)
{
	DedupSpec *spec = (DedupSpec *) base;
	Dedup *dedup = palloc0(sizeof(Dedup));
	StateSchema schema = dedup_schema(spec, query_id);

	dedup->base.ops = &dedup_operator;
	dedup->base.spec = base;
	dedup->base.context = CurrentMemoryContext;
	dedup->store = provider->open(&schema, last_batch);
	dedup->base.stores = list_make1(dedup->store);
	dedup->group = row_group_create(base->input[0]);
	dedup->output = MakeSingleTupleTableSlot(base->output, &TTSOpsVirtual);
	return &dedup->base;
}

static void
dedup_begin(Operator *op, const BatchInfo *batch)
{
	op->batch = batch;
	row_group_clear(((Dedup *) op)->group);
	op->metrics.custom_name = "numDroppedDuplicateRows";
}

static bool
dedup_is_late(DedupSpec *spec, const BatchInfo *batch, TupleTableSlot *slot)
{
	int column = spec->event_time;

	if (column == 0)
		return false;
	return slot->tts_isnull[column - 1] || DatumGetTimestampTz(slot->tts_values[column - 1]) <= batch->late_watermark;
}

static TimestampTz
dedup_expiry(DedupSpec *spec, TupleTableSlot *slot)
{
	TimestampTz at;

	if (spec->within >= 0 && spec->event_time > 0)
	{
		at = DatumGetTimestampTz(slot->tts_values[spec->event_time - 1]);
		return TIMESTAMP_NOT_FINITE(at) ? at : pg_add_s64_overflow(at, spec->within, &at) ? DT_NOEND : at;
	}
	if (spec->key_closes > 0 && !slot->tts_isnull[spec->key_closes - 1])
		return DatumGetTimestampTz(slot->tts_values[spec->key_closes - 1]);
	return DT_NOEND;
}

static void
row_receive(Operator *op, TupleTableSlot *slot)
{
	Dedup *dedup = (Dedup *) op;
	DedupSpec *spec = (DedupSpec *) op->spec;
	const StateProvider *provider = dedup->store->provider;
	int natts = op->spec->output->natts;
	StateEntry *entry;
	bool created;

	if (dedup_is_late(spec, op->batch, slot))
	{
		operator_late_row(op, slot);
		return;
	}
	if (provider->get(dedup->store, slot) != NULL)
	{
		op->metrics.custom++;
		return;
	}
	entry = provider->put(dedup->store, slot, &created);
	provider->set_expiry(dedup->store, entry, dedup_expiry(spec, slot));
	op->metrics.updated++;
	ExecClearTuple(dedup->output);
	memcpy(dedup->output->tts_values, slot->tts_values + spec->nkeys, natts * sizeof(Datum));
	memcpy(dedup->output->tts_isnull, slot->tts_isnull + spec->nkeys, natts * sizeof(bool));
	ExecStoreVirtualTuple(dedup->output);
	tuplestore_puttupleslot(op->out, dedup->output);
}

static void
dedup_receive(Operator *op, int input, TupleTableSlot *slot)
{
	Dedup *dedup = (Dedup *) op;

	row_group_receive(dedup->group, op, dedup->store, row_receive, slot);
}

static void
dedup_finish(Operator *op, Tuplestorestate *out)
{
	Dedup *dedup = (Dedup *) op;
	const StateProvider *provider = dedup->store->provider;
	StateEntry *entry;

	row_group_drain(dedup->group, op, dedup->store, row_receive);
	if (!op->spec->has_watermark)
		return;
	while ((entry = provider->next_expired(dedup->store, op->batch->evict_watermark)) != NULL)
	{
		provider->remove(dedup->store, entry);
		op->metrics.removed++;
	}
}

/* Rows turn late whenever the watermark moves, also where no key is ever forgotten: the boundary must not hang on where batches end. */
static bool
dedup_wants_batch(Operator *op, TimestampTz evicted_at, TimestampTz next_watermark)
{
	return (op->spec->has_watermark || ((DedupSpec *) op->spec)->event_time > 0) && next_watermark > evicted_at;
}

static void
dedup_close(Operator *op)
{
	ExecDropSingleTupleTableSlot(((Dedup *) op)->output);
	operator_close_stores(op);
}

const OperatorOps dedup_operator = {
	.name = "dedupe",
	.open = dedup_open,
	.begin = dedup_begin,
	.receive = dedup_receive,
	.finish = dedup_finish,
	.flush = operator_flush,
	.committed = operator_committed,
	.forget = operator_forget,
	.wants_batch = dedup_wants_batch,
	.close = dedup_close,
	.check = dedup_check,
};
