/*
 * encoding.h: the forms in which other systems write dates, times, decimals and bytes. Free of PostgreSQL.
 */
#ifndef STREAM_FORMAT_ENCODING_H
#define STREAM_FORMAT_ENCODING_H

typedef enum Encoding
{
	ENCODED_PLAIN,	 /* as it stands */
	ENCODED_DAYS,	 /* since 1970-01-01 */
	ENCODED_TIME_MS, /* since midnight */
	ENCODED_TIME_US,
	ENCODED_TIME_NS,
	ENCODED_INSTANT_MS, /* since 1970-01-01 UTC */
	ENCODED_INSTANT_US,
	ENCODED_INSTANT_NS,
	ENCODED_DURATION_US,
	ENCODED_DECIMAL, /* bytes, with a scale */
	ENCODED_BYTES,
	ENCODED_JSON,  /* text of a JSON document */
	ENCODED_UUID,  /* 16 bytes */
	ENCODED_MONTHS /* 12 bytes: months, days, milliseconds, each little end first */
} Encoding;

#endif
