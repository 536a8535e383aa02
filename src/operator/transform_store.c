/*
 * transform_store.c: the stores behind a processor's variables and timers: opened, their values put into bytes and read back, their elements found by key
 * at start, their entries shown to the state reader.
 */
#include "operator/transform.h"

#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "utils/datum.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/typcache.h"

/* ---- values in bytes ---- */

Datum
variable_single_value(Variable *variable, StateEntry *entry)
{
	return variable->by_value ? *(Datum *) entry->value : PointerGetDatum(entry->value);
}

void *
variable_single_pack(Variable *variable, Datum value)
{
	Datum *cell;

	if (!variable->by_value)
		return DatumGetPointer(value);
	cell = palloc(sizeof(Datum));
	*cell = value;
	return cell;
}

static void
value_serialize(void *private, StateEntry *entry, StringInfo out)
{
	Variable *variable = private;
	Element *element = entry->value;

	if (variable_is_single(variable))
		codec_write(&variable->codec, variable_single_value(variable, entry), out);
	else if (variable->declared)
	{
		if (variable_is_map(variable))
			bytes_put_varint(out, element->serial);
		codec_write(&variable->codec, element->value, out);
	}
}

static void
value_deserialize(void *private, StateEntry *entry, const char *bytes, Size length, MemoryContext context)
{
	Variable *variable = private;
	ByteReader reader = {bytes, bytes + length};
	MemoryContext caller = MemoryContextSwitchTo(context);

	if (variable_is_single(variable))
		entry->value = variable_single_pack(variable, codec_read(&variable->codec, &reader));
	else
	{
		Element *element = palloc0(sizeof(Element));

		element->entry = entry;
		if (variable_is_map(variable))
			element->serial = bytes_get_varint(&reader);
		element->value = codec_read(&variable->codec, &reader);
		entry->value = element;
	}
	MemoryContextSwitchTo(caller);
}

static void
value_release(void *private, StateEntry *entry)
{
	Variable *variable = private;
	Element *element = entry->value;

	if (!variable_is_single(variable) && variable->declared && !variable->by_value)
		pfree(DatumGetPointer(element->value));
	pfree(entry->value);
	entry->value = NULL;
}

static const StateValueOps transform_single_ops = {value_serialize, value_deserialize, value_release, false};
static const StateValueOps transform_element_ops = {value_serialize, value_deserialize, value_release, true};

Datum
variable_value_copy(Variable *variable, Datum value)
{
	if (variable->length == -1 && !VARATT_IS_EXTERNAL_EXPANDED(DatumGetPointer(value)))
		return PointerGetDatum(PG_DETOAST_DATUM_COPY(value));
	return datumCopy(value, variable->by_value, variable->length);
}

/* ---- stores ---- */

static void
variable_open(Transform *op, Variable *variable, const char *name, Oid second_type, int32 second_typmod, int64 query_id,
			  int64 last_batch)
{
	bool pair = OidIsValid(second_type);
	StateSchema schema = {.query_id = query_id, .operator_id = op->base.spec->id, .state_name = name};

	schema.keydesc = CreateTemplateTupleDesc(pair ? 2 : 1);
	TupleDescCopyEntry(schema.keydesc, 1, op->base.spec->input[0], 1);
	schema.eq_operators = palloc0(sizeof(Oid) * 2);
	schema.collations = palloc0(sizeof(Oid) * 2);
	schema.eq_operators[0] = op->spec->eq_operator;
	schema.collations[0] = op->spec->collation;
	if (pair)
	{
		TupleDescInitEntry(schema.keydesc, 2, "element", second_type, second_typmod, 0);
		schema.eq_operators[1] = lookup_type_cache(second_type, TYPECACHE_EQ_OPR)->eq_opr;
		schema.collations[1] = get_typcollation(second_type);
		get_typlenbyval(second_type, &variable->key_length, &variable->key_by_value);
	}
	schema.value_ops = pair ? &transform_element_ops : &transform_single_ops;
	schema.operator_private = variable;
	variable->op = op;
	variable->list = pair ? op->nlists++ : -1;
	if (variable->declared)
	{
		codec_init(&variable->codec, variable->declared->type, variable->declared->typmod);
		get_typlenbyval(variable->declared->type, &variable->length, &variable->by_value);
	}
	variable->store = op->provider->open(&schema, last_batch);
	op->base.stores = lappend(op->base.stores, variable->store);
}

Datum
variable_entry_second(Variable *variable, StateEntry *entry, Datum *key, bool *key_null)
{
	TupleDesc desc = variable->store->schema.keydesc;
	HeapTupleData tuple;
	Datum values[2];
	bool nulls[2];

	tuple.t_len = entry->key->t_len + MINIMAL_TUPLE_OFFSET;
	tuple.t_data = (HeapTupleHeader) ((char *) entry->key - MINIMAL_TUPLE_OFFSET);
	heap_deform_tuple(&tuple, desc, values, nulls);
	*key = values[0];
	*key_null = nulls[0];
	return desc->natts > 1 ? values[1] : (Datum) 0;
}

static int
compare_serials(const void *a, const void *b)
{
	int64 left = (*(Element *const *) a)->serial, right = (*(Element *const *) b)->serial;

	return left < right ? -1 : left > right;
}

/* Elements to their keys, in the order they were made in. */
static void
elements_load(Transform *op, Variable *variable)
{
	int64 n = 0, max = 256;
	Element **elements = palloc(sizeof(Element *) * max);
	StateEntry *entry;
	Datum key;
	bool isnull;

	op->provider->scan_start(variable->store);
	while ((entry = op->provider->scan_next(variable->store)))
	{
		Element *element = entry->value;

		if (element == NULL) /* timers have no value */
		{
			element = entry->value =
				MemoryContextAllocZero(op->provider->value_context(variable->store), sizeof(Element));
			element->entry = entry;
		}
		if (!variable_is_map(variable))
			element->serial = DatumGetInt64(variable_entry_second(variable, entry, &key, &isnull));
		if (n == max)
			elements = repalloc_huge(elements, sizeof(Element *) * (max *= 2));
		elements[n++] = element;
	}
	qsort(elements, n, sizeof(Element *), compare_serials);
	for (int64 i = 0; i < n; i++)
	{
		(void) variable_entry_second(variable, elements[i]->entry, &key, &isnull);
		element_link(op, variable, transform_record_find_or_add(op, &key, &isnull), elements[i]);
	}
	if (n > 0 && variable->declared)
		op->next_serial = Max(op->next_serial, elements[n - 1]->serial + 1);
	pfree(elements);
}

void
transform_elements_load(Transform *op)
{
	for (int i = 0; i <= op->nvariables; i++)
		if (op->variables[i].store && op->variables[i].list >= 0)
			elements_load(op, &op->variables[i]);
}

void
transform_stores_open(Transform *op, int64 query_id, int64 last_batch)
{
	ListCell *lc;

	op->nvariables = list_length(op->processor->variables);
	op->variables = palloc0(sizeof(Variable) * (op->nvariables + 1));
	foreach (lc, op->processor->variables)
	{
		Variable *variable = &op->variables[foreach_current_index(lc)];
		ProcessorVariable *declared = variable->declared = lfirst(lc);

		variable_open(op, variable, declared->name,
					  declared->kind == VARIABLE_VALUE	? InvalidOid
					  : declared->kind == VARIABLE_LIST ? INT8OID
														: declared->key_type,
					  declared->kind == VARIABLE_MAP ? declared->key_typmod : -1, query_id, last_batch);
	}
	if (op->processor->time_mode != TIME_MODE_NONE)
	{
		op->timers = &op->variables[op->nvariables];
		variable_open(op, op->timers, PROCESSOR_TIMERS, TIMESTAMPTZOID, -1, query_id, last_batch);
	}
	transform_elements_load(op);
}

/* ---- the state reader ---- */

static TupleTableSlot *
shown_slot(Variable *variable)
{
	Transform *op = variable->op;
	MemoryContext caller = MemoryContextSwitchTo(op->base.context);
	TupleDesc desc = CreateTemplateTupleDesc(variable->list >= 0 && variable->declared ? 3 : 2);

	TupleDescCopyEntry(desc, 1, op->base.spec->input[0], 1);
	if (variable->declared)
		TupleDescInitEntry(desc, 2, "value", variable->declared->type, variable->declared->typmod, 0);
	else
		TupleDescInitEntry(desc, 2, "value", TIMESTAMPTZOID, -1, 0);
	if (desc->natts == 3)
		TupleDescCopyEntry(desc, 3, variable->store->schema.keydesc, 2);
	variable->shown = MakeSingleTupleTableSlot(desc, &TTSOpsVirtual);
	MemoryContextSwitchTo(caller);
	return variable->shown;
}

void
transform_show(Operator *base, StateStore *store, StateEntry *entry, OperatorShow tell, void *arg)
{
	Variable *variable = store->schema.operator_private;
	TupleTableSlot *row = ExecClearTuple(variable->shown ? variable->shown : shown_slot(variable));
	Datum second = variable_entry_second(variable, entry, &row->tts_values[0], &row->tts_isnull[0]);

	row->tts_isnull[1] = entry->removed;
	if (!entry->removed)
		row->tts_values[1] = variable->declared == NULL		? second
							 : variable_is_single(variable) ? variable_single_value(variable, entry)
															: ((Element *) entry->value)->value;
	if (row->tts_tupleDescriptor->natts == 3)
	{
		row->tts_values[2] = second;
		row->tts_isnull[2] = false;
	}
	tell(arg, ExecStoreVirtualTuple(row), 1, true, entry->expires);
}
