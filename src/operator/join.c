/*
 * join.c: stream-stream joins: each row meets the rows of the other side that came before it, then waits in state for those still to come.
 *
 * State per side: rows, one entry each under (join keys, serial number), so that a batch costs what it brings, however many rows a key holds; the rows of
 * a key are found by scanning the state by prefix. The left input is fed first: its rows meet the right state; then right rows meet the left state, this
 * batch's left rows included. Eviction comes last, so no match is missed.
 */
#include "operator/join.h"

#include "executor/executor.h"
#include "optimizer/optimizer.h"
#include "util/compat.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#define SERIAL_BITS 32 /* rows of one batch and side */

/* ---- open ---- */

static Operator *
join_open(OperatorSpec *base, int64 query_id, const StateProvider *provider, int64 last_batch)
{
	JoinSpec *spec = (JoinSpec *) base;
	StreamJoin *join = palloc0(sizeof(StreamJoin));

	join->base.ops = &join_operator;
	join->base.spec = base;
	join->base.context = CurrentMemoryContext;
	for (int i = 0; i < 2; i++)
		join_side_open(join, i, query_id, provider, last_batch);
	join->econtext = CreateStandaloneExprContext();
	join->qual = spec->qual ? ExecInitQual((List *) expression_planner((Expr *) spec->qual), NULL) : NULL;
	join->output = MakeSingleTupleTableSlot(base->output, &TTSOpsVirtual);
	return &join->base;
}

static void
join_begin(Operator *op, const BatchInfo *batch)
{
	StreamJoin *join = (StreamJoin *) op;

	op->batch = batch;
	join->econtext->ecxt_param_list_info = batch_info_params(batch);
	/* Above all serial numbers of earlier batches, without having to know them. */
	join->sides[0].next_serial = join->sides[1].next_serial = batch->batch_id << SERIAL_BITS;
	for (int i = 0; i < 2; i++)
		row_group_clear(join->sides[i].group);
}

/* ---- rows out ---- */

static void
output_side(StreamJoin *join, int i, const Datum *payload, const bool *nulls)
{
	JoinSpec *spec = (JoinSpec *) join->base.spec;
	int at = i == 0 ? 0 : spec->npayload[0];

	if (i == 1 && spec->type == STREAM_JOIN_SEMI)
		return;
	for (int p = 0; p < spec->npayload[i]; p++)
	{
		join->output->tts_values[at + p] = payload ? payload[p] : (Datum) 0;
		join->output->tts_isnull[at + p] = payload ? nulls[p] : true;
	}
}

static void
output_emit(StreamJoin *join)
{
	ExecStoreVirtualTuple(join->output);
	tuplestore_puttupleslot(join->base.out, join->output);
}

/* A row of side i without a match. */
static void
emit_unmatched(StreamJoin *join, int i, const Datum *payload, const bool *nulls)
{
	ExecClearTuple(join->output);
	output_side(join, i, payload, nulls);
	output_side(join, 1 - i, NULL, NULL);
	output_emit(join);
}

/* ---- rows in ---- */

/* The stored row's payload into the slot the qual reads. Keys need not be there: they are equal to the incoming row's. */
static void
stored_row_load(StreamJoin *join, int i, StateEntry *entry, TupleTableSlot *incoming)
{
	JoinSpec *spec = (JoinSpec *) join->base.spec;
	Side *side = &join->sides[i];
	TupleTableSlot *slot = side->row;

	ExecStoreMinimalTuple(entry->value, side->payload, false);
	slot_getallattrs(side->payload);
	ExecClearTuple(slot);
	memset(slot->tts_isnull, true, slot->tts_tupleDescriptor->natts * sizeof(bool));
	memcpy(slot->tts_values, incoming->tts_values, spec->nkeys * sizeof(Datum));
	memcpy(slot->tts_isnull, incoming->tts_isnull, spec->nkeys * sizeof(bool));
	memcpy(slot->tts_values + spec->nkeys, side->payload->tts_values, spec->npayload[i] * sizeof(Datum));
	memcpy(slot->tts_isnull + spec->nkeys, side->payload->tts_isnull, spec->npayload[i] * sizeof(bool));
	ExecStoreVirtualTuple(slot);
}

static bool
pair_qualifies(StreamJoin *join, int incoming_side, TupleTableSlot *incoming)
{
	ExprContext *econtext = join->econtext;

	if (join->qual == NULL)
		return true;
	ResetExprContext(econtext);
	econtext->ecxt_outertuple = incoming_side == 0 ? incoming : join->sides[0].row;
	econtext->ecxt_innertuple = incoming_side == 0 ? join->sides[1].row : incoming;
	return ExecQual(join->qual, econtext);
}

static void
emit_pair(StreamJoin *join, int i, TupleTableSlot *incoming, Side *other)
{
	JoinSpec *spec = (JoinSpec *) join->base.spec;

	ExecClearTuple(join->output);
	output_side(join, i, incoming->tts_values + spec->nkeys, incoming->tts_isnull + spec->nkeys);
	output_side(join, 1 - i, other->payload->tts_values, other->payload->tts_isnull);
	output_emit(join);
}

/* The incoming row of side i against the other side's state. True: it has a match. */
static bool
row_probe(StreamJoin *join, int i, TupleTableSlot *incoming)
{
	JoinSpec *spec = (JoinSpec *) join->base.spec;
	bool semi = spec->type == STREAM_JOIN_SEMI;
	Side *other = &join->sides[1 - i];
	const StateProvider *provider = other->store->provider;
	bool matched = false;
	StateEntry *entry;

	provider->scan_prefix(other->store, incoming);
	while ((entry = provider->scan_prefix_next(other->store)) != NULL)
	{
		/* Semi: a left row counts once. */
		if (semi && i == 1 && entry->touched)
			continue;
		stored_row_load(join, 1 - i, entry, incoming);
		if (!pair_qualifies(join, i, incoming))
			continue;
		matched = true;
		emit_pair(join, i, incoming, other);
		if (!entry->touched && (other->preserved || semi))
		{
			entry->touched = true;
			provider->changed(other->store, entry);
		}
		if (semi && i == 0)
			break;
	}
	return matched;
}

static void
row_store(StreamJoin *join, int i, TupleTableSlot *slot, TupleTableSlot *key, TimestampTz expires, bool matched)
{
	JoinSpec *spec = (JoinSpec *) join->base.spec;
	Side *side = &join->sides[i];
	const StateProvider *provider = side->store->provider;
	MemoryContext caller;
	bool created;
	StateEntry *entry = provider->put(side->store, key, &created);

	caller = MemoryContextSwitchTo(provider->value_context(side->store));
	entry->value = heap_form_minimal_tuple(side->payload->tts_tupleDescriptor, slot->tts_values + spec->nkeys, slot->tts_isnull + spec->nkeys);
	MemoryContextSwitchTo(caller);
	entry->touched = matched;
	provider->set_expiry(side->store, entry, expires);
	join->base.metrics.updated++;
}

static bool
column_true(TupleTableSlot *slot, int column)
{
	return column == 0 || (!slot->tts_isnull[column - 1] && DatumGetBool(slot->tts_values[column - 1]));
}

static TimestampTz
column_time(TupleTableSlot *slot, int column, TimestampTz missing)
{
	return column == 0 || slot->tts_isnull[column - 1] ? missing : DatumGetTimestampTz(slot->tts_values[column - 1]);
}

static bool
keys_match_nothing(JoinSpec *spec, TupleTableSlot *slot)
{
	for (int k = 0; k < spec->nkeys; k++)
		if (slot->tts_isnull[k] && !spec->nulls_match[k])
			return true;
	return false;
}

/* Values of a row are kept by their bytes: toasted ones must be whole. */
static void
payload_detoast(StreamJoin *join, int i, TupleTableSlot *slot)
{
	JoinSpec *spec = (JoinSpec *) join->base.spec;

	for (int p = spec->nkeys; p < spec->nkeys + spec->npayload[i]; p++)
	{
		Form_pg_attribute att = TupleDescAttr(slot->tts_tupleDescriptor, p);

		if (att->attlen == -1 && !slot->tts_isnull[p] &&
			(VARATT_IS_EXTERNAL(DatumGetPointer(slot->tts_values[p])) || VARATT_IS_COMPRESSED(DatumGetPointer(slot->tts_values[p]))))
			slot->tts_values[p] = PointerGetDatum(PG_DETOAST_DATUM(slot->tts_values[p]));
	}
}

/* key: under which it waits. */
static void
row_receive(StreamJoin *join, int i, TupleTableSlot *slot, TupleTableSlot *key)
{
	JoinSpec *spec = (JoinSpec *) join->base.spec;
	const BatchInfo *batch = join->base.batch;
	Side *side = &join->sides[i];
	TimestampTz expires;
	bool matched = false, dead;

	if (spec->event_time[i] > 0 && column_time(slot, spec->event_time[i], DT_NOBEGIN) <= batch->late_watermark)
	{
		operator_late_row(&join->base, slot);
		return;
	}
	payload_detoast(join, i, slot);
	dead = !column_true(slot, spec->own[i]);
	if (!dead && !keys_match_nothing(spec, slot))
		matched = row_probe(join, i, slot);
	else if (dead || !side->preserved)
	{
		if (side->preserved)
			emit_unmatched(join, i, slot->tts_values + spec->nkeys, slot->tts_isnull + spec->nkeys);
		return;
	}
	if (spec->type == STREAM_JOIN_SEMI && i == 0 && matched)
		return;
	expires = column_time(slot, spec->expires[i], DT_NOEND);
	/* A right row that nothing can match any more need not wait, unless it is still to be emitted alone. */
	if (i == 1 && expires <= batch->evict_watermark && (matched || !side->preserved))
		return;
	row_store(join, i, slot, key, expires, matched);
}

/* The key of a row, which must outlive it. */
static TupleTableSlot *
row_key(StreamJoin *join, Side *side, int n, TupleTableSlot *slot)
{
	int nkeys = ((JoinSpec *) join->base.spec)->nkeys;
	TupleTableSlot *key = ExecClearTuple(side->keys[n]);

	memcpy(key->tts_values, slot->tts_values, nkeys * sizeof(Datum));
	memcpy(key->tts_isnull, slot->tts_isnull, nkeys * sizeof(bool));
	key->tts_values[nkeys] = Int64GetDatum(side->next_serial++);
	key->tts_isnull[nkeys] = false;
	return ExecStoreVirtualTuple(key);
}

/* The rows of a side that were held back. */
static void
group_receive(StreamJoin *join, int i)
{
	Side *side = &join->sides[i];
	StateStore *own = side->store, *other = join->sides[1 - i].store;
	RowGroup *group = side->group;

	for (int n = 0; n < group->n; n++)
		(void) row_key(join, side, n, group->rows[n]);
	other->provider->expect(other, group->rows, group->n, STATE_USE_PREFIX);
	own->provider->expect(own, side->keys, group->n, STATE_USE_NEW);
	for (int n = 0; n < group->n; n++)
		row_receive(join, i, group->rows[n], side->keys[n]);
	row_group_clear(group);
}

static bool
expects(StateStore *store)
{
	return store->provider->expects(store);
}

static void
join_receive(Operator *op, int i, TupleTableSlot *slot)
{
	StreamJoin *join = (StreamJoin *) op;
	Side *side = &join->sides[i], *other = &join->sides[1 - i];

	slot_getallattrs(slot);
	if (other->group->n > 0)
		group_receive(join, 1 - i);
	if (side->group->n == 0 && !expects(side->store) && !expects(other->store))
		row_receive(join, i, slot, row_key(join, side, 0, slot));
	else if (!row_group_add(side->group, slot))
		group_receive(join, i);
}

/* ---- end of the batch ---- */

static void
side_evict(StreamJoin *join, int i)
{
	Side *side = &join->sides[i];
	StateEntry *entry;

	while ((entry = side->store->provider->next_expired(side->store, join->base.batch->evict_watermark)) != NULL)
	{
		if (side->preserved && !entry->touched)
		{
			ExecStoreMinimalTuple(entry->value, side->payload, false);
			slot_getallattrs(side->payload);
			emit_unmatched(join, i, side->payload->tts_values, side->payload->tts_isnull);
			ExecClearTuple(side->payload);
		}
		side->store->provider->remove(side->store, entry);
		join->base.metrics.removed++;
	}
}

static void
join_finish(Operator *op, Tuplestorestate *out)
{
	StreamJoin *join = (StreamJoin *) op;

	for (int i = 0; i < 2; i++)
		group_receive(join, i);
	for (int i = 0; i < 2; i++)
	{
		ExecClearTuple(join->sides[i].row);
		ExecClearTuple(join->sides[i].payload);
		side_evict(join, i);
	}
	ExecClearTuple(join->output);
}

static bool
join_wants_batch(Operator *op, TimestampTz evicted_at, TimestampTz next_watermark)
{
	return ((JoinSpec *) op->spec)->bounded && next_watermark > evicted_at;
}

static void
join_close(Operator *op)
{
	StreamJoin *join = (StreamJoin *) op;

	operator_close_stores(op);
	FreeExprContext(join->econtext, false);
}

const OperatorOps join_operator = {
	.name = "symmetricHashJoin",
	.open = join_open,
	.begin = join_begin,
	.receive = join_receive,
	.finish = join_finish,
	.flush = operator_flush,
	.committed = operator_committed,
	.forget = operator_forget,
	.wants_batch = join_wants_batch,
	.close = join_close,
	.check = join_side_check,
	.show = join_show,
};
