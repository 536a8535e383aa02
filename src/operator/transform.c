/*
 * transform.c: transform_with_state: rows in, collected by key; each key's handler is called once, then timers that are due, then expired state goes.
 * The rows of a batch wait until all have come (transform_rows.c); what a handler returns goes on at once.
 * Danger: nothing a handler does may outlive a failed batch: state is the stores' and goes with them, the current call ends with the transaction.
 */
#include "operator/transform.h"

#include "executor/executor.h"
#include "miscadmin.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

/* ---- opening ---- */

static KeyType *
key_type_of(Transform *op)
{
	StateSchema schema = {.eq_operators = &op->spec->eq_operator, .collations = &op->spec->collation};

	schema.keydesc = CreateTemplateTupleDesc(1);
	TupleDescCopyEntry(schema.keydesc, 1, op->base.spec->input[0], 1);
	return key_type_create(&schema);
}

static TupleTableSlot *
probe_create(Transform *op)
{
	TupleDesc desc = CreateTemplateTupleDesc(2);

	/* Stores look at values and NULLs only: the second column may be of any type. */
	TupleDescCopyEntry(desc, 1, op->base.spec->input[0], 1);
	TupleDescCopyEntry(desc, 2, op->base.spec->input[0], 1);
	return MakeSingleTupleTableSlot(desc, &TTSOpsVirtual);
}

static void
call_contexts_create(Transform *op)
{
	op->batch_context = AllocSetContextCreate(op->base.context, "stream transform batch", ALLOCSET_DEFAULT_SIZES);
	op->rows_context = AllocSetContextCreate(op->base.context, "stream transform rows", ALLOCSET_DEFAULT_SIZES);
	op->call_context =
		AllocSetContextCreate(op->base.context, "stream transform call", 0, 64 * 1024, ALLOCSET_DEFAULT_MAXSIZE);
	op->econtext = CreateStandaloneExprContext();
	op->econtext->ecxt_per_query_memory = op->call_context;
}

static Operator *
transform_open(OperatorSpec *spec, int64 query_id, const StateProvider *provider, int64 last_batch)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "stream transform", ALLOCSET_DEFAULT_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(context);
	Transform *op = palloc0(sizeof(Transform));

	op->base.ops = &transform_operator;
	op->base.spec = spec;
	op->base.context = context;
	op->spec = (TransformSpec *) spec;
	op->processor = op->spec->processor;
	op->provider = provider;
	op->key_type = key_type_of(op);
	op->probe = probe_create(op);
	op->output = MakeSingleTupleTableSlot(spec->output, &TTSOpsVirtual);
	get_typlenbyvalalign(TupleDescAttr(spec->input[0], 1)->atttypid, &op->row_length, &op->row_by_value,
						 &op->row_align);
	call_contexts_create(op);
	transform_records_create(op);
	transform_stores_open(op, query_id, last_batch);
	MemoryContextSwitchTo(caller);
	return &op->base;
}

/* ---- rows in ---- */

static void
transform_begin(Operator *base, const BatchInfo *batch)
{
	Transform *op = (Transform *) base;

	base->batch = batch;
	base->metrics.custom_name = "numExpiredTimers";
	MemoryContextReset(op->batch_context);
	transform_rows_begin(op);
	op->deferred = NIL;
	if (op->stale)
		transform_elements_load(op);
	op->stale = false;
	transform_handlers_resolve(op);
}

static bool
is_late(Transform *op, TupleTableSlot *slot)
{
	int column = op->spec->event_time - 1;

	return slot->tts_isnull[column] || DatumGetTimestampTz(slot->tts_values[column]) <= op->base.batch->late_watermark;
}

static void
transform_receive(Operator *base, int input, TupleTableSlot *slot)
{
	Transform *op = (Transform *) base;

	slot_getallattrs(slot);
	if (op->spec->event_time > 0 && is_late(op, slot))
	{
		operator_late_row(base, slot);
		return;
	}
	transform_rows_add(op, transform_record_find_or_add(op, slot->tts_values, slot->tts_isnull), slot->tts_values[1],
					   slot->tts_isnull[1]);
}

/* ---- the handlers' turn ---- */

static void
handle_rows(Transform *op)
{
	int max_rows = op->base.batch->row_by_row
					   ? 1
					   : INT_MAX; /* low latency: nobody may rely on which rows come together, so none do */

	transform_rows_end(op);
	for (KeyRecord *record = op->first_waiting; record; record = record->next)
		while (record->nrows > 0)
			transform_call_input(op, record, max_rows);
	transform_rows_done(op);
}

static void
fire_timers(Transform *op, TimestampTz due)
{
	StateEntry *entry;
	ListCell *lc;

	op->firing = true;
	while ((entry = op->provider->next_expired(op->timers->store, due)))
	{
		Element *element = entry->value;
		KeyRecord *record = element->record;
		TimestampTz at = element->serial;

		element_remove(op->timers, element);
		transform_call_timer(op, record, at);
		transform_record_drop_if_empty(op, record);
		op->base.metrics.custom++;
	}
	op->firing = false;
	foreach (lc, op->deferred)
	{
		entry = lfirst(lc);
		if (!entry->removed)
			op->provider->set_expiry(op->timers->store, entry, ((Element *) entry->value)->serial);
	}
	op->deferred = NIL;
}

static void
transform_finish(Operator *base, Tuplestorestate *out)
{
	Transform *op = (Transform *) base;

	handle_rows(op);
	if (op->processor->time_mode == TIME_MODE_PROCESSING)
		fire_timers(op, base->batch->batch_time);
	else if (op->processor->time_mode == TIME_MODE_EVENT && base->batch->evict_watermark != DT_NOBEGIN)
		fire_timers(op, base->batch->evict_watermark);
	transform_evict(op);
}

/* ---- around the commit ---- */

/* Timers are not counted among the rows of state. */
static void
transform_flush(Operator *base)
{
	Transform *op = (Transform *) base;

	operator_flush(base);
	if (op->timers)
		base->metrics.rows_total -= op->provider->metrics(op->timers->store).rows;
}

static void
transform_committed(Operator *base)
{
	operator_committed(base);
	MemoryContextReset(((Transform *) base)->batch_context);
}

static bool
transform_wants_batch(Operator *base, TimestampTz evicted_at, TimestampTz next_watermark)
{
	Transform *op = (Transform *) base;

	if (op->processor->time_mode != TIME_MODE_EVENT)
		return false;
	/* A timer that is due already was registered by a timer's handler. */
	return next_watermark > evicted_at || op->provider->first_expiry(op->timers->store) <= next_watermark;
}

static TimestampTz
transform_next_due(Operator *base)
{
	Transform *op = (Transform *) base;
	TimestampTz due = DT_NOEND;

	if (op->processor->time_mode != TIME_MODE_PROCESSING)
		return DT_NOEND;
	for (int i = 0; i <= op->nvariables; i++)
		due = Min(due, op->provider->first_expiry(op->variables[i].store));
	return due;
}

static void
transform_close(Operator *base)
{
	Transform *op = (Transform *) base;

	FreeExprContext(op->econtext, false);
	operator_close_stores(base);
	MemoryContextDelete(base->context);
}

/* Called after an abort, when no table can be read: elements find their keys again when the next batch begins. */
static void
transform_forget(Operator *base, int64 last_batch)
{
	Transform *op = (Transform *) base;

	operator_forget(base, last_batch);
	MemoryContextReset(op->batch_context);
	MemoryContextReset(op->call_context);
	transform_records_clear(op);
	transform_rows_begin(op);
	op->deferred = NIL;
	op->firing = false;
	op->stale = true;
}

const OperatorOps transform_operator = {
	.name = "transformWithStateExec",
	.open = transform_open,
	.begin = transform_begin,
	.receive = transform_receive,
	.finish = transform_finish,
	.flush = transform_flush,
	.committed = transform_committed,
	.forget = transform_forget,
	.wants_batch = transform_wants_batch,
	.next_due = transform_next_due,
	.close = transform_close,
	.show = transform_show,
};
