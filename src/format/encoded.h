/*
 * encoded.h: values that another system wrote in a form of its own (days, milliseconds, unscaled decimals) → columns. What the form means is
 * known from a schema; a column of another kind than the form is made for (days into an integer) takes the number as it stands.
 */
#ifndef STREAM_FORMAT_ENCODED_H
#define STREAM_FORMAT_ENCODED_H

#include "postgres.h"

#include "format/column.h"

typedef enum Encoding
{
	ENCODED_PLAIN, /* as it stands */
	ENCODED_DAYS,  /* since 1970-01-01 */
	ENCODED_TIME_MS, /* since midnight */
	ENCODED_TIME_US,
	ENCODED_TIME_NS,
	ENCODED_INSTANT_MS, /* since 1970-01-01 UTC */
	ENCODED_INSTANT_US,
	ENCODED_INSTANT_NS,
	ENCODED_DURATION_US,
	ENCODED_DECIMAL, /* bytes, with a scale */
	ENCODED_BYTES,
	ENCODED_JSON /* text of a JSON document */
} Encoding;

/* Numbers of one of the first forms. */
extern bool encoded_number(Column *column, Encoding encoding, const char *p, size_t len, Datum *value, DecodeError *error);
extern bool encoded_int(Column *column, Encoding encoding, int64 number, Datum *value, DecodeError *error);
/* Text of a number, or of a date, time or instant in ISO form, for documents and columns of text; in CurrentMemoryContext, NULL: out of range. */
extern char *encoded_text(Encoding encoding, int64 number);
extern bool encoded_decimal(Column *column, const uint8 *bytes, size_t len, int scale, Datum *value, DecodeError *error);
/* bytea as it is; other columns get it as PostgreSQL shows bytes. */
extern bool encoded_bytes(Column *column, const uint8 *bytes, size_t len, Datum *value, DecodeError *error);

#endif
