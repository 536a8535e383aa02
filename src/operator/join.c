/*
 * join.c: stream-stream joins: each row meets the rows of the other side that came before it, then waits in state for those still to come.
 *
 * State per side: rows, one entry each under (join keys, serial number), so that a batch costs what it brings, however many rows a key holds; the rows of
 * a key are found by scanning the state by prefix. The left input is fed first: its rows meet the right state; then right rows meet the left state, this
 * batch's left rows included. Eviction comes last, so no match is missed.
 */
#include "operator/operator.h"

#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "optimizer/optimizer.h"
#include "state/row_codec.h"
#include "util/compat.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#define SERIAL_BITS 32 /* rows of one batch and side */

#define INT8_EQUAL_OPERATOR 410 /* = of int8; pg_operator_d.h has no name for it */

/* A stored row: the live value of a state entry. */
typedef struct JoinRow
{
	bool matched;
	MinimalTuple payload;
} JoinRow;

typedef struct Side
{
	StateStore *store;
	RowCodec *codec;	   /* of payloads */
	TupleTableSlot *key;   /* join keys and serial number, for the store */
	TupleTableSlot *row;   /* a stored row as the qual sees it: an input row whose payload is filled */
	TupleTableSlot *payload;
	TupleTableSlot *shown; /* to the state reader */
	int64 next_serial;	   /* of this batch */
	bool preserved;		   /* unmatched rows are emitted with NULLs for the other side */
} Side;

typedef struct StreamJoin
{
	Operator base;
	Side sides[2];
	ExprContext *econtext;
	ExprState *qual;
	TupleTableSlot *output;
} StreamJoin;

/* ---- values ---- */

static void
join_serialize(void *arg, StateEntry *entry, StringInfo out)
{
	JoinRow *row = entry->value;

	appendStringInfoChar(out, row->matched ? 1 : 0);
	row_codec_write(((Side *) arg)->codec, row->payload, out);
}

static void
join_deserialize(void *arg, StateEntry *entry, const char *bytes, Size len, MemoryContext context)
{
	MemoryContext caller = MemoryContextSwitchTo(context);
	JoinRow *row = palloc0(sizeof(JoinRow));

	row->matched = bytes[0] != 0;
	row->payload = row_codec_read(((Side *) arg)->codec, bytes + 1, len - 1);
	entry->value = row;
	MemoryContextSwitchTo(caller);
}

static void
join_release(void *arg, StateEntry *entry)
{
	JoinRow *row = entry->value;

	if (row)
	{
		pfree(row->payload);
		pfree(row);
	}
	entry->value = NULL;
}

static const StateValueOps join_value_ops = {join_serialize, join_deserialize, join_release};

/* ---- open ---- */

static StateSchema
side_schema(JoinSpec *spec, int i, int64 query_id)
{
	StateSchema schema = {.query_id = query_id, .operator_id = spec->base.id, .state_name = i == 0 ? "left" : "right"};

	schema.keydesc = CreateTemplateTupleDesc(spec->nkeys + 1);
	schema.eq_operators = palloc(sizeof(Oid) * (spec->nkeys + 1));
	schema.collations = palloc0(sizeof(Oid) * (spec->nkeys + 1));
	for (int k = 1; k <= spec->nkeys; k++)
	{
		TupleDescCopyEntry(schema.keydesc, k, spec->base.input[i], k);
		schema.eq_operators[k - 1] = spec->eq_operators[k - 1];
		schema.collations[k - 1] = spec->collations[k - 1];
	}
	TupleDescInitEntry(schema.keydesc, spec->nkeys + 1, "serial", INT8OID, -1, 0);
	schema.eq_operators[spec->nkeys] = INT8_EQUAL_OPERATOR;
	schema.value_ops = &join_value_ops;
	schema.nprefix = spec->nkeys;
	schema.releasable = true;
	return schema;
}

static TupleDesc
side_payload(JoinSpec *spec, int i)
{
	TupleDesc payload = CreateTemplateTupleDesc(spec->npayload[i]);

	for (int p = 1; p <= spec->npayload[i]; p++)
		TupleDescCopyEntry(payload, p, spec->base.input[i], spec->nkeys + p);
	return payload;
}

static void
join_check(OperatorSpec *base)
{
	for (int i = 0; i < 2; i++)
	{
		StateSchema schema = side_schema((JoinSpec *) base, i, -1);

		state_check_key(&schema);
		(void) row_codec_create(side_payload((JoinSpec *) base, i));
	}
}

static void
side_open(StreamJoin *join, int i, int64 query_id, const StateProvider *provider, int64 last_batch)
{
	JoinSpec *spec = (JoinSpec *) join->base.spec;
	Side *side = &join->sides[i];
	StateSchema schema = side_schema(spec, i, query_id);
	TupleDesc payload = side_payload(spec, i);

	schema.operator_private = side;
	side->codec = row_codec_create(payload);
	side->key = MakeSingleTupleTableSlot(schema.keydesc, &TTSOpsMinimalTuple);
	side->row = MakeSingleTupleTableSlot(spec->base.input[i], &TTSOpsVirtual);
	side->payload = MakeSingleTupleTableSlot(payload, &TTSOpsMinimalTuple);
	side->preserved = spec->type == STREAM_JOIN_FULL || spec->type == (i == 0 ? STREAM_JOIN_LEFT : STREAM_JOIN_RIGHT);
	side->store = provider->open(&schema, last_batch);
	join->base.stores = lappend(join->base.stores, side->store);
}

static Operator *
join_open(OperatorSpec *base, int64 query_id, const StateProvider *provider, int64 last_batch)
{
	JoinSpec *spec = (JoinSpec *) base;
	StreamJoin *join = palloc0(sizeof(StreamJoin));

	join->base.ops = &join_operator;
	join->base.spec = base;
	join->base.context = CurrentMemoryContext;
	for (int i = 0; i < 2; i++)
		side_open(join, i, query_id, provider, last_batch);
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
stored_row_load(StreamJoin *join, int i, JoinRow *row, TupleTableSlot *incoming)
{
	JoinSpec *spec = (JoinSpec *) join->base.spec;
	Side *side = &join->sides[i];
	TupleTableSlot *slot = side->row;

	ExecStoreMinimalTuple(row->payload, side->payload, false);
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
		JoinRow *row = entry->value;

		/* Semi: a left row counts once. */
		if (semi && i == 1 && row->matched)
			continue;
		stored_row_load(join, 1 - i, row, incoming);
		if (!pair_qualifies(join, i, incoming))
			continue;
		matched = true;
		emit_pair(join, i, incoming, other);
		if (!row->matched && (other->preserved || semi))
		{
			row->matched = true;
			provider->changed(other->store, entry);
		}
		if (semi && i == 0)
			break;
	}
	return matched;
}

static void
row_store(StreamJoin *join, int i, TupleTableSlot *slot, TimestampTz expires, bool matched)
{
	JoinSpec *spec = (JoinSpec *) join->base.spec;
	Side *side = &join->sides[i];
	const StateProvider *provider = side->store->provider;
	TupleTableSlot *key = side->key;
	MemoryContext old;
	StateEntry *entry;
	JoinRow *row;
	bool created;

	ExecClearTuple(key);
	memcpy(key->tts_values, slot->tts_values, spec->nkeys * sizeof(Datum));
	memcpy(key->tts_isnull, slot->tts_isnull, spec->nkeys * sizeof(bool));
	key->tts_values[spec->nkeys] = Int64GetDatum(side->next_serial++);
	key->tts_isnull[spec->nkeys] = false;
	ExecStoreVirtualTuple(key);
	entry = provider->put(side->store, key, &created);
	ExecClearTuple(key);
	old = MemoryContextSwitchTo(provider->value_context(side->store));
	row = palloc0(sizeof(JoinRow));
	row->matched = matched;
	row->payload = heap_form_minimal_tuple(side->payload->tts_tupleDescriptor, slot->tts_values + spec->nkeys, slot->tts_isnull + spec->nkeys);
	MemoryContextSwitchTo(old);
	entry->value = row;
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

		if (att->attlen == -1 && !slot->tts_isnull[p] && VARATT_IS_EXTENDED(DatumGetPointer(slot->tts_values[p])) &&
			!VARATT_IS_SHORT(DatumGetPointer(slot->tts_values[p])))
			slot->tts_values[p] = PointerGetDatum(PG_DETOAST_DATUM(slot->tts_values[p]));
	}
}

static void
join_receive(Operator *op, int i, TupleTableSlot *slot)
{
	StreamJoin *join = (StreamJoin *) op;
	JoinSpec *spec = (JoinSpec *) op->spec;
	Side *side = &join->sides[i];
	TimestampTz expires;
	bool matched = false, dead;

	slot_getallattrs(slot);
	if (spec->event_time[i] > 0 && column_time(slot, spec->event_time[i], DT_NOBEGIN) <= op->batch->late_watermark)
	{
		operator_late_row(op, slot);
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
	if (i == 1 && expires <= op->batch->evict_watermark && (matched || !side->preserved))
		return;
	row_store(join, i, slot, expires, matched);
}

/* ---- end of the batch ---- */

static void
side_evict(StreamJoin *join, int i)
{
	Side *side = &join->sides[i];
	StateEntry *entry;

	while ((entry = side->store->provider->next_expired(side->store, join->base.batch->evict_watermark)) != NULL)
	{
		JoinRow *row = entry->value;

		if (side->preserved && !row->matched)
		{
			ExecStoreMinimalTuple(row->payload, side->payload, false);
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

static bool
has_column(TupleDesc desc, int first, const char *name)
{
	for (int column = first; column < desc->natts; column++)
		if (namestrcmp(&TupleDescAttr(desc, column)->attname, name) == 0)
			return true;
	return false;
}

/* Columns lie behind what there is for each, so one more makes another descriptor. */
static TupleDesc
add_column(TupleDesc desc, TupleDesc from, int column)
{
	TupleDesc more = CreateTemplateTupleDesc(desc->natts + 1);

	for (int i = 1; i <= desc->natts; i++)
		TupleDescCopyEntry(more, i, desc, i);
	TupleDescCopyEntry(more, more->natts, from, column);
	return more;
}

/* What people see of a side's rows: the join keys, then the row: its columns, and those of the keys that are not among them. */
static TupleTableSlot *
shown_slot(StreamJoin *join, int i)
{
	JoinSpec *spec = (JoinSpec *) join->base.spec;
	TupleDesc input = spec->base.input[i], desc = CreateTemplateTupleDesc(spec->nkeys + spec->npayload[i]);
	Side *side = &join->sides[i];

	for (int column = 1; column <= desc->natts; column++)
		TupleDescCopyEntry(desc, column, input, column);
	for (int key = 1; key <= spec->nkeys; key++)
		if (!has_column(desc, spec->nkeys, NameStr(TupleDescAttr(input, key - 1)->attname)))
			desc = add_column(desc, input, key);
	side->shown = MakeSingleTupleTableSlot(desc, &TTSOpsVirtual);
	return side->shown;
}

/* Values of the keys, again, for those columns of the row that are not stored with it. */
static void
show_keys_in_row(TupleTableSlot *row, int nkeys, int at)
{
	TupleDesc desc = row->tts_tupleDescriptor;

	for (int key = 0; at < desc->natts && key < nkeys; key++)
	{
		if (namestrcmp(&TupleDescAttr(desc, key)->attname, NameStr(TupleDescAttr(desc, at)->attname)) != 0)
			continue;
		row->tts_values[at] = row->tts_values[key];
		row->tts_isnull[at++] = row->tts_isnull[key];
	}
}

static void
join_show(Operator *op, StateStore *store, StateEntry *entry, OperatorShow tell, void *arg)
{
	StreamJoin *join = (StreamJoin *) op;
	JoinSpec *spec = (JoinSpec *) op->spec;
	int i = store == join->sides[0].store ? 0 : 1;
	Side *side = &join->sides[i];
	MemoryContext caller = MemoryContextSwitchTo(op->context);
	TupleTableSlot *row = ExecClearTuple(side->shown ? side->shown : shown_slot(join, i));

	MemoryContextSwitchTo(caller);
	memset(row->tts_isnull, true, row->tts_tupleDescriptor->natts * sizeof(bool));
	ExecStoreMinimalTuple(entry->key, side->key, false);
	slot_getallattrs(side->key);
	memcpy(row->tts_values, side->key->tts_values, spec->nkeys * sizeof(Datum));
	memcpy(row->tts_isnull, side->key->tts_isnull, spec->nkeys * sizeof(bool));
	if (!entry->removed)
	{
		ExecStoreMinimalTuple(((JoinRow *) entry->value)->payload, side->payload, false);
		slot_getallattrs(side->payload);
		memcpy(row->tts_values + spec->nkeys, side->payload->tts_values, spec->npayload[i] * sizeof(Datum));
		memcpy(row->tts_isnull + spec->nkeys, side->payload->tts_isnull, spec->npayload[i] * sizeof(bool));
		show_keys_in_row(row, spec->nkeys, spec->nkeys + spec->npayload[i]);
	}
	tell(arg, ExecStoreVirtualTuple(row), spec->nkeys, false, entry->expires);
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
	.check = join_check,
	.show = join_show,
};
