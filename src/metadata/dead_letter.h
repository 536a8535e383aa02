/* dead_letter.h: rows that could not be used, kept in the batch's own transaction. */
#ifndef STREAM_METADATA_DEAD_LETTER_H
#define STREAM_METADATA_DEAD_LETTER_H

#include "postgres.h"
#include "metadata/batch_info.h"
#include "utils/jsonb.h"

/*
 * Writes one row of stream.dead_letter now, by C table access (no privilege of the owner needed).
 * reason: 'malformed', 'late'. position: where it came from, as the source says. raw: bytes as they came; NULL allowed.
 */
extern void dead_letter_add(const BatchInfo *batch, const char *source, const char *reason, Jsonb *position, const char *raw,
							Size raw_len, const char *error);

#endif
