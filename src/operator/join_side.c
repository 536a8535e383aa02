/*
 * join_side.c: one side of a stream-stream join: its rows in state, and what people see of them.
 * An entry's key is the join keys and a serial number, its value the row's payload.
 */
#include "operator/join.h"

#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "utils/builtins.h"
#include "utils/memutils.h"

#define INT8_EQUAL_OPERATOR 410 /* = of int8; pg_operator_d.h has no name for it */

/* ---- values: a waiting row's payload; entry->touched: it has had a match ---- */

static void
join_serialize(void *arg, StateEntry *entry, StringInfo out)
{
	appendStringInfoChar(out, entry->touched ? 1 : 0);
	row_codec_write(((Side *) arg)->codec, entry->value, out);
}

static void
join_deserialize(void *arg, StateEntry *entry, const char *bytes, Size len, MemoryContext context)
{
	MemoryContext caller = MemoryContextSwitchTo(context);

	entry->touched = bytes[0] != 0;
	entry->value = row_codec_read(((Side *) arg)->codec, bytes + 1, len - 1);
	MemoryContextSwitchTo(caller);
}

static void
join_release(void *arg, StateEntry *entry)
{
	if (entry->value)
		pfree(entry->value);
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
	schema.unique = schema.releasable = true;
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

void
join_side_check(OperatorSpec *base)
{
	for (int i = 0; i < 2; i++)
	{
		StateSchema schema = side_schema((JoinSpec *) base, i, -1);

		state_check_key(&schema);
		(void) row_codec_create(side_payload((JoinSpec *) base, i));
	}
}

void
join_side_open(StreamJoin *join, int i, int64 query_id, const StateProvider *provider, int64 last_batch)
{
	JoinSpec *spec = (JoinSpec *) join->base.spec;
	Side *side = &join->sides[i];
	StateSchema schema = side_schema(spec, i, query_id);
	TupleDesc payload = side_payload(spec, i);

	schema.operator_private = side;
	side->codec = row_codec_create(payload);
	side->key = MakeSingleTupleTableSlot(schema.keydesc, &TTSOpsMinimalTuple);
	side->group = row_group_create(spec->base.input[i]);
	for (int n = 0; n < STATE_EXPECT_MAX; n++)
		side->keys[n] = MakeSingleTupleTableSlot(schema.keydesc, &TTSOpsVirtual);
	side->row = MakeSingleTupleTableSlot(spec->base.input[i], &TTSOpsVirtual);
	side->payload = MakeSingleTupleTableSlot(payload, &TTSOpsMinimalTuple);
	side->preserved = spec->type == STREAM_JOIN_FULL || spec->type == (i == 0 ? STREAM_JOIN_LEFT : STREAM_JOIN_RIGHT);
	side->store = provider->open(&schema, last_batch);
	join->base.stores = lappend(join->base.stores, side->store);
}

/* ---- the state reader ---- */

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

void
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
		ExecStoreMinimalTuple(entry->value, side->payload, false);
		slot_getallattrs(side->payload);
		memcpy(row->tts_values + spec->nkeys, side->payload->tts_values, spec->npayload[i] * sizeof(Datum));
		memcpy(row->tts_isnull + spec->nkeys, side->payload->tts_isnull, spec->npayload[i] * sizeof(bool));
		show_keys_in_row(row, spec->nkeys, spec->nkeys + spec->npayload[i]);
	}
	tell(arg, ExecStoreVirtualTuple(row), spec->nkeys, false, entry->expires);
}
