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

void
dead_letter_add(const BatchInfo *batch, const char *source, const char *reason, Jsonb *position, const char *raw,
				Size raw_len, const char *error)
{
	Datum values[DEAD_LETTER_COLUMNS] = {0};
	bool nulls[DEAD_LETTER_COLUMNS] = {0};

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
