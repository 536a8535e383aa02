/*
 * aggregate_input.c: argument tuples of aggregates that must see their input again.
 * Rows are packed as they arrive and unpacked, sorted as ORDER BY or DISTINCT ask, when the group is emitted.
 */
#include "operator/aggregate.h"

#include "miscadmin.h"
#include "utils/memutils.h"

void
input_list_init(InputList *list, MemoryContext context)
{
	MemoryContext caller = MemoryContextSwitchTo(context);

	list->count = 0;
	initStringInfo(&list->bytes);
	MemoryContextSwitchTo(caller);
}

void
input_list_add(AggregateOperator *op, Transition *transition, InputList *list, TupleTableSlot *slot)
{
	if (op->merges)
		bytes_put_varint(&list->bytes, op->arrival);
	for (int i = 0; i < transition->nargs; i++)
	{
		int column = transition->first_arg - 1 + i;

		appendStringInfoChar(&list->bytes, slot->tts_isnull[column] ? 0 : 1);
		if (!slot->tts_isnull[column])
			codec_write(&transition->input_codecs[i], slot->tts_values[column], &list->bytes);
	}
	list->count++;
}

/* Order is found again when the list is read: every input says when it came. */
void
input_list_append(InputList *into, InputList *from)
{
	appendBinaryStringInfo(&into->bytes, from->bytes.data, from->bytes.len);
	into->count += from->count;
}

typedef struct InputRow
{
	uint64 arrival;
	Datum *values;
	bool *nulls;
} InputRow;

static void
input_list_unpack(AggregateOperator *op, Transition *transition, InputList *list, InputRow *rows)
{
	ByteReader reader = {list->bytes.data, list->bytes.data + list->bytes.len};
	int nargs = transition->nargs;
	Datum *values = palloc_extended(sizeof(Datum) * Max(nargs * list->count, 1), MCXT_ALLOC_HUGE);
	bool *nulls = palloc_extended(Max(nargs * list->count, 1), MCXT_ALLOC_HUGE);

	for (uint64 i = 0; i < list->count; i++)
	{
		InputRow *row = &rows[i];

		row->arrival = op->merges ? bytes_get_varint(&reader) : i;
		row->values = values + i * nargs;
		row->nulls = nulls + i * nargs;
		for (int column = 0; column < nargs; column++)
		{
			row->nulls[column] = *bytes_get(&reader, 1) == 0;
			row->values[column] = row->nulls[column] ? 0 : codec_read(&transition->input_codecs[column], &reader);
		}
	}
}

static int
input_row_compare_sorted(const InputRow *a, const InputRow *b, Transition *transition)
{
	for (int i = 0; i < transition->nsort; i++)
	{
		int column = transition->sort_columns[i];
		int order = ApplySortComparator(a->values[column], a->nulls[column], b->values[column], b->nulls[column],
										&transition->sort[i]);

		if (order != 0)
			return order;
	}
	return 0;
}

static int
input_row_compare(const void *left, const void *right, void *arg)
{
	const InputRow *a = left, *b = right;
	int order = input_row_compare_sorted(a, b, arg);

	return order != 0 ? order : (a->arrival < b->arrival ? -1 : 1);
}

/* DISTINCT without a set: all arguments are sorted by, so equal inputs are neighbours. */
static bool
is_repeated(Transition *transition, InputRow *rows, uint64 i)
{
	return transition->set < 0 && transition->aggref->aggdistinct != NIL && i > 0 &&
		   input_row_compare_sorted(&rows[i - 1], &rows[i], transition) == 0;
}

void
input_list_replay(AggregateOperator *op, Transition *transition, InputList *list, InputCallback callback, Cell *cell)
{
	InputRow *rows = palloc_extended(sizeof(InputRow) * Max(list->count, 1), MCXT_ALLOC_HUGE);

	input_list_unpack(op, transition, list, rows);
	if (transition->nsort > 0 || op->merges)
		qsort_arg(rows, list->count, sizeof(InputRow), input_row_compare, transition);
	for (uint64 i = 0; i < list->count; i++)
	{
		CHECK_FOR_INTERRUPTS();
		if (!is_repeated(transition, rows, i))
			callback(op, transition, cell, rows[i].values, rows[i].nulls);
	}
}
