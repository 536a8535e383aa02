/*
 * aggregate_partial.c: groups that were folded elsewhere, by a task over its share of a batch: given as bytes, taken into the live groups.
 * Key (of sliding windows: the pane's), closing time, transition values as the state would keep them. Danger: whoever folds must drop late rows, and the order of rows must not matter.
 */
#include "operator/aggregate.h"

#include "access/htup_details.h"
#include "access/nbtree.h"
#include "catalog/pg_proc.h"
#include "nodes/nodeFuncs.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rangetypes.h"
#include "utils/typcache.h"

/* ---- who can ---- */

/* Are equal values of the type the same to look at? Else the first one of a group is the one that is shown, and which is first must not change. */
static bool
type_is_exact(Oid type, Oid collation)
{
	TypeCacheEntry *cache = lookup_type_cache(type, TYPECACHE_BTREE_OPFAMILY | TYPECACHE_RANGE_INFO | TYPECACHE_DOMAIN_BASE_INFO);
	Oid function;

	if (cache->typtype == TYPTYPE_DOMAIN)
		return type_is_exact(cache->domainBaseType, collation);
	if (cache->rngelemtype)
		return type_is_exact(cache->rngelemtype->type_id, cache->rng_collation);
	if (type == TIMESTAMPTZOID || type == TIMESTAMPOID || type == DATEOID)
		return true;
	if (!OidIsValid(cache->btree_opf))
		return false;
	function = get_opfamily_proc(cache->btree_opf, cache->btree_opintype, cache->btree_opintype, BTEQUALIMAGE_PROC);
	return OidIsValid(function) && DatumGetBool(OidFunctionCall1Coll(function, collation, ObjectIdGetDatum(cache->btree_opintype)));
}

bool
aggregate_has_partials(OperatorSpec *base)
{
	AggregateSpec *spec = (AggregateSpec *) base;
	ListCell *lc;

	if (base->ops != &aggregate_operator && base->ops != &hop_operator)
		return false;
	for (int i = 0; i < spec->nkeys; i++)
		if (!type_is_exact(TupleDescAttr(base->input[0], i)->atttypid, spec->collations[i]))
			return false;
	foreach (lc, spec->calls)
	{
		Aggref *aggref = ((AggregateCall *) lfirst(lc))->aggref;

		if (!aggregate_combines(aggref) || func_parallel(aggref->aggfnoid) != PROPARALLEL_SAFE)
			return false;
	}
	return true;
}

/* ---- the spec as bytes ---- */

typedef struct SpecHead
{
	int nkeys, ncalls, ncolumns, event_time;
	bool has_watermark, combines;
	OutputMode output_mode;
	bool hops; /* then also: */
	int start;
	int64 size, slide, origin;
} SpecHead;

typedef struct SpecColumn
{
	Oid type, collation;
	int32 typmod;
} SpecColumn;

typedef struct SpecCall
{
	int first_arg, nargs, filter;
	int length; /* of the Aggref as text, which follows with its end */
} SpecCall;

static void
call_write(AggregateCall *call, StringInfo out)
{
	char *text = nodeToString(call->aggref);
	SpecCall head = {call->first_arg, call->nargs, call->filter, strlen(text) + 1};

	appendBinaryStringInfo(out, (char *) &head, sizeof(head));
	appendBinaryStringInfo(out, text, head.length);
}

void
aggregate_spec_write(OperatorSpec *base, StringInfo out)
{
	AggregateSpec *spec = (AggregateSpec *) base;
	TupleDesc desc = base->input[0];
	SpecHead head = {.nkeys = spec->nkeys,
					 .ncalls = list_length(spec->calls),
					 .ncolumns = desc->natts,
					 .event_time = spec->event_time,
					 .has_watermark = base->has_watermark,
					 .combines = spec->combines,
					 .output_mode = base->output_mode,
					 .hops = base->ops == &hop_operator};
	ListCell *lc;

	if (head.hops)
	{
		HopSpec *hop = (HopSpec *) spec;

		head.start = hop->start;
		head.size = hop->size;
		head.slide = hop->slide;
		head.origin = hop->origin;
	}
	appendBinaryStringInfo(out, (char *) &head, sizeof(head));
	appendBinaryStringInfo(out, (char *) spec->eq_operators, sizeof(Oid) * spec->nkeys);
	appendBinaryStringInfo(out, (char *) spec->collations, sizeof(Oid) * spec->nkeys);
	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);
		SpecColumn column = {att->atttypid, att->attcollation, att->atttypmod};

		appendBinaryStringInfo(out, (char *) &column, sizeof(column));
	}
	foreach (lc, spec->calls)
		call_write(lfirst(lc), out);
}

static void
read_bytes(ByteReader *reader, void *into, Size length)
{
	memcpy(into, bytes_get(reader, length), length);
}

static TupleDesc
columns_read(ByteReader *reader, int n)
{
	TupleDesc desc = CreateTemplateTupleDesc(n);

	for (int i = 1; i <= n; i++)
	{
		SpecColumn column;

		read_bytes(reader, &column, sizeof(column));
		TupleDescInitEntry(desc, i, NULL, column.type, column.typmod, 0);
		TupleDescInitEntryCollation(desc, i, column.collation);
	}
	return desc;
}

static AggregateCall *
call_read(ByteReader *reader)
{
	AggregateCall *call = palloc0(sizeof(AggregateCall));
	SpecCall head;

	read_bytes(reader, &head, sizeof(head));
	call->first_arg = head.first_arg;
	call->nargs = head.nargs;
	call->filter = head.filter;
	call->aggref = stringToNode(pstrdup(bytes_get(reader, head.length)));
	return call;
}

OperatorSpec *
aggregate_spec_read(ByteReader *reader)
{
	HopSpec *hop = palloc0(sizeof(HopSpec));
	AggregateSpec *spec = &hop->aggregate;
	SpecHead head;

	read_bytes(reader, &head, sizeof(head));
	hop->start = head.start;
	hop->size = head.size;
	hop->slide = head.slide;
	hop->origin = head.origin;
	spec->base.ops = head.hops ? &hop_operator : &aggregate_operator;
	spec->combines = head.combines;
	spec->base.ninputs = 1;
	spec->base.has_watermark = head.has_watermark;
	spec->base.output_mode = head.output_mode;
	spec->nkeys = head.nkeys;
	spec->event_time = head.event_time;
	spec->eq_operators = palloc(sizeof(Oid) * Max(head.nkeys, 1));
	spec->collations = palloc(sizeof(Oid) * Max(head.nkeys, 1));
	read_bytes(reader, spec->eq_operators, sizeof(Oid) * head.nkeys);
	read_bytes(reader, spec->collations, sizeof(Oid) * head.nkeys);
	spec->base.input = palloc(sizeof(TupleDesc));
	spec->base.input[0] = spec->base.output = columns_read(reader, head.ncolumns); /* nothing is emitted */
	for (int i = 0; i < head.ncalls; i++)
		spec->calls = lappend(spec->calls, call_read(reader));
	return &spec->base;
}

/* ---- groups ---- */

typedef struct PartialHead
{
	TimestampTz expires;
	uint32 key_length, value_length;
} PartialHead;

void
aggregate_partials_give(Operator *base, PartialTaker take, void *arg)
{
	AggregateOperator *op = (AggregateOperator *) base;
	StringInfoData bytes;
	StateEntry *entry;

	aggregate_drain(op);
	initStringInfo(&bytes);
	op->provider->scan_start(op->groups);
	while ((entry = op->provider->scan_next(op->groups)))
	{
		PartialHead head = {.expires = entry->expires, .key_length = entry->key ? entry->key->t_len : 0};

		resetStringInfo(&bytes);
		appendBinaryStringInfo(&bytes, (char *) &head, sizeof(head));
		if (entry->key)
			appendBinaryStringInfo(&bytes, (char *) entry->key, entry->key->t_len);
		aggregate_value_ops.serialize(op, entry, &bytes);
		((PartialHead *) bytes.data)->value_length = bytes.len - sizeof(head) - head.key_length;
		take(arg, bytes.data, bytes.len);
	}
	pfree(bytes.data);
}

static MemoryContext
partial_memory(AggregateOperator *op)
{
	if (op->partial_context == NULL)
	{
		if (!op->combines)
			aggregate_prepare_combines(op);
		op->partial_context = AllocSetContextCreate(op->base.context, "stream aggregate partial", ALLOCSET_DEFAULT_SIZES);
	}
	return op->partial_context;
}

void
aggregate_partial_take(Operator *base, ByteReader *reader)
{
	AggregateOperator *op = (AggregateOperator *) base;
	MemoryContext context = partial_memory(op), caller = MemoryContextSwitchTo(context);
	PartialHead head;
	StateEntry *entry, partial = {0};
	const char *value;
	bool created;

	aggregate_drain(op);
	read_bytes(reader, &head, sizeof(head));
	ExecClearTuple(op->key_slot);
	if (head.key_length > 0)
	{
		MinimalTuple key = palloc(head.key_length);

		read_bytes(reader, key, head.key_length);
		ExecStoreMinimalTuple(key, op->key_slot, false);
		slot_getallattrs(op->key_slot);
	}
	value = bytes_get(reader, head.value_length);
	entry = op->provider->put(op->groups, op->key_slot, &created);
	if (created)
	{
		aggregate_value_ops.deserialize(op, entry, value, head.value_length, op->provider->value_context(op->groups));
		if (op->closes)
			op->provider->set_expiry(op->groups, entry, head.expires);
	}
	else
	{
		aggregate_value_ops.deserialize(op, &partial, value, head.value_length, context);
		aggregate_value_add(op, op->live_context, entry->value, partial.value);
	}
	ExecClearTuple(op->key_slot);
	MemoryContextSwitchTo(caller);
	MemoryContextReset(context);
}
