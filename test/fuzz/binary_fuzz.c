/* binary_fuzz.c: libFuzzer target for base64 and big decimals: each against a slow and obvious reader. */
#include "fuzz.h"

#include "format/binary.h"

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/* What was read is written again: the same text, but for bits that nobody reads. */
static void
check_base64(const char *text, size_t len)
{
	uint8_t *out = malloc(len / 4 * 3 + 1);
	size_t n = 0;

	if (base64_read(text, len, out, &n))
	{
		CHECK(len % 4 == 0 && n <= len / 4 * 3 && n + 2 >= len / 4 * 3);
		for (size_t i = 0; i + 2 < n; i += 3)
		{
			uint32_t word = (uint32_t) out[i] << 16 | (uint32_t) out[i + 1] << 8 | out[i + 2];

			for (int j = 0; j < 4; j++)
				CHECK(text[i / 3 * 4 + j] == alphabet[word >> (18 - 6 * j) & 63]);
		}
	}
	free(out);
}

/* Decimal digits times 256 plus a byte, one at a time. */
static void
slow_decimal(const uint8_t *bytes, size_t len, char *digits, size_t *n)
{
	bool negative = len > 0 && bytes[0] >= 0x80;
	unsigned carry = 1;
	uint8_t *magnitude = malloc(len + 1);

	for (size_t i = len; i-- > 0;)
	{
		unsigned byte = negative ? (uint8_t) ~bytes[i] + carry : bytes[i];

		magnitude[i] = (uint8_t) byte;
		carry = negative ? byte >> 8 : 0;
	}
	*n = 1;
	digits[0] = 0;
	for (size_t i = 0; i < len; i++)
	{
		unsigned rest = magnitude[i];

		for (size_t j = 0; j < *n; j++)
		{
			rest += (unsigned) digits[j] * 256;
			digits[j] = (char) (rest % 10);
			rest /= 10;
		}
		for (; rest > 0; rest /= 10)
			digits[(*n)++] = (char) (rest % 10);
	}
	free(magnitude);
}

static void
check_decimal(const uint8_t *bytes, size_t len, int scale)
{
	char *text = malloc(decimal_text_room(len, scale)), *digits = malloc(3 * len + 8);
	size_t written = decimal_text(bytes, len, scale, text), n, at = written;

	CHECK(written < decimal_text_room(len, scale) && text[written] == '\0' && strlen(text) == written);
	slow_decimal(bytes, len, digits, &n);
	for (size_t i = 0; i < n || i <= (size_t) scale; i++)
	{
		if (i == (size_t) scale && scale > 0)
			CHECK(text[--at] == '.');
		CHECK(at > 0 && text[--at] == '0' + (i < n ? digits[i] : 0));
	}
	CHECK(at == (len > 0 && bytes[0] >= 0x80 ? 1u : 0u) && (at == 0 || text[0] == '-'));
	free(text);
	free(digits);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size < 2)
		return 0;
	check_base64((const char *) data, size);
	/* Long ones take long: some will do. */
	check_decimal(data + 2, size > 202 && data[1] % 16 ? 200 : size - 2, data[0] % 8 == 0 ? (data[0] << 6 | data[1]) : data[0] % 40);
	return 0;
}
