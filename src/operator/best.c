/*
 * best.c: the best n rows of each key, in the order an ORDER BY gives: DISTINCT ON … ORDER BY (n = 1), row_number() … <= n.
 * A row goes into its key's list and pushes out the last one; of equal rows the earlier stays ahead. When all rows have come, what each list has
 * gained, and what left it, is emitted: rows that came and went within the batch are never seen.
 */
#include "operator/best.h"

#include "executor/executor.h"
#include "miscadmin.h"
#include "util/compat.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

/* ---- opening ---- */

static TupleDesc
columns_of(TupleDesc all, int from, int n)
{
	TupleDesc desc = CreateTemplateTupleDesc(n);

	for (int i = 1; i <= n; i++)
		TupleDescCopyEntry(desc, i, all, from + i);
	return desc;
}

static StateSchema
best_schema(Best *best, int64 query_id)
{
	BestSpec *spec = best->spec;
	StateSchema schema = {.query_id = query_id,
						  .operator_id = spec->base.id,
						  .state_name = "default",
						  .keydesc = columns_of(spec->base.input[0], 0, spec->nkeys),
						  .eq_operators = spec->eq_operators,
						  .collations = spec->collations,
						  .value_ops = &best_value_ops,
						  .operator_private = best};

	return schema;
}

static void
best_prepare(Best *best, OperatorSpec *base)
{
	BestSpec *spec = best->spec = (BestSpec *) base;

	best->kept = columns_of(base->input[0], spec->nkeys, spec->nkept);
	best->codecs = palloc0(sizeof(DatumCodec) * (spec->nkept + 1));
	for (int i = 0; i < spec->nkept; i++)
		codec_init(&best->codecs[i], TupleDescAttr(best->kept, i)->atttypid, TupleDescAttr(best->kept, i)->atttypmod);
	best->sort = palloc0(sizeof(SortSupportData) * (spec->nsort + 1));
	for (int i = 0; i < spec->nsort; i++)
	{
		best->sort[i].ssup_cxt = CurrentMemoryContext;
		best->sort[i].ssup_collation = spec->sort_collations[i];
		best->sort[i].ssup_nulls_first = spec->nulls_first[i];
		PrepareSortSupportFromOrderingOp(spec->sort_operators[i], &best->sort[i]);
	}
}

/* Everything that opening would refuse. */
static void
best_check(OperatorSpec *base)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "stream best check", ALLOCSET_DEFAULT_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(context);
	Best *best = palloc0(sizeof(Best));
	StateSchema schema;

	best_prepare(best, base);
	schema = best_schema(best, -1);
	state_check_key(&schema);
	MemoryContextSwitchTo(caller);
	MemoryContextDelete(context);
}

/* The state reader sees key, place where there are several, and what is kept. */
static TupleTableSlot *
shown_slot(Best *best)
{
	BestSpec *spec = best->spec;
	int place = spec->count > 1 ? 1 : 0;
	TupleDesc desc = CreateTemplateTupleDesc(spec->nkeys + place + spec->nkept);

	for (int i = 1; i <= spec->nkeys + place; i++)
		TupleDescCopyEntry(desc, i, spec->base.output, i);
	for (int i = 1; i <= spec->nkept; i++)
		TupleDescCopyEntry(desc, spec->nkeys + place + i, best->kept, i);
	return MakeSingleTupleTableSlot(desc, &TTSOpsVirtual);
}

static Operator *
best_open(OperatorSpec *base, int64 query_id, const StateProvider *provider, int64 last_batch)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "stream best", ALLOCSET_DEFAULT_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(context);
	Best *best = palloc0(sizeof(Best));
	StateSchema schema;

	best->base.ops = &best_operator;
	best->base.spec = base;
	best->base.context = context;
	best->provider = provider;
	best->row_context = AllocSetContextCreate(context, "stream best row", ALLOCSET_DEFAULT_SIZES);
	best->batch_context = AllocSetContextCreate(context, "stream best batch", ALLOCSET_DEFAULT_SIZES);
	best_prepare(best, base);
	best->probe = MakeSingleTupleTableSlot(best->kept, &TTSOpsMinimalTuple);
	schema = best_schema(best, query_id);
	best->store = provider->open(&schema, last_batch);
	best->base.stores = list_make1(best->store);
	best->key = MakeSingleTupleTableSlot(schema.keydesc, &TTSOpsMinimalTuple);
	best->output = MakeSingleTupleTableSlot(base->output, &TTSOpsVirtual);
	best->shown = shown_slot(best);
	MemoryContextSwitchTo(caller);
	return &best->base;
}

/* ---- one batch: rows ---- */

static void
best_begin(Operator *base, const BatchInfo *batch)
{
	Best *best = (Best *) base;

	base->batch = batch;
	memset(&base->metrics, 0, sizeof(base->metrics));
	MemoryContextReset(best->batch_context);
	best->serial++;
	best->ntouched = 0;
	best->maxtouched = 1024;
	best->touched = MemoryContextAlloc(best->batch_context, sizeof(TouchedKey) * best->maxtouched);
}

static void
touch(Best *best, StateEntry *entry)
{
	BestList *list = entry->value;
	TouchedKey *touched;

	if (entry->touched == best->serial)
		return;
	entry->touched = best->serial;
	if (best->ntouched == best->maxtouched)
	{
		best->maxtouched *= 2;
		best->touched = repalloc_huge(best->touched, sizeof(TouchedKey) * best->maxtouched);
	}
	touched = &best->touched[best->ntouched++];
	touched->entry = entry;
	touched->nbefore = list->n;
	touched->before = MemoryContextAlloc(best->batch_context, sizeof(BestRow *) * Max(list->n, 1));
	memcpy(touched->before, list->rows, sizeof(BestRow *) * list->n);
}

/* Does the input row come before a row of the list? Equal ones do not: the earlier stays. */
static bool
comes_before(Best *best, TupleTableSlot *input, BestRow *row)
{
	BestSpec *spec = best->spec;
	int order = 0;

	ExecStoreMinimalTuple(row->kept, best->probe, false);
	slot_getallattrs(best->probe);
	for (int i = 0; i < spec->nsort && order == 0; i++)
	{
		int column = spec->sort_columns[i];

		order = ApplySortComparator(input->tts_values[spec->nkeys + column], input->tts_isnull[spec->nkeys + column],
									best->probe->tts_values[column], best->probe->tts_isnull[column], &best->sort[i]);
	}
	return order < 0;
}

static int
place_of(Best *best, TupleTableSlot *input, BestList *list)
{
	int low = 0, high = list->n;

	while (low < high)
	{
		int middle = (low + high) / 2;

		if (comes_before(best, input, list->rows[middle]))
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

static MinimalTuple
kept_form(Best *best, TupleTableSlot *input)
{
	BestSpec *spec = best->spec;
	Datum *values = palloc(sizeof(Datum) * (spec->nkept + 1));
	bool *nulls = input->tts_isnull + spec->nkeys;
	MinimalTuple result;
	MemoryContext caller;

	for (int i = 0; i < spec->nkept; i++)
	{
		values[i] = input->tts_values[spec->nkeys + i];
		/* a pointer into a table's toast, or into memory of the row, would not last */
		if (!nulls[i] && TupleDescAttr(best->kept, i)->attlen == -1)
			values[i] = PointerGetDatum(PG_DETOAST_DATUM_PACKED(values[i]));
	}
	caller = MemoryContextSwitchTo(best->provider->value_context(best->store));
	result = heap_form_minimal_tuple(best->kept, values, nulls);
	MemoryContextSwitchTo(caller);
	return result;
}

/* Rows that were there before the batch are needed until it has been told that they left. */
static void
drop_last(Best *best, BestList *list)
{
	BestRow *last = list->rows[--list->n];

	last->dropped = true;
	if (last->born == best->serial)
		best_row_free(last);
}

static void
take(Best *best, TupleTableSlot *input)
{
	const StateProvider *provider = best->provider;
	StateEntry *entry = provider->get(best->store, input);
	BestList *list = entry ? entry->value : NULL;
	bool created = false;
	MemoryContext caller;
	MinimalTuple kept;
	int place;

	if (list && list->n == best->spec->count && !comes_before(best, input, list->rows[list->n - 1]))
		return;
	entry = provider->put(best->store, input, &created);
	if (created)
	{
		entry->value = best_list_create(best, provider->value_context(best->store));
		if (best->spec->closes > 0)
			provider->set_expiry(best->store, entry, DatumGetTimestampTz(input->tts_values[best->spec->closes - 1]));
	}
	list = entry->value;
	touch(best, entry);
	if (list->n == best->spec->count)
		drop_last(best, list);
	kept = kept_form(best, input);
	place = place_of(best, input, list);
	caller = MemoryContextSwitchTo(provider->value_context(best->store));
	best_list_insert(list, place, best_row_create(kept, best->serial));
	MemoryContextSwitchTo(caller);
}

static bool
is_late(Best *best, TupleTableSlot *input)
{
	int column = best->spec->closes;

	return column > 0 && (input->tts_isnull[column - 1] ||
						  DatumGetTimestampTz(input->tts_values[column - 1]) <= best->base.batch->late_watermark);
}

static void
best_receive(Operator *base, int input, TupleTableSlot *slot)
{
	Best *best = (Best *) base;
	MemoryContext caller;

	slot_getallattrs(slot);
	if (is_late(best, slot))
	{
		operator_late_row(base, slot);
		return;
	}
	caller = MemoryContextSwitchTo(best->row_context);
	take(best, slot);
	ExecClearTuple(best->probe);
	MemoryContextSwitchTo(caller);
	if (!best->row_context->isReset)
		MemoryContextReset(best->row_context);
}

/* ---- one batch: results ---- */

static void
emit(Best *best, StateEntry *entry, BestRow *row, int place, bool leaves, Tuplestorestate *out)
{
	BestSpec *spec = best->spec;
	TupleTableSlot *slot = best->output;

	CHECK_FOR_INTERRUPTS();
	ExecClearTuple(slot);
	ExecStoreMinimalTuple(entry->key, best->key, false);
	slot_getallattrs(best->key);
	ExecStoreMinimalTuple(row->kept, best->probe, false);
	slot_getallattrs(best->probe);
	memset(slot->tts_isnull, false, slot->tts_tupleDescriptor->natts);
	memcpy(slot->tts_values, best->key->tts_values, sizeof(Datum) * spec->nkeys);
	memcpy(slot->tts_isnull, best->key->tts_isnull, spec->nkeys);
	slot->tts_values[spec->nkeys] = Int64GetDatum(place);
	memcpy(slot->tts_values + spec->nkeys + 1, best->probe->tts_values, sizeof(Datum) * spec->nkept);
	memcpy(slot->tts_isnull + spec->nkeys + 1, best->probe->tts_isnull, spec->nkept);
	slot->tts_values[spec->nkeys + 1 + spec->nkept] = BoolGetDatum(leaves);
	ExecStoreVirtualTuple(slot);
	tuplestore_puttupleslot(out, slot);
	ExecClearTuple(slot);
	ExecClearTuple(best->key);
	ExecClearTuple(best->probe);
}

/* Every place that another row has taken. */
static void
emit_places(Best *best, TouchedKey *touched, Tuplestorestate *out)
{
	BestList *list = touched->entry->value;

	for (int i = 0; i < list->n; i++)
	{
		if (i < touched->nbefore && touched->before[i] == list->rows[i])
			continue;
		if (best->spec->leaves && i < touched->nbefore)
			emit(best, touched->entry, touched->before[i], i + 1, true, out);
		emit(best, touched->entry, list->rows[i], i + 1, false, out);
	}
}

/* Rows that went, rows that came; those that moved up or down are the same rows. */
static void
emit_rows(Best *best, TouchedKey *touched, Tuplestorestate *out)
{
	BestList *list = touched->entry->value;

	for (int i = 0; i < touched->nbefore; i++)
		if (touched->before[i]->dropped)
			emit(best, touched->entry, touched->before[i], i + 1, true, out);
	for (int i = 0; i < list->n; i++)
		if (list->rows[i]->born == best->serial)
			emit(best, touched->entry, list->rows[i], i + 1, false, out);
}

static void
best_finish(Operator *base, Tuplestorestate *out)
{
	Best *best = (Best *) base;
	StateEntry *entry;

	for (int64 i = 0; i < best->ntouched; i++)
	{
		TouchedKey *touched = &best->touched[i];

		if (best->spec->by_place)
			emit_places(best, touched, out);
		else
			emit_rows(best, touched, out);
		for (int row = 0; row < touched->nbefore; row++)
			if (touched->before[row]->dropped)
				best_row_free(touched->before[row]);
	}
	base->metrics.updated = best->ntouched;
	if (!base->spec->has_watermark)
		return;
	while ((entry = best->provider->next_expired(best->store, base->batch->evict_watermark)) != NULL)
	{
		best->provider->remove(best->store, entry);
		base->metrics.removed++;
	}
}

/* ---- the rest ---- */

static void
best_forget(Operator *base, int64 last_batch)
{
	Best *best = (Best *) base;

	operator_forget(base, last_batch);
	MemoryContextReset(best->row_context);
	best->ntouched = 0;
}

/* One row for each that is kept; a key that is gone shows itself. */
static void
best_show(Operator *base, StateStore *store, StateEntry *entry, OperatorShow tell, void *arg)
{
	Best *best = (Best *) base;
	BestSpec *spec = best->spec;
	BestList *list = entry->removed ? NULL : entry->value;
	TupleTableSlot *slot = best->shown;
	int place = spec->count > 1 ? 1 : 0;

	for (int i = 0; i < (list ? list->n : 1); i++)
	{
		ExecClearTuple(slot);
		memset(slot->tts_isnull, true, slot->tts_tupleDescriptor->natts);
		ExecStoreMinimalTuple(entry->key, best->key, false);
		slot_getallattrs(best->key);
		memcpy(slot->tts_values, best->key->tts_values, sizeof(Datum) * spec->nkeys);
		memcpy(slot->tts_isnull, best->key->tts_isnull, spec->nkeys);
		if (list)
		{
			ExecStoreMinimalTuple(list->rows[i]->kept, best->probe, false);
			slot_getallattrs(best->probe);
			slot->tts_values[spec->nkeys] = Int64GetDatum(i + 1);
			slot->tts_isnull[spec->nkeys] = false;
			memcpy(slot->tts_values + spec->nkeys + place, best->probe->tts_values, sizeof(Datum) * spec->nkept);
			memcpy(slot->tts_isnull + spec->nkeys + place, best->probe->tts_isnull, spec->nkept);
		}
		tell(arg, ExecStoreVirtualTuple(slot), spec->nkeys, false, entry->expires);
	}
	ExecClearTuple(slot);
	ExecClearTuple(best->probe);
	ExecClearTuple(best->key);
}

static void
best_close(Operator *base)
{
	operator_close_stores(base);
	MemoryContextDelete(base->context);
}

const OperatorOps best_operator = {.name = "keepBest",
								   .open = best_open,
								   .begin = best_begin,
								   .receive = best_receive,
								   .finish = best_finish,
								   .flush = operator_flush,
								   .committed = operator_committed,
								   .forget = best_forget,
								   .wants_batch = operator_wants_batch,
								   .close = best_close,
								   .check = best_check,
								   .show = best_show};
