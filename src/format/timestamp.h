/*
 * timestamp.h: ISO 8601 instants and epoch numbers → microseconds since 2000-01-01. Free of PostgreSQL.
 * Takes the forms machines write and refuses the rest, which then goes to the type's input function.
 */
#ifndef STREAM_FORMAT_TIMESTAMP_H
#define STREAM_FORMAT_TIMESTAMP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct TimestampText
{
	int year, month, day;
	int32_t days; /* since 2000-01-01 */
	int hour, minute, second;
	int microsecond; /* may be 1000000: a fraction that rounds up */
	bool has_zone;
	int zone; /* seconds east of UTC */
} TimestampText;

/* YYYY-MM-DD(T| )HH:MM:SS[.fraction][Z|±HH[[:]MM]] */
extern bool timestamp_read(const char *p, size_t len, TimestampText *out);
/* YYYY-MM-DD → days since 2000-01-01 */
extern bool timestamp_read_date(const char *p, size_t len, int32_t *days);
/* Microseconds since 2000-01-01 00:00, the zone left out of account. */
extern int64_t timestamp_local(const TimestampText *text);

/*
 * A plain decimal number of units since 1970-01-01 UTC; a unit is 10^shift microseconds. Parts of a microsecond are rounded, halves to
 * even. False: not a plain number of at most 18 digits, or far beyond any timestamp.
 */
extern bool timestamp_read_epoch(const char *p, size_t len, int shift, int64_t *out);

#endif
