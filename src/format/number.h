/*
 * number.h: the plain numbers, read without a library. Free of PostgreSQL.
 * Each reader takes what it can read exactly and refuses the rest, which then goes to the type's input function.
 */
#ifndef STREAM_FORMAT_NUMBER_H
#define STREAM_FORMAT_NUMBER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* [-]digits[.digits], at most 18 digits in all: value = mantissa / 10^scale. */
typedef struct Decimal
{
	int64_t mantissa;
	int scale;	/* digits behind the point */
	int digits; /* significant digits: leading zeros do not count */
	bool negative;
} Decimal;

extern bool number_read_decimal(const char *p, size_t len, Decimal *out);
extern bool number_read_int64(const char *p, size_t len, int64_t *out); /* [-]digits */
extern bool number_read_double(const char *p, size_t len, double *out); /* correctly rounded, as strtod */
extern bool number_read_float(const char *p, size_t len, float *out);	/* correctly rounded, as strtof */

#endif
