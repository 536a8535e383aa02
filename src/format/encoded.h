/*
 * encoded.h: values that another system wrote in a form of its own (days, milliseconds, unscaled decimals) → columns. What the form means is
 * known from a schema; a column of another kind than the form is made for (days into an integer) takes the number as it stands.
 */
#ifndef STREAM_FORMAT_ENCODED_H
#define STREAM_FORMAT_ENCODED_H

#include "postgres.h"

#include "format/column.h"
#include "format/encoding.h"

/* What Kafka Connect calls the form in a schema's name; ENCODED_PLAIN: nothing known. */
extern Encoding encoding_of_name(const char *name);
/* Numbers of one of the first forms. */
extern bool encoded_number(Column *column, Encoding encoding, const char *p, size_t len, Datum *value, DecodeError *error);
extern bool encoded_int(Column *column, Encoding encoding, int64 number, Datum *value, DecodeError *error);
/* Text of a number, or of a date, time or instant in ISO form, for documents and columns of text; in CurrentMemoryContext, NULL: out of range. */
extern char *encoded_text(Encoding encoding, int64 number);
extern bool encoded_decimal(Column *column, const uint8 *bytes, size_t len, int scale, Datum *value, DecodeError *error);
/* Text that is a JSON document. */
extern bool encoded_json(Column *column, const char *p, size_t len, Datum *value, DecodeError *error);
/* bytea as it is; other columns get it as PostgreSQL shows bytes. */
extern bool encoded_bytes(Column *column, const uint8 *bytes, size_t len, Datum *value, DecodeError *error);

#endif
