/*
 * best_value.c: the lists of a key's best rows: made, grown, put into bytes and read back.
 */
#include "operator/best.h"

#include "util/compat.h"
#include "utils/memutils.h"

BestList *
best_list_create(Best *best, MemoryContext context)
{
	BestList *list = MemoryContextAlloc(context, sizeof(BestList));

	list->n = 0;
	list->max = best->spec->count == 1 ? 1 : 2;
	list->rows = MemoryContextAlloc(context, sizeof(BestRow *) * list->max);
	return list;
}

BestRow *
best_row_create(MinimalTuple kept, uint64 born)
{
	BestRow *row = palloc(sizeof(BestRow));

	row->kept = kept;
	row->born = born;
	row->dropped = false;
	return row;
}

void
best_row_free(BestRow *row)
{
	pfree(row->kept);
	pfree(row);
}

void
best_list_insert(BestList *list, int at, BestRow *row)
{
	if (list->n == list->max)
	{
		list->max *= 2;
		list->rows = repalloc_huge(list->rows, sizeof(BestRow *) * list->max);
	}
	memmove(list->rows + at + 1, list->rows + at, sizeof(BestRow *) * (list->n - at));
	list->rows[at] = row;
	list->n++;
}

static void
best_serialize(void *arg, StateEntry *entry, StringInfo out)
{
	Best *best = arg;
	BestList *list = entry->value;

	bytes_put_varint(out, list->n);
	for (int i = 0; i < list->n; i++)
	{
		ExecStoreMinimalTuple(list->rows[i]->kept, best->probe, false);
		slot_getallattrs(best->probe);
		for (int column = 0; column < best->spec->nkept; column++)
		{
			appendStringInfoChar(out, best->probe->tts_isnull[column] ? 0 : 1);
			if (!best->probe->tts_isnull[column])
				codec_write(&best->codecs[column], best->probe->tts_values[column], out);
		}
	}
	ExecClearTuple(best->probe);
}

static MinimalTuple
kept_read(Best *best, ByteReader *reader, MemoryContext context)
{
	int nkept = best->spec->nkept;
	Datum *values = palloc(sizeof(Datum) * (nkept + 1));
	bool *nulls = palloc(nkept + 1);
	MinimalTuple result;
	MemoryContext caller;

	for (int column = 0; column < nkept; column++)
	{
		nulls[column] = *bytes_get(reader, 1) == 0;
		values[column] = nulls[column] ? (Datum) 0 : codec_read(&best->codecs[column], reader);
	}
	caller = MemoryContextSwitchTo(context);
	result = heap_form_minimal_tuple(best->kept, values, nulls);
	MemoryContextSwitchTo(caller);
	return result;
}

static void
best_deserialize(void *arg, StateEntry *entry, const char *bytes, Size length, MemoryContext context)
{
	Best *best = arg;
	ByteReader reader = {bytes, bytes + length};
	uint64 n = bytes_get_varint(&reader);
	BestList *list = best_list_create(best, context);
	MemoryContext caller = MemoryContextSwitchTo(best->row_context);

	for (uint64 i = 0; i < n; i++)
	{
		MinimalTuple kept = kept_read(best, &reader, context);

		MemoryContextSwitchTo(context);
		best_list_insert(list, i, best_row_create(kept, 0));
		MemoryContextSwitchTo(best->row_context);
	}
	entry->value = list;
	MemoryContextSwitchTo(caller);
	MemoryContextReset(best->row_context);
}

static void
best_release(void *arg, StateEntry *entry)
{
	BestList *list = entry->value;

	for (int i = 0; i < list->n; i++)
		best_row_free(list->rows[i]);
	pfree(list->rows);
	pfree(list);
	entry->value = NULL;
}

const StateValueOps best_value_ops = {best_serialize, best_deserialize, best_release};
