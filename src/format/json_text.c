/*
 * json_text.c: what stands in JSON strings, and words for what is wrong with a document.
 * Strings come from the scanner, which has checked every escape in them.
 */
#include "format/json_scan.h"

#include <string.h>

#include "format/utf8.h"

static int
hex_value(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

/* Four hex digits at p; -1 when they are not there. */
int
json_hex4(const char *p, const char *end)
{
	int code = 0;

	if (end - p < 4)
		return -1;
	for (int i = 0; i < 4; i++)
	{
		int digit = hex_value(p[i]);

		if (digit < 0)
			return -1;
		code = code << 4 | digit;
	}
	return code;
}

size_t
json_unescape(const JsonToken *token, char *out)
{
	const char *p = token->start, *end = p + token->len;
	char *begin = out;

	while (p < end)
	{
		const char *backslash = memchr(p, '\\', end - p);
		size_t plain = (backslash ? backslash : end) - p;
		uint32_t code;

		memmove(out, p, plain);
		out += plain;
		if (backslash == NULL)
			break;
		p = backslash + 2;
		switch (backslash[1])
		{
			case 'b':
				*out++ = '\b';
				break;
			case 'f':
				*out++ = '\f';
				break;
			case 'n':
				*out++ = '\n';
				break;
			case 'r':
				*out++ = '\r';
				break;
			case 't':
				*out++ = '\t';
				break;
			case 'u':
				code = (uint32_t) json_hex4(p, end);
				p += 4;
				if (code >= 0xD800 && code <= 0xDBFF)
				{
					code = 0x10000 + ((code - 0xD800) << 10) + ((uint32_t) json_hex4(p + 2, end) - 0xDC00);
					p += 6;
				}
				out += utf8_encode(code, out);
				break;
			default: /* quote, backslash, slash */
				*out++ = backslash[1];
		}
	}
	return out - begin;
}

const char *
json_fault_text(JsonFault fault)
{
	switch (fault)
	{
		case JSON_OK:
			return "no fault";
		case JSON_ENCODING:
			return "invalid byte sequence for encoding \"UTF8\"";
		case JSON_END:
			return "invalid JSON: the document ends too early";
		case JSON_UNEXPECTED:
			return "invalid JSON: unexpected character";
		case JSON_CONTROL:
			return "invalid JSON: control character in a string must be escaped";
		case JSON_ESCAPE:
			return "invalid JSON: invalid escape sequence";
		case JSON_SURROGATE:
			return "invalid JSON: half of a surrogate pair";
		case JSON_ZERO:
			return "\\u0000 cannot be converted to text";
		case JSON_DEPTH:
			return "JSON document nested too deeply";
		case JSON_RANGE:
			return "JSON number out of range";
		case JSON_NOT_AN_OBJECT:
			return "JSON document is not an object";
	}
	return "invalid JSON";
}
