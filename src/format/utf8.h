/* utf8.h: UTF-8 as PostgreSQL defines it (RFC 3629, no surrogates, no zero byte). Free of PostgreSQL. */
#ifndef STREAM_FORMAT_UTF8_H
#define STREAM_FORMAT_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define UTF8_HIGH_BITS UINT64_C(0x8080808080808080)

/* Length of the sequence that begins at p, a byte >= 0x80; 0 when it is none. */
static inline int
utf8_sequence(const char *p, const char *end)
{
	const unsigned char *u = (const unsigned char *) p;
	size_t left = end - p;

	if (u[0] < 0xC2 || u[0] > 0xF4)
		return 0;
	if (left < 2 || (u[1] & 0xC0) != 0x80)
		return 0;
	if (u[0] < 0xE0)
		return 2;
	if (left < 3 || (u[2] & 0xC0) != 0x80)
		return 0;
	if (u[0] < 0xF0)
	{
		if ((u[0] == 0xE0 && u[1] < 0xA0) || (u[0] == 0xED && u[1] > 0x9F))
			return 0;
		return 3;
	}
	if (left < 4 || (u[3] & 0xC0) != 0x80)
		return 0;
	if ((u[0] == 0xF0 && u[1] < 0x90) || (u[0] == 0xF4 && u[1] > 0x8F))
		return 0;
	return 4;
}

static inline bool
utf8_is_ascii(const char *p, size_t len)
{
	uint64_t word, seen = 0;
	size_t i;

	for (i = 0; i + 8 <= len; i += 8)
	{
		memcpy(&word, p + i, 8);
		seen |= word;
	}
	for (; i < len; i++)
		seen |= (unsigned char) p[i];
	return (seen & UTF8_HIGH_BITS) == 0;
}

/* First byte that is no UTF-8 or is zero; NULL when all is well. */
static inline const char *
utf8_invalid(const char *p, size_t len)
{
	const char *end = p + len;

	if (len > 0 && utf8_is_ascii(p, len))
		return memchr(p, 0, len);
	while (p < end)
	{
		int step = (unsigned char) *p < 0x80 ? *p != 0 : utf8_sequence(p, end);

		if (step == 0)
			return p;
		p += step;
	}
	return NULL;
}

/* Writes code (no surrogate, at most 10FFFF) and returns the bytes used. */
static inline int
utf8_encode(uint32_t code, char *out)
{
	if (code < 0x80)
	{
		out[0] = (char) code;
		return 1;
	}
	if (code < 0x800)
	{
		out[0] = (char) (0xC0 | code >> 6);
		out[1] = (char) (0x80 | (code & 0x3F));
		return 2;
	}
	if (code < 0x10000)
	{
		out[0] = (char) (0xE0 | code >> 12);
		out[1] = (char) (0x80 | (code >> 6 & 0x3F));
		out[2] = (char) (0x80 | (code & 0x3F));
		return 3;
	}
	out[0] = (char) (0xF0 | code >> 18);
	out[1] = (char) (0x80 | (code >> 12 & 0x3F));
	out[2] = (char) (0x80 | (code >> 6 & 0x3F));
	out[3] = (char) (0x80 | (code & 0x3F));
	return 4;
}

#endif
