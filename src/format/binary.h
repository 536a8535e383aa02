/*
 * binary.h: bytes of other systems as text: base64, and whole numbers of any size (two's complement, big end first) with a decimal point.
 * Free of PostgreSQL, so that it can be fuzzed alone.
 */
#ifndef STREAM_FORMAT_BINARY_H
#define STREAM_FORMAT_BINARY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BINARY_DECIMAL_MAX_BYTES 4096  /* about 9800 digits */
#define BINARY_DECIMAL_MAX_SCALE 16383 /* as numeric's */

/* RFC 4648 with padding; out has room for len / 4 * 3 bytes. False: it is none. */
extern bool base64_read(const char *p, size_t len, uint8_t *out, size_t *out_len);

/* Room for the text of a decimal, with its end. */
extern size_t decimal_text_room(size_t len, int scale);
/* The number in len bytes, divided by 10^scale, as digits; returns their count. len and scale within the bounds above, scale not negative. */
extern size_t decimal_text(const uint8_t *bytes, size_t len, int scale, char *out);

#endif
