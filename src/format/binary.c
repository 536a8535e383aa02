/* binary.c: base64 and big decimals. Danger: lengths come from messages; callers keep to the bounds in binary.h. */
#include "format/binary.h"

#include <string.h>

static int
base64_digit(char c)
{
	if (c >= 'A' && c <= 'Z')
		return c - 'A';
	if (c >= 'a' && c <= 'z')
		return c - 'a' + 26;
	if (c >= '0' && c <= '9')
		return c - '0' + 52;
	return c == '+' ? 62 : c == '/' ? 63 : -1;
}

bool
base64_read(const char *p, size_t len, uint8_t *out, size_t *out_len)
{
	size_t padding = 0, n = 0;

	if (len % 4 != 0)
		return false;
	while (padding < 2 && padding < len && p[len - 1 - padding] == '=')
		padding++;
	for (size_t i = 0; i < len; i += 4)
	{
		size_t digits = i + 4 == len ? 4 - padding : 4;
		uint32_t word = 0;

		for (size_t j = 0; j < digits; j++)
		{
			int digit = base64_digit(p[i + j]);

			if (digit < 0)
				return false;
			word |= (uint32_t) digit << (18 - 6 * j);
		}
		for (size_t j = 0; j + 1 < digits; j++)
			out[n++] = (uint8_t) (word >> (16 - 8 * j));
	}
	*out_len = n;
	return true;
}

size_t
decimal_text_room(size_t len, int scale)
{
	return len * 5 / 2 + (size_t) scale + 8;
}

/* Digits of the magnitude in bytes, least first; bytes are used up. */
static size_t
digits_of(uint8_t *bytes, size_t len, char *out)
{
	size_t n = 0, first = 0;

	while (first < len)
	{
		uint32_t rest = 0;

		for (size_t i = first; i < len; i++)
		{
			uint32_t word = rest << 8 | bytes[i]; /* below 10000 * 256 */

			bytes[i] = (uint8_t) (word / 10000);
			rest = word % 10000;
		}
		while (first < len && bytes[first] == 0)
			first++;
		for (int i = 0; i < 4; i++, rest /= 10)
			out[n++] = (char) ('0' + rest % 10);
	}
	while (n > 0 && out[n - 1] == '0')
		n--;
	return n;
}

size_t
decimal_text(const uint8_t *bytes, size_t len, int scale, char *out)
{
	uint8_t magnitude[BINARY_DECIMAL_MAX_BYTES];
	char *start = out;
	bool negative = len > 0 && bytes[0] & 0x80;
	unsigned carry = 1;
	size_t n;

	memcpy(magnitude, bytes, len);
	for (size_t i = len; negative && i-- > 0;)
	{
		carry += (uint8_t) ~bytes[i];
		magnitude[i] = (uint8_t) carry;
		carry >>= 8;
	}
	if (negative)
		*out++ = '-';
	n = digits_of(magnitude, len, out);
	while (n < (size_t) scale + 1)
		out[n++] = '0';
	for (size_t i = 0; i < n / 2; i++)
	{
		char c = out[i];

		out[i] = out[n - 1 - i];
		out[n - 1 - i] = c;
	}
	if (scale > 0)
	{
		memmove(out + n - scale + 1, out + n - scale, scale);
		out[n++ - scale] = '.';
	}
	out[n] = '\0';
	return (size_t) (out - start) + n;
}
