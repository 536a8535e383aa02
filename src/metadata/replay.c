/*
 * replay.c: rows of stream.replay_entry: asked for → taken by batch N → gone with the letter when N cannot come again.
 */
#include "metadata/replay.h"

#include "metadata/dead_letter.h"
#include "util/heap.h"
#include "util/options.h"
#include "utils/fmgrprotos.h"

enum
{
	REPLAY_QUERY, REPLAY_LETTER, REPLAY_BATCH, REPLAY_COLUMNS
};

#define TABLE_NAME "replay_entry"
#define INDEX_NAME "replay_entry_pkey"

void
replay_ids_write(JsonBuild *conf, const int64 *letter_ids, int n)
{
	if (n == 0)
		return;
	json_array_begin(conf, "replay");
	for (int i = 0; i < n; i++)
		json_add_int(conf, NULL, letter_ids[i]);
	json_array_end(conf);
}

int
replay_ids_read(Jsonb *conf, int64 **letter_ids)
{
	Jsonb *array = jsonb_get_object(conf, "replay");
	JsonbIterator *it;
	JsonbIteratorToken token;
	JsonbValue v;
	int n = 0;

	if (array == NULL)
		return 0;
	*letter_ids = palloc(sizeof(int64) * Max(JB_ROOT_COUNT(array), 1));
	it = JsonbIteratorInit(&array->root);
	while ((token = JsonbIteratorNext(&it, &v, true)) != WJB_DONE)
		if (token == WJB_ELEM && v.type == jbvNumeric)
			(*letter_ids)[n++] = DatumGetInt64(DirectFunctionCall1(numeric_int8, NumericGetDatum(v.val.numeric)));
	return n;
}

static HeapScan *
replay_scan(int64 query_id)
{
	Datum keys[] = {Int64GetDatum(query_id)};

	return heap_scan_begin(TABLE_NAME, INDEX_NAME, 1, keys, false);
}

/* NULL: none. The scan is to be ended. */
static HeapTuple
replay_find(int64 query_id, int64 letter_id, HeapScan **scan)
{
	Datum keys[] = {Int64GetDatum(query_id), Int64GetDatum(letter_id)};

	*scan = heap_scan_begin(TABLE_NAME, INDEX_NAME, 2, keys, false);
	return heap_scan_next(*scan, NULL, NULL);
}

static void
replay_write(HeapTuple tuple, int64 query_id, int64 letter_id, int64 batch_id)
{
	Datum v[REPLAY_COLUMNS] = {Int64GetDatum(query_id), Int64GetDatum(letter_id), Int64GetDatum(batch_id)};
	bool n[REPLAY_COLUMNS] = {false, false, batch_id < 0};

	if (tuple)
		heap_update_row(TABLE_NAME, tuple, v, n);
	else
		heap_insert_row(TABLE_NAME, v, n);
}

bool
replay_add(int64 query_id, int64 letter_id)
{
	HeapScan *scan;
	bool found = replay_find(query_id, letter_id, &scan) != NULL;

	heap_scan_end(scan);
	if (!found)
		replay_write(NULL, query_id, letter_id, -1);
	return !found;
}

/* Those that batch took, or (-1) that wait. */
static int
replay_ids(int64 query_id, int64 batch_id, int limit, int64 **letter_ids)
{
	HeapScan *scan = replay_scan(query_id);
	Datum v[REPLAY_COLUMNS];
	bool n[REPLAY_COLUMNS];
	int found = 0, room = 0;

	*letter_ids = NULL;
	while (found < limit && heap_scan_next(scan, v, n) != NULL)
	{
		if ((n[REPLAY_BATCH] ? -1 : DatumGetInt64(v[REPLAY_BATCH])) != batch_id)
			continue;
		if (found == room)
		{
			room = Max(room * 2, 64);
			*letter_ids = *letter_ids ? repalloc(*letter_ids, sizeof(int64) * room) : palloc(sizeof(int64) * room);
		}
		(*letter_ids)[found++] = DatumGetInt64(v[REPLAY_LETTER]);
	}
	heap_scan_end(scan);
	return found;
}

int
replay_waiting(int64 query_id, int max, int64 **letter_ids)
{
	return replay_ids(query_id, -1, max, letter_ids);
}

int
replay_taken_by(int64 query_id, int64 batch_id, int64 **letter_ids)
{
	return replay_ids(query_id, batch_id, INT_MAX, letter_ids);
}

bool
replay_is_waiting(int64 query_id, int64 letter_id)
{
	Datum keys[] = {Int64GetDatum(query_id), Int64GetDatum(letter_id)};
	HeapScan *scan = heap_scan_begin(TABLE_NAME, INDEX_NAME, 2, keys, false);
	Datum v[REPLAY_COLUMNS];
	bool n[REPLAY_COLUMNS];
	bool waiting = heap_scan_next(scan, v, n) != NULL && n[REPLAY_BATCH];

	heap_scan_end(scan);
	return waiting;
}

void
replay_take(int64 query_id, int64 letter_id, int64 batch_id)
{
	HeapScan *scan;

	replay_write(replay_find(query_id, letter_id, &scan), query_id, letter_id, batch_id);
	heap_scan_end(scan);
}

void
replay_forget(int64 query_id, int64 letter_id)
{
	HeapScan *scan;
	HeapTuple tuple = replay_find(query_id, letter_id, &scan);

	if (tuple)
		heap_delete_row(TABLE_NAME, tuple);
	heap_scan_end(scan);
}

void
replay_purge(int64 query_id, int64 upto_batch)
{
	HeapScan *scan = replay_scan(query_id);
	Datum v[REPLAY_COLUMNS];
	bool n[REPLAY_COLUMNS];
	HeapTuple tuple;

	while ((tuple = heap_scan_next(scan, v, n)) != NULL)
	{
		if (upto_batch < PG_INT64_MAX && (n[REPLAY_BATCH] || DatumGetInt64(v[REPLAY_BATCH]) > upto_batch))
			continue;
		if (!n[REPLAY_BATCH])
			dead_letter_delete(DatumGetInt64(v[REPLAY_LETTER]));
		heap_delete_row(TABLE_NAME, tuple);
	}
	heap_scan_end(scan);
}

void
replay_rewind(int64 query_id, int64 batch_id)
{
	HeapScan *scan = replay_scan(query_id);
	Datum v[REPLAY_COLUMNS];
	bool n[REPLAY_COLUMNS];
	HeapTuple tuple;

	while ((tuple = heap_scan_next(scan, v, n)) != NULL)
		if (!n[REPLAY_BATCH] && DatumGetInt64(v[REPLAY_BATCH]) > batch_id)
			replay_write(tuple, query_id, DatumGetInt64(v[REPLAY_LETTER]), -1);
	heap_scan_end(scan);
}
