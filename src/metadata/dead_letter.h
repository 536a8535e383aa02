/* dead_letter.h: rows that could not be used, kept in the batch's own transaction. */
#ifndef STREAM_METADATA_DEAD_LETTER_H
#define STREAM_METADATA_DEAD_LETTER_H

#include "postgres.h"
#include "metadata/batch_info.h"
#include "nodes/pg_list.h"
#include "utils/jsonb.h"

/*
 * Writes one row of stream.dead_letter now, by C table access (no privilege of the owner needed).
 * reason: 'malformed', 'late'. position: where it came from, as the source says. raw: bytes as they came; NULL allowed.
 */
extern void dead_letter_add(const BatchInfo *batch, const char *source, const char *reason, Jsonb *position, const char *raw,
							Size raw_len, const char *error);

/* A process that may not write hands its letters to one that may: called instead, by every dead_letter_add of this process. */
typedef void (*DeadLetterTaker)(const char *source, const char *reason, Jsonb *position, const char *raw, Size raw_len, const char *error);
extern void dead_letter_divert(DeadLetterTaker taker);

typedef struct DeadLetter
{
	int64 id;
	int64 query_id;
	int64 batch_id;
	char *source; /* NULL: late rows */
	char *reason;
	Jsonb *position; /* or NULL */
	char *raw;		 /* or NULL */
	Size raw_len;
} DeadLetter;

/* In CurrentMemoryContext; NULL: there is none. */
extern DeadLetter *dead_letter_get(int64 id);
extern List *dead_letters_of(int64 query_id); /* DeadLetter, raw left out */
extern void dead_letter_set_error(int64 id, const char *error);
extern void dead_letter_delete(int64 id);
/* Those of batches from this one on: they come again with their batches, or the query goes. */
extern void dead_letters_delete(int64 query_id, int64 from_batch);

#endif
