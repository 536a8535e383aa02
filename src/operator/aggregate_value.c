/*
 * aggregate_value.c: a group's value: made, advanced by rows, merged, finished, freed.
 * Functions are called as nodeAgg.c calls them: same strictness, same copying into the aggregate's context, same expanded objects.
 * Values live in the state's value context; what belongs to one emission lives in emit_context and dies with it.
 */
#include "operator/aggregate.h"

#include "executor/executor.h"
#include "utils/datum.h"
#include "utils/expandeddatum.h"
#include "utils/memutils.h"

static void
cell_init(Transition *transition, Cell *cell, MemoryContext context)
{
	MemoryContext caller = MemoryContextSwitchTo(context);

	cell->isnull = cell->unset = transition->initial_null;
	cell->value = cell->isnull ? (Datum) 0 : datumCopy(transition->initial, transition->by_value, transition->length);
	MemoryContextSwitchTo(caller);
}

/* As it is kept: inputs that are kept have no transition value before they are read. */
static void
cell_create(Transition *transition, Cell *cell, MemoryContext context)
{
	InputList *list;

	if (!transition->keeps_inputs)
	{
		cell_init(transition, cell, context);
		return;
	}
	list = MemoryContextAlloc(context, sizeof(InputList));
	input_list_init(list, context);
	cell->value = PointerGetDatum(list);
	cell->isnull = cell->unset = false;
}

Size
aggregate_value_size(AggregateOperator *op)
{
	return sizeof(Cell) * Max(op->ntransitions + (op->merges ? 1 : 0), 1);
}

Cell *
aggregate_value_reach(AggregateOperator *op, Cell *cells)
{
	Assert(op->merges);
	return &cells[op->ntransitions];
}

Cell *
aggregate_value_create(AggregateOperator *op, MemoryContext context)
{
	Cell *cells = MemoryContextAllocZero(context, aggregate_value_size(op));

	for (int i = 0; i < op->ntransitions; i++)
		cell_create(&op->transitions[i], &cells[i], context);
	return cells;
}

/* ---- transitions ---- */

/* A copy for longer than this transaction: a pointer into a table's toast would not last. */
static Datum
value_copy(Transition *transition, Datum value)
{
	if (transition->length == -1 && VARATT_IS_EXTERNAL(DatumGetPointer(value)) &&
		!VARATT_IS_EXTERNAL_EXPANDED(DatumGetPointer(value)))
		return PointerGetDatum(PG_DETOAST_DATUM_COPY(value));
	return datumCopy(value, transition->by_value, transition->length);
}

static void
value_free(Transition *transition, Datum value)
{
	if (DatumIsReadWriteExpandedObject(value, false, transition->length))
		DeleteExpandedObject(value);
	else
		pfree(DatumGetPointer(value));
}

/* Moves a new by-reference value out of the row's memory, unless it was made where it will live, and frees the old one. */
static Datum
value_adopt(Transition *transition, Cell *cell, Datum value, bool isnull, MemoryContext context)
{
	if (!isnull)
	{
		MemoryContext caller = MemoryContextSwitchTo(context);

		if (!DatumIsReadWriteExpandedObject(value, false, transition->length) ||
			MemoryContextGetParent(DatumGetEOHP(value)->eoh_context) != context)
			value = value_copy(transition, value);
		MemoryContextSwitchTo(caller);
	}
	else
		value = (Datum) 0;
	if (!cell->isnull)
		value_free(transition, cell->value);
	return value;
}

static inline bool
any_null(Transition *transition, const bool *nulls)
{
	for (int i = 0; i < transition->npassed; i++)
	{
		if (nulls[i])
			return true;
	}
	return false;
}

/* Runs the transition function once, in the row's memory; the value stays in context. */
static inline void
cell_advance(AggregateOperator *op, Transition *transition, Cell *cell, const Datum *values, const bool *nulls,
			 MemoryContext context)
{
	FunctionCallInfo call = transition->call;
	Datum value;

	if (transition->function.fn_strict)
	{
		if (any_null(transition, nulls))
			return;
		if (cell->unset)
		{
			MemoryContext caller = MemoryContextSwitchTo(context);

			cell->value = value_copy(transition, values[0]);
			cell->isnull = cell->unset = false;
			MemoryContextSwitchTo(caller);
			return;
		}
		if (cell->isnull)
			return;
	}
	for (int i = 0; i < transition->npassed; i++)
	{
		call->args[i + 1].value = values[i];
		call->args[i + 1].isnull = nulls[i];
	}
	call->args[0].value = cell->value;
	call->args[0].isnull = cell->isnull;
	call->isnull = false;
	op->aggstate->curpertrans = &op->aggstate->pertrans[transition - op->transitions];
	value = FunctionCallInvoke(call);
	if (!transition->by_value && DatumGetPointer(value) != DatumGetPointer(cell->value))
		value = value_adopt(transition, cell, value, call->isnull, context);
	cell->value = value;
	cell->isnull = call->isnull;
	cell->unset = false;
}

/* Is this input of a DISTINCT aggregate new to the group? */
static bool
set_admits(AggregateOperator *op, Transition *transition, StateEntry *group, TupleTableSlot *slot)
{
	DistinctSet *set = &op->sets[transition->set];
	int nkeys = op->spec->nkeys;
	StateEntry *member;
	bool created;

	ExecClearTuple(set->probe);
	memcpy(set->probe->tts_values, slot->tts_values, sizeof(Datum) * nkeys);
	memcpy(set->probe->tts_isnull, slot->tts_isnull, sizeof(bool) * nkeys);
	memcpy(set->probe->tts_values + nkeys, slot->tts_values + transition->first_arg - 1, sizeof(Datum) * transition->nargs);
	memcpy(set->probe->tts_isnull + nkeys, slot->tts_isnull + transition->first_arg - 1, sizeof(bool) * transition->nargs);
	ExecStoreVirtualTuple(set->probe);
	member = op->provider->get(set->store, set->probe);
	if (member)
		return false;
	member = op->provider->put(set->store, set->probe, &created);
	op->provider->set_expiry(set->store, member, group->expires);
	return true;
}

void
aggregate_value_advance(AggregateOperator *op, Cell *cells, StateEntry *entry, TupleTableSlot *slot)
{
	MemoryContext context = op->live_context->ecxt_per_tuple_memory;
	MemoryContext caller = MemoryContextSwitchTo(op->row_context);

	for (int i = 0; i < op->ntransitions; i++)
	{
		Transition *transition = &op->transitions[i];
		const Datum *values = slot->tts_values + transition->first_arg - 1;
		const bool *nulls = slot->tts_isnull + transition->first_arg - 1;

		if (transition->filter > 0 &&
			(slot->tts_isnull[transition->filter - 1] || !DatumGetBool(slot->tts_values[transition->filter - 1])))
			continue;
		if (transition->set >= 0 || transition->keeps_inputs)
		{
			if (transition->function.fn_strict && any_null(transition, nulls))
				continue;
			if (transition->set >= 0 && !set_admits(op, transition, entry, slot))
				continue;
		}
		if (transition->keeps_inputs)
			input_list_add(op, transition, (InputList *) DatumGetPointer(cells[i].value), slot);
		else
			cell_advance(op, transition, &cells[i], values, nulls, context);
	}
	MemoryContextSwitchTo(caller);
	if (!op->row_context->isReset)
		MemoryContextReset(op->row_context);
}

/* ---- merging ---- */

/* A value that exists on one side only is moved. */
static void
cell_take(Cell *into, Cell *from)
{
	*into = *from;
	from->value = (Datum) 0;
	from->isnull = from->unset = true;
}

/* As nodeAgg.c calls combine functions: they are transition functions whose input is a transition value. */
static void
cell_merge(AggregateOperator *op, Transition *transition, Cell *into, Cell *from, MemoryContext context)
{
	FunctionCallInfo call = transition->combine;
	Datum value;

	if (transition->combine_function.fn_strict)
	{
		if (from->isnull)
			return;
		if (into->isnull) /* also one that has seen NULLs only: as an input it would have been passed over */
		{
			cell_take(into, from);
			return;
		}
	}
	call->args[0].value = into->value;
	call->args[0].isnull = into->isnull;
	call->args[1].value = from->value;
	call->args[1].isnull = from->isnull;
	call->isnull = false;
	op->aggstate->curpertrans = &op->aggstate->pertrans[transition - op->transitions];
	value = FunctionCallInvoke(call);
	if (!transition->by_value && DatumGetPointer(value) != DatumGetPointer(into->value))
		value = value_adopt(transition, into, value, call->isnull, context);
	into->value = value;
	into->isnull = call->isnull || (transition->type == INTERNALOID && DatumGetPointer(value) == NULL); /* some make that of two NULLs */
	into->unset = into->unset && from->unset;
}

void
aggregate_value_merge(AggregateOperator *op, Cell *into, Cell *from)
{
	MemoryContext caller = MemoryContextSwitchTo(op->row_context);

	for (int i = 0; i < op->ntransitions; i++)
	{
		Transition *transition = &op->transitions[i];

		if (transition->keeps_inputs)
			input_list_append((InputList *) DatumGetPointer(into[i].value), (InputList *) DatumGetPointer(from[i].value));
		else
			cell_merge(op, transition, &into[i], &from[i], op->live_context->ecxt_per_tuple_memory);
	}
	MemoryContextSwitchTo(caller);
	MemoryContextReset(op->row_context);
}

/* A value as it would be read back, in CurrentMemoryContext. */
static void
cell_copy(AggregateOperator *op, Transition *transition, Cell *into, Cell *from)
{
	*into = *from;
	if (from->isnull)
		return;
	if (transition->type == INTERNALOID)
	{
		StringInfoData bytes;
		ByteReader reader;

		initStringInfo(&bytes);
		aggregate_opaque_write(op, transition, from->value, &bytes);
		reader.at = bytes.data;
		reader.end = bytes.data + bytes.len;
		into->value = aggregate_opaque_read(op, transition, &reader, CurrentMemoryContext);
	}
	else
		into->value = datumCopy(from->value, transition->by_value, transition->length);
}

void
aggregate_value_add(AggregateOperator *op, ExprContext *context, Cell *into, Cell *from)
{
	MemoryContext memory = context->ecxt_per_tuple_memory, caller = CurrentMemoryContext;

	op->aggstate->curaggcontext = context;
	for (int i = 0; i < op->ntransitions; i++)
	{
		Transition *transition = &op->transitions[i];

		if (transition->combine_function.fn_strict && into[i].isnull)
		{
			MemoryContextSwitchTo(memory);
			cell_copy(op, transition, &into[i], &from[i]);
			continue;
		}
		MemoryContextSwitchTo(op->row_context);
		cell_merge(op, transition, &into[i], &from[i], memory);
	}
	op->aggstate->curaggcontext = op->live_context;
	MemoryContextSwitchTo(caller);
	MemoryContextReset(op->row_context);
}

/* ---- results ---- */

static void
replay_input(AggregateOperator *op, Transition *transition, Cell *cell, const Datum *values, const bool *nulls)
{
	MemoryContext caller = MemoryContextSwitchTo(op->row_context);

	cell_advance(op, transition, cell, values, nulls, op->emit_context->ecxt_per_tuple_memory);
	MemoryContextSwitchTo(caller);
	MemoryContextReset(op->row_context);
}

static Datum
final_call(AggregateOperator *op, Final *final, Transition *transition, Cell *cell, bool *isnull)
{
	FunctionCallInfo call = final->call;
	int n = 0;
	bool any_null_arg;
	ListCell *argument;
	Datum result;

	if (!OidIsValid(final->function_oid))
	{
		*isnull = cell->isnull;
		return cell->isnull ? (Datum) 0 : MakeExpandedObjectReadOnly(cell->value, false, transition->length);
	}
	call->args[n].value = MakeExpandedObjectReadOnly(cell->value, cell->isnull, transition->length);
	call->args[n].isnull = any_null_arg = cell->isnull;
	foreach (argument, final->direct_args)
	{
		n++;
		call->args[n].value = ExecEvalExpr(lfirst(argument), op->emit_context, &call->args[n].isnull);
		any_null_arg |= call->args[n].isnull;
	}
	while (++n < final->nargs)
	{
		call->args[n].value = (Datum) 0;
		call->args[n].isnull = any_null_arg = true;
	}
	if (final->function.fn_strict && any_null_arg)
	{
		*isnull = true;
		return (Datum) 0;
	}
	call->isnull = false;
	op->aggstate->curperagg = &op->aggstate->peragg[final - op->finals];
	result = FunctionCallInvoke(call);
	op->aggstate->curperagg = NULL;
	*isnull = call->isnull;
	return result;
}

Datum
aggregate_value_final(AggregateOperator *op, int i, Cell *cells, bool *isnull)
{
	Final *final = &op->finals[i];
	Transition *transition = &op->transitions[final->transition];
	MemoryContext caller = MemoryContextSwitchTo(op->emit_context->ecxt_per_tuple_memory);
	Cell *cell = &cells[final->transition];
	Datum result;
	Cell replayed;

	op->aggstate->curaggcontext = op->emit_context;
	if (transition->keeps_inputs)
	{
		cell_init(transition, &replayed, CurrentMemoryContext);
		input_list_replay(op, transition, (InputList *) DatumGetPointer(cell->value), replay_input, &replayed);
		cell = &replayed;
	}
	result = final_call(op, final, transition, cell, isnull);
	op->aggstate->curaggcontext = op->live_context;
	MemoryContextSwitchTo(caller);
	return result;
}

/* Opaque values cannot be freed from outside; the store repacks now and then. */
void
aggregate_value_free(AggregateOperator *op, Cell *cells)
{
	for (int i = 0; i < op->ntransitions; i++)
	{
		Transition *transition = &op->transitions[i];

		if (transition->keeps_inputs)
		{
			InputList *list = (InputList *) DatumGetPointer(cells[i].value);

			pfree(list->bytes.data);
			pfree(list);
		}
		else if (!transition->by_value && !cells[i].isnull)
			value_free(transition, cells[i].value);
	}
	pfree(cells);
}
