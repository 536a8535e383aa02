/*
 * aggregate.c: GROUP BY over a stream: rows in, groups kept in state, results out when the output mode says so.
 * A row costs one look-up in the state and one call per transition function; final functions run at emission only.
 * Late rows must be dropped before they touch a group: a closed group that came back would be emitted twice.
 */
#include "operator/aggregate.h"

#include "executor/executor.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "optimizer/tlist.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

/* ---- opening ---- */

/* As much of an AggState as AggCheckCallContext, AggGetAggref and AggRegisterCallback look at. */
static AggState *
aggstate_create(AggregateOperator *op)
{
	AggState *aggstate = makeNode(AggState);

	aggstate->tmpcontext = makeNode(ExprContext);
	aggstate->tmpcontext->ecxt_per_tuple_memory = op->row_context;
	aggstate->tmpcontext->ecxt_per_query_memory = op->base.context;
	return aggstate;
}

static void
contexts_create(AggregateOperator *op)
{
	op->live_context = makeNode(ExprContext);
	op->live_context->ecxt_per_query_memory = op->base.context;
	op->live_context->ecxt_per_tuple_memory = op->provider->value_context(op->groups);
	op->emit_context = CreateStandaloneExprContext();
	op->aggstate->curaggcontext = op->live_context;
	op->aggstate->hashcontext = op->live_context;
}

static TupleDesc
key_descriptor(AggregateSpec *spec, Transition *transition)
{
	int nargs = transition ? transition->nargs : 0;
	TupleDesc desc = CreateTemplateTupleDesc(spec->nkeys + nargs);

	for (int i = 1; i <= spec->nkeys; i++)
		TupleDescCopyEntry(desc, i, spec->base.input[0], i);
	for (int i = 1; i <= nargs; i++)
		TupleDescCopyEntry(desc, spec->nkeys + i, spec->base.input[0], transition->first_arg - 1 + i);
	return desc;
}

static StateSchema
groups_schema(AggregateOperator *op, int64 query_id)
{
	StateSchema schema = {.query_id = query_id,
						  .operator_id = op->spec->base.id,
						  .state_name = "default",
						  .keydesc = key_descriptor(op->spec, NULL),
						  .eq_operators = op->spec->eq_operators,
						  .collations = op->spec->collations,
						  .value_ops = &aggregate_value_ops,
						  .operator_private = op,
						  .nprefix = op->nprefix,
						  .releasable = !op->combines};

	return schema;
}

/* DISTINCT compares as its sort clauses say. */
static StateSchema
set_schema(AggregateOperator *op, DistinctSet *set, StateSchema schema)
{
	Transition *transition = &op->transitions[set->transition];
	int nkeys = op->spec->nkeys;
	ListCell *cell;

	schema.state_name = psprintf("distinct_%d", set->transition);
	schema.keydesc = key_descriptor(op->spec, transition);
	schema.eq_operators = palloc0(sizeof(Oid) * (nkeys + transition->nargs));
	schema.collations = palloc0(sizeof(Oid) * (nkeys + transition->nargs));
	schema.value_ops = NULL;
	memcpy(schema.eq_operators, op->spec->eq_operators, sizeof(Oid) * nkeys);
	memcpy(schema.collations, op->spec->collations, sizeof(Oid) * nkeys);
	foreach (cell, transition->aggref->aggdistinct)
	{
		SortGroupClause *clause = lfirst(cell);
		TargetEntry *target = get_sortgroupclause_tle(clause, transition->aggref->args);

		schema.eq_operators[nkeys + target->resno - 1] = clause->eqop;
		schema.collations[nkeys + target->resno - 1] = exprCollation((Node *) target->expr);
	}
	return schema;
}

static void
stores_open(AggregateOperator *op, int64 query_id, int64 last_batch)
{
	StateSchema schema = groups_schema(op, query_id);

	op->groups = op->provider->open(&schema, last_batch);
	op->base.stores = list_make1(op->groups);
	for (int i = 0; i < op->nsets; i++)
	{
		StateSchema set = set_schema(op, &op->sets[i], schema);

		op->sets[i].probe = MakeSingleTupleTableSlot(set.keydesc, &TTSOpsVirtual);
		op->sets[i].store = op->provider->open(&set, last_batch);
		op->base.stores = lappend(op->base.stores, op->sets[i].store);
	}
	op->key_slot = MakeSingleTupleTableSlot(schema.keydesc, &TTSOpsMinimalTuple);
	op->output_slot = MakeSingleTupleTableSlot(op->spec->base.output, &TTSOpsVirtual);
}

StateSchema
aggregate_list_schema(AggregateOperator *op)
{
	StateSchema schema = op->groups->schema;
	TupleDesc all = schema.keydesc;

	schema.keydesc = CreateTemplateTupleDesc(all->natts - 1);
	for (int i = 1; i < all->natts; i++)
		TupleDescCopyEntry(schema.keydesc, i, all, i);
	return schema;
}

void
aggregate_init(AggregateOperator *op, const OperatorOps *ops, OperatorSpec *spec, int64 query_id, const StateProvider *provider, int64 last_batch)
{
	MemoryContext context = op->base.context;

	op->base.ops = ops;
	op->base.spec = spec;
	op->spec = (AggregateSpec *) spec;
	op->provider = provider;
	op->merges = op->spec->merges;
	op->combines = op->merges || op->spec->combines;
	op->closes = spec->has_watermark && spec->output_mode != OUTPUT_COMPLETE;
	op->row_context = AllocSetContextCreate(context, "stream aggregate row", ALLOCSET_DEFAULT_SIZES);
	op->batch_context = AllocSetContextCreate(context, "stream aggregate batch", ALLOCSET_DEFAULT_SIZES);
	op->aggstate = aggstate_create(op);
	aggregate_prepare_calls(op);
	stores_open(op, query_id, last_batch);
	contexts_create(op);
}

static Operator *
aggregate_open(OperatorSpec *spec, int64 query_id, const StateProvider *provider, int64 last_batch)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "stream aggregate", ALLOCSET_DEFAULT_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(context);
	AggregateOperator *op = palloc0(sizeof(AggregateOperator));

	op->base.context = context;
	aggregate_init(op, &aggregate_operator, spec, query_id, provider, last_batch);
	op->group = row_group_create(spec->input[0]);
	MemoryContextSwitchTo(caller);
	return &op->base;
}

/* Without stores, to be looked at. */
static AggregateOperator *
aggregate_describe(OperatorSpec *spec)
{
	AggregateOperator *op = palloc0(sizeof(AggregateOperator));

	op->spec = (AggregateSpec *) spec;
	op->merges = op->spec->merges;
	op->combines = op->merges || op->spec->combines;
	op->base.context = CurrentMemoryContext;
	op->aggstate = aggstate_create(op);
	aggregate_prepare_calls(op);
	return op;
}

/* Everything that opening would refuse, without opening: calls, key types, types of sets. */
void
aggregate_check(OperatorSpec *spec)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "stream aggregate check", ALLOCSET_DEFAULT_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(context);
	AggregateOperator *op = aggregate_describe(spec);
	StateSchema schema = groups_schema(op, -1);

	state_check_key(&schema);
	for (int i = 0; i < op->nsets; i++)
	{
		StateSchema set = set_schema(op, &op->sets[i], schema);

		state_check_key(&set);
	}
	MemoryContextSwitchTo(caller);
	MemoryContextDelete(context);
}

/* Values are read as they were saved, and written as they are now. */
void
aggregate_extend(Operator *base, OperatorSpec *saved, List *places)
{
	AggregateOperator *op = (AggregateOperator *) base;
	MemoryContext caller = MemoryContextSwitchTo(base->context);
	AggregateOperator *before = aggregate_describe(saved);
	StateEntry *entry;

	if (op->nsets > 0 || before->nsets > 0)
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED), errmsg("a query with DISTINCT aggregates cannot be given new ones over its saved state"),
						errhint("Start afresh with stream.reset_query first, or make a new query.")));
	op->nlayout = before->ntransitions;
	op->layout = palloc(sizeof(int) * Max(op->nlayout, 1));
	for (int i = 0; i < before->nfinals; i++)
		op->layout[before->finals[i].transition] = op->finals[list_nth_int(places, i)].transition;
	op->provider->scan_start(op->groups);
	while ((entry = op->provider->scan_next(op->groups)))
		op->provider->changed(op->groups, entry);
	op->layout = NULL;
	MemoryContextSwitchTo(caller);
}

/* ---- one batch ---- */

static void
aggregate_begin(Operator *base, const BatchInfo *batch)
{
	AggregateOperator *op = (AggregateOperator *) base;

	aggregate_check_permissions(op);
	base->batch = batch;
	memset(&base->metrics, 0, sizeof(base->metrics));
	MemoryContextReset(op->batch_context);
	row_group_clear(op->group);
}

static inline bool
is_late(AggregateOperator *op, TupleTableSlot *slot)
{
	int column = op->spec->event_time - 1;
	TimestampTz late = op->base.batch->late_watermark;

	if (slot->tts_isnull[column])
		return true;
	return late != DT_NOBEGIN && DatumGetTimestampTz(slot->tts_values[column]) <= late;
}

static void
row_receive(Operator *base, TupleTableSlot *slot)
{
	AggregateOperator *op = (AggregateOperator *) base;
	StateEntry *entry;
	bool created;

	if (op->closes && is_late(op, slot))
	{
		operator_late_row(base, slot);
		return;
	}
	entry = op->provider->put(op->groups, slot, &created);
	if (created)
	{
		entry->value = aggregate_value_create(op, op->provider->value_context(op->groups));
		if (op->closes)
			op->provider->set_expiry(op->groups, entry, DatumGetTimestampTz(slot->tts_values[op->spec->event_time - 1]));
	}
	aggregate_value_advance(op, entry->value, entry, slot);
}

static void
aggregate_receive(Operator *base, int input, TupleTableSlot *slot)
{
	AggregateOperator *op = (AggregateOperator *) base;

	row_group_receive(op->group, base, op->groups, row_receive, slot);
}

void
aggregate_drain(AggregateOperator *op)
{
	if (op->group) /* sliding windows hold none back */
		row_group_drain(op->group, &op->base, op->groups, row_receive);
}

TupleTableSlot *
aggregate_group_row(AggregateOperator *op, MinimalTuple key, Cell *cells)
{
	TupleTableSlot *slot = op->output_slot;
	int nkeys = op->spec->nkeys;

	ExecClearTuple(slot);
	if (nkeys > 0)
	{
		ExecStoreMinimalTuple(key, op->key_slot, false);
		slot_getallattrs(op->key_slot);
		memcpy(slot->tts_values, op->key_slot->tts_values, sizeof(Datum) * nkeys);
		memcpy(slot->tts_isnull, op->key_slot->tts_isnull, sizeof(bool) * nkeys);
	}
	memset(slot->tts_isnull + nkeys, true, sizeof(bool) * op->nfinals);
	for (int i = 0; cells && i < op->nfinals; i++)
		slot->tts_values[nkeys + i] = aggregate_value_final(op, i, cells, &slot->tts_isnull[nkeys + i]);
	return ExecStoreVirtualTuple(slot);
}

void
aggregate_group_row_done(AggregateOperator *op)
{
	ExecClearTuple(op->output_slot);
	ExecClearTuple(op->key_slot);
	ReScanExprContext(op->emit_context);
}

static void
emit(AggregateOperator *op, MinimalTuple key, Cell *cells, Tuplestorestate *out)
{
	CHECK_FOR_INTERRUPTS();
	tuplestore_puttupleslot(out, aggregate_group_row(op, key, cells));
	aggregate_group_row_done(op);
}

static void
emit_changed(AggregateOperator *op, Tuplestorestate *out)
{
	StateEntry *entry;

	op->provider->scan_changed(op->groups);
	while ((entry = op->provider->scan_changed_next(op->groups)))
		emit(op, entry->key, entry->value, out);
}

static void
emit_all(AggregateOperator *op, Tuplestorestate *out)
{
	StateEntry *entry;
	bool any = false;

	op->provider->scan_start(op->groups);
	while ((entry = op->provider->scan_next(op->groups)))
	{
		emit(op, entry->key, entry->value, out);
		any = true;
	}
	/* Without GROUP BY there is one row, even of nothing. */
	if (!any && op->spec->nkeys == 0)
		emit(op, NULL, aggregate_value_create(op, op->emit_context->ecxt_per_tuple_memory), out);
}

/* Removes what the watermark has closed, and in append mode emits it: it is final now. */
static void
evict(AggregateOperator *op, Tuplestorestate *out)
{
	TimestampTz watermark = op->base.batch->evict_watermark;
	StateEntry *entry;

	if (watermark == DT_NOBEGIN)
		return;
	while ((entry = op->provider->next_expired(op->groups, watermark)))
	{
		if (op->base.batch->output_mode == OUTPUT_APPEND)
			emit(op, entry->key, entry->value, out);
		op->provider->remove(op->groups, entry);
		op->base.metrics.removed++;
	}
	for (int i = 0; i < op->nsets; i++)
	{
		while ((entry = op->provider->next_expired(op->sets[i].store, watermark)))
			op->provider->remove(op->sets[i].store, entry);
	}
}

void
aggregate_measure(AggregateOperator *op)
{
	ListCell *lc;

	op->base.metrics.rows_total = op->provider->metrics(op->groups).rows;
	op->base.metrics.bytes = 0;
	foreach (lc, op->base.stores)
		op->base.metrics.bytes += op->provider->metrics(lfirst(lc)).bytes;
}

static void
aggregate_finish(Operator *base, Tuplestorestate *out)
{
	AggregateOperator *op = (AggregateOperator *) base;

	aggregate_drain(op);
	if (base->batch->output_mode == OUTPUT_COMPLETE)
		emit_all(op, out);
	else if (base->batch->output_mode == OUTPUT_UPDATE)
		emit_changed(op, out);
	base->metrics.updated = op->provider->metrics(op->groups).changed;
	if (op->closes)
		evict(op, out);
	aggregate_measure(op);
}

/* ---- around the commit ---- */

void
aggregate_flush(Operator *base)
{
	operator_flush(base);
	aggregate_measure((AggregateOperator *) base);
}

void
aggregate_committed(Operator *base)
{
	operator_committed(base);
	base->batch = NULL;
}

/* The emission may have died half-way: what its functions registered belongs to the aborted transaction and is not called. */
void
aggregate_forget(Operator *base, int64 last_batch)
{
	AggregateOperator *op = (AggregateOperator *) base;
	MemoryContext caller = MemoryContextSwitchTo(base->context);

	operator_forget(base, last_batch);
	FreeExprContext(op->emit_context, false);
	op->emit_context = CreateStandaloneExprContext();
	op->aggstate->curaggcontext = op->live_context;
	op->aggstate->curperagg = NULL;
	MemoryContextReset(op->row_context);
	base->batch = NULL;
	MemoryContextSwitchTo(caller);
}

/* Whatever would expire: one batch more for every move of the watermark, as Spark has it. */
bool
aggregate_wants_batch(Operator *base, TimestampTz evicted_at, TimestampTz next_watermark)
{
	return ((AggregateOperator *) base)->closes && next_watermark > evicted_at;
}

/* Groups show their results so far; sets their members. */
void
aggregate_show(Operator *base, StateStore *store, StateEntry *entry, OperatorShow tell, void *arg)
{
	AggregateOperator *op = (AggregateOperator *) base;

	if (store != op->groups)
	{
		operator_show_key(base, store, entry, tell, arg);
		return;
	}
	tell(arg, aggregate_group_row(op, entry->key, entry->removed ? NULL : entry->value), op->spec->nkeys, false, entry->expires);
	aggregate_group_row_done(op);
}

void
aggregate_close(Operator *base)
{
	AggregateOperator *op = (AggregateOperator *) base;

	FreeExprContext(op->emit_context, false); /* nothing is left registered, unless a batch died */
	operator_close_stores(base);
	MemoryContextDelete(base->context);
}

const OperatorOps aggregate_operator = {.name = "stateStoreSave",
										.open = aggregate_open,
										.begin = aggregate_begin,
										.receive = aggregate_receive,
										.finish = aggregate_finish,
										.flush = aggregate_flush,
										.committed = aggregate_committed,
										.forget = aggregate_forget,
										.wants_batch = aggregate_wants_batch,
										.close = aggregate_close,
										.check = aggregate_check,
										.extend = aggregate_extend,
										.show = aggregate_show};
