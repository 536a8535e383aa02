/*
 * dead_letter.c: rows of stream.dead_letter, what could not be used and why.
 * Written in the batch's own transaction: good rows and dead letters together are the input, exactly. Bytes are kept as they came.
 */
#include "postgres.h"

#include "commands/sequence.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"
#include "utils/timestamp.h"

#include "metadata/dead_letter.h"
#include "util/clock.h"
#include "util/heap.h"

enum
{
	DEAD_LETTER_ID,
	DEAD_LETTER_QUERY_ID,
	DEAD_LETTER_BATCH_ID,
	DEAD_LETTER_SOURCE,
	DEAD_LETTER_REASON,
	DEAD_LETTER_POSITION,
	DEAD_LETTER_RAW,
	DEAD_LETTER_ERROR,
	DEAD_LETTER_AT,
	DEAD_LETTER_COLUMNS
};

static void
set_text(Datum *values, bool *nulls, int column, const char *text)
{
	nulls[column] = text == NULL;
	if (text)
		values[column] = CStringGetTextDatum(text);
}

static DeadLetterTaker diverted_to = NULL;

void
dead_letter_divert(DeadLetterTaker taker)
{
	diverted_to = taker;
}

void
dead_letter_add(const BatchInfo *batch, const char *source, const char *reason, Jsonb *position, const char *raw,
				Size raw_len, const char *error)
{
	Datum values[DEAD_LETTER_COLUMNS] = {0};
	bool nulls[DEAD_LETTER_COLUMNS] = {0};

	if (diverted_to)
	{
		diverted_to(source, reason, position, raw, raw_len, error);
		return;
	}
	values[DEAD_LETTER_ID] = Int64GetDatum(nextval_internal(heap_relation_oid("dead_letter_id_seq"), false));
	values[DEAD_LETTER_QUERY_ID] = Int64GetDatum(batch->query_id);
	values[DEAD_LETTER_BATCH_ID] = Int64GetDatum(batch->batch_id);
	set_text(values, nulls, DEAD_LETTER_SOURCE, source);
	set_text(values, nulls, DEAD_LETTER_REASON, reason);
	nulls[DEAD_LETTER_POSITION] = position == NULL;
	values[DEAD_LETTER_POSITION] = JsonbPGetDatum(position);
	nulls[DEAD_LETTER_RAW] = raw == NULL;
	if (raw)
		values[DEAD_LETTER_RAW] = PointerGetDatum(cstring_to_text_with_len(raw, raw_len)); /* bytea is laid out alike */
	set_text(values, nulls, DEAD_LETTER_ERROR, error);
	values[DEAD_LETTER_AT] = TimestampTzGetDatum(clock_now());
	heap_insert_row("dead_letter", values, nulls);
}

/* ---- reading, and what becomes of them ---- */

static HeapScan *
letter_scan(int64 id)
{
	Datum keys[] = {Int64GetDatum(id)};

	return heap_scan_begin("dead_letter", "dead_letter_pkey", 1, keys, false);
}

/* Those of a query, batch by batch, from that one on. */
static HeapScan *
letters_scan(int64 query_id, int64 from_batch)
{
	Datum keys[] = {Int64GetDatum(query_id)};

	return heap_scan_begin_at("dead_letter", "dead_letter_query_idx", 1, keys, from_batch);
}

static DeadLetter *
letter_from_row(Datum *v, bool *n, bool with_raw)
{
	DeadLetter *letter = palloc0(sizeof(DeadLetter));

	letter->id = DatumGetInt64(v[DEAD_LETTER_ID]);
	letter->query_id = DatumGetInt64(v[DEAD_LETTER_QUERY_ID]);
	letter->batch_id = DatumGetInt64(v[DEAD_LETTER_BATCH_ID]);
	letter->source = n[DEAD_LETTER_SOURCE] ? NULL : TextDatumGetCString(v[DEAD_LETTER_SOURCE]);
	letter->reason = TextDatumGetCString(v[DEAD_LETTER_REASON]);
	letter->position = n[DEAD_LETTER_POSITION] ? NULL : DatumGetJsonbPCopy(v[DEAD_LETTER_POSITION]);
	if (with_raw && !n[DEAD_LETTER_RAW])
	{
		bytea *raw = DatumGetByteaPCopy(v[DEAD_LETTER_RAW]);

		letter->raw = VARDATA_ANY(raw);
		letter->raw_len = VARSIZE_ANY_EXHDR(raw);
	}
	return letter;
}

DeadLetter *
dead_letter_get(int64 id)
{
	HeapScan *scan = letter_scan(id);
	Datum v[DEAD_LETTER_COLUMNS];
	bool n[DEAD_LETTER_COLUMNS];
	DeadLetter *letter = heap_scan_next(scan, v, n) ? letter_from_row(v, n, true) : NULL;

	heap_scan_end(scan);
	return letter;
}

List *
dead_letters_of(int64 query_id)
{
	HeapScan *scan = letters_scan(query_id, 0);
	Datum v[DEAD_LETTER_COLUMNS];
	bool n[DEAD_LETTER_COLUMNS];
	List *letters = NIL;

	while (heap_scan_next(scan, v, n) != NULL)
		letters = lappend(letters, letter_from_row(v, n, false));
	heap_scan_end(scan);
	return letters;
}

void
dead_letter_set_error(int64 id, const char *error)
{
	HeapScan *scan = letter_scan(id);
	Datum v[DEAD_LETTER_COLUMNS];
	bool n[DEAD_LETTER_COLUMNS];
	HeapTuple tuple = heap_scan_next(scan, v, n);

	if (tuple)
	{
		set_text(v, n, DEAD_LETTER_ERROR, error);
		heap_update_row("dead_letter", tuple, v, n);
	}
	heap_scan_end(scan);
}

void
dead_letter_delete(int64 id)
{
	HeapScan *scan = letter_scan(id);
	HeapTuple tuple = heap_scan_next(scan, NULL, NULL);

	if (tuple)
		heap_delete_row("dead_letter", tuple);
	heap_scan_end(scan);
}

void
dead_letters_delete(int64 query_id, int64 from_batch)
{
	HeapScan *scan = letters_scan(query_id, from_batch);
	HeapTuple tuple;

	while ((tuple = heap_scan_next(scan, NULL, NULL)) != NULL)
		heap_delete_row("dead_letter", tuple);
	heap_scan_end(scan);
}
