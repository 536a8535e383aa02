/*
 * aggregate_bytes.c: a group's value put into bytes and read back.
 * Values of type internal go through the aggregate's serial and deserial functions, all others by the codec of their type.
 * Danger: what a deserial function returns is fit for the combine function alone.
 */
#include "operator/aggregate.h"

#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "utils/memutils.h"

/* How a cell lies in bytes. */
enum
{
	CELL_UNSET,
	CELL_NULL,
	CELL_VALUE
};

void
aggregate_opaque_write(AggregateOperator *op, Transition *transition, Datum value, StringInfo out)
{
	FunctionCallInfo call = transition->serial;
	struct varlena *bytes;

	call->args[0].value = value;
	call->args[0].isnull = false;
	call->isnull = false;
	bytes = PG_DETOAST_DATUM_PACKED(FunctionCallInvoke(call));
	bytes_put_varint(out, VARSIZE_ANY_EXHDR(bytes));
	appendBinaryStringInfo(out, VARDATA_ANY(bytes), VARSIZE_ANY_EXHDR(bytes));
}

/* In the row's memory, and fit for combine functions alone. */
static Datum
opaque_deserialize(AggregateOperator *op, Transition *transition, ByteReader *reader)
{
	FunctionCallInfo call = transition->deserial;
	Size length = bytes_get_varint(reader);
	const char *bytes = bytes_get(reader, length);
	struct varlena *argument = palloc(length + VARHDRSZ);

	SET_VARSIZE(argument, length + VARHDRSZ);
	memcpy(VARDATA(argument), bytes, length);
	call->args[0].value = PointerGetDatum(argument);
	call->args[0].isnull = false;
	call->args[1].value = (Datum) 0;
	call->args[1].isnull = false;
	call->isnull = false;
	return FunctionCallInvoke(call);
}

/*
 * What a deserial function returns need not be fit for more rows: variances of integers forget there, since 18, that squares are to be summed. Partial
 * aggregation hands it to the combine function only, which makes a whole value in the aggregate's context; so that is what happens here.
 */
Datum
aggregate_opaque_read(AggregateOperator *op, Transition *transition, ByteReader *reader, MemoryContext context)
{
	FunctionCallInfo call = transition->combine;
	ExprContext into = {.type = T_ExprContext, .ecxt_per_query_memory = context, .ecxt_per_tuple_memory = context};
	ExprContext *outer = op->aggstate->curaggcontext;
	MemoryContext caller;
	Datum value;

	if (!call)
		return opaque_deserialize(op, transition, reader);
	caller = MemoryContextSwitchTo(op->row_context);
	op->aggstate->curaggcontext = &into;
	op->aggstate->curpertrans = &op->aggstate->pertrans[transition - op->transitions];
	call->args[1].value = opaque_deserialize(op, transition, reader);
	call->args[1].isnull = false;
	call->args[0].value = (Datum) 0;
	call->args[0].isnull = true;
	call->isnull = false;
	value = FunctionCallInvoke(call);
	op->aggstate->curaggcontext = outer;
	MemoryContextSwitchTo(caller);
	return value;
}

static void
input_list_write(InputList *list, StringInfo out)
{
	bytes_put_varint(out, list->count);
	bytes_put_varint(out, list->bytes.len);
	appendBinaryStringInfo(out, list->bytes.data, list->bytes.len);
}

static InputList *
input_list_read(ByteReader *reader)
{
	InputList *list = palloc(sizeof(InputList));
	Size length;

	input_list_init(list, CurrentMemoryContext);
	list->count = bytes_get_varint(reader);
	length = bytes_get_varint(reader);
	appendBinaryStringInfo(&list->bytes, bytes_get(reader, length), length);
	return list;
}

static void
value_serialize(void *private, StateEntry *entry, StringInfo out)
{
	AggregateOperator *op = private;
	Cell *cells = entry->value;
	MemoryContext caller = MemoryContextSwitchTo(op->row_context);

	for (int i = 0; i < op->ntransitions; i++)
	{
		Transition *transition = &op->transitions[i];
		Cell *cell = &cells[i];

		if (transition->keeps_inputs)
			input_list_write((InputList *) DatumGetPointer(cell->value), out);
		else
		{
			appendStringInfoChar(out, cell->unset ? CELL_UNSET : (cell->isnull ? CELL_NULL : CELL_VALUE));
			if (!cell->isnull && transition->type == INTERNALOID)
				aggregate_opaque_write(op, transition, cell->value, out);
			else if (!cell->isnull)
				codec_write(&transition->codec, cell->value, out);
		}
	}
	if (op->merges)
		bytes_put_varint(out, DatumGetInt64(aggregate_value_reach(op, cells)->value));
	MemoryContextSwitchTo(caller);
	if (!op->row_context->isReset)
		MemoryContextReset(op->row_context);
}

static void
cell_read(AggregateOperator *op, Transition *transition, Cell *cell, ByteReader *reader)
{
	int kind = transition->keeps_inputs ? CELL_VALUE : *bytes_get(reader, 1);

	cell->unset = kind == CELL_UNSET;
	cell->isnull = kind != CELL_VALUE;
	if (transition->keeps_inputs)
		cell->value = PointerGetDatum(input_list_read(reader));
	else if (kind != CELL_VALUE)
		cell->value = (Datum) 0;
	else if (transition->type == INTERNALOID)
		cell->value = aggregate_opaque_read(op, transition, reader, CurrentMemoryContext);
	else
		cell->value = codec_read(&transition->codec, reader);
}

static void
value_deserialize(void *private, StateEntry *entry, const char *bytes, Size length, MemoryContext context)
{
	AggregateOperator *op = private;
	ByteReader reader = {bytes, bytes + length};
	MemoryContext caller = MemoryContextSwitchTo(context);
	Cell *cells = op->layout ? aggregate_value_create(op, context) : palloc0(aggregate_value_size(op));

	for (int i = 0; i < (op->layout ? op->nlayout : op->ntransitions); i++)
	{
		int t = op->layout ? op->layout[i] : i;

		cell_read(op, &op->transitions[t], &cells[t], &reader);
	}
	if (op->merges)
		aggregate_value_reach(op, cells)->value = Int64GetDatum(bytes_get_varint(&reader));
	entry->value = cells;
	MemoryContextSwitchTo(caller);
	if (!op->row_context->isReset)
		MemoryContextReset(op->row_context);
}

static void
value_release(void *private, StateEntry *entry)
{
	aggregate_value_free(private, entry->value);
	entry->value = NULL;
}

const StateValueOps aggregate_value_ops = {
	.serialize = value_serialize, .deserialize = value_deserialize, .release = value_release};
