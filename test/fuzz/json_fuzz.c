/*
 * json_fuzz.c: libFuzzer target for the part of the JSON decoder that is free of PostgreSQL: scanner, strings, numbers, timestamps.
 * Every input is also judged by a slow and obvious reader; any disagreement aborts, as do ASAN and UBSAN.
 */
#include "fuzz.h"

#include <math.h>
#include <time.h>

#include "format/json_scan.h"
#include "format/number.h"
#include "format/timestamp.h"
#include "format/utf8.h"

/* ---- the obvious reader: RFC 8259 by recursion ---- */

typedef struct Slow
{
	const char *p, *end;
	int depth;
	bool too_deep;
} Slow;

static bool slow_value(Slow *s);

static void
slow_space(Slow *s)
{
	while (s->p < s->end && strchr(" \t\r\n", *s->p) && *s->p)
		s->p++;
}

static bool
slow_take(Slow *s, const char *word)
{
	size_t len = strlen(word);

	if ((size_t) (s->end - s->p) < len || memcmp(s->p, word, len) != 0)
		return false;
	s->p += len;
	return true;
}

static bool
slow_utf8(const unsigned char *p, size_t left, int *step)
{
	unsigned long code;
	int more;

	*step = 1;
	if (p[0] < 0x80)
		return p[0] != 0;
	if ((p[0] & 0xE0) == 0xC0)
		more = 1, code = p[0] & 0x1F;
	else if ((p[0] & 0xF0) == 0xE0)
		more = 2, code = p[0] & 0x0F;
	else if ((p[0] & 0xF8) == 0xF0)
		more = 3, code = p[0] & 0x07;
	else
		return false;
	if (left < (size_t) more + 1)
		return false;
	for (int i = 1; i <= more; i++)
	{
		if ((p[i] & 0xC0) != 0x80)
			return false;
		code = code << 6 | (p[i] & 0x3F);
	}
	*step = more + 1;
	return code >= (more == 1	? 0x80u
					: more == 2 ? 0x800u
								: 0x10000u) &&
		   code <= 0x10FFFF && (code < 0xD800 || code > 0xDFFF);
}

static bool
slow_text(const char *p, size_t len)
{
	int step;

	for (size_t i = 0; i < len; i += step)
		if (!slow_utf8((const unsigned char *) p + i, len - i, &step))
			return false;
	return true;
}

static int
slow_hex(Slow *s)
{
	char digits[5] = {0}, *stop;

	if (s->end - s->p < 4)
		return -1;
	memcpy(digits, s->p, 4);
	for (int i = 0; i < 4; i++)
		if (!strchr("0123456789abcdefABCDEF", digits[i]) || digits[i] == 0)
			return -1;
	s->p += 4;
	return (int) strtol(digits, &stop, 16);
}

static bool
slow_string(Slow *s)
{
	if (!slow_take(s, "\""))
		return false;
	while (s->p < s->end && *s->p != '"')
	{
		if ((unsigned char) *s->p < 0x20)
			return false;
		if (*s->p++ != '\\')
			continue;
		if (slow_take(s, "u"))
		{
			int code = slow_hex(s), low;

			if (code <= 0 || (code >= 0xDC00 && code <= 0xDFFF))
				return false;
			if (code < 0xD800 || code > 0xDBFF)
				continue;
			if (!slow_take(s, "\\u"))
				return false;
			low = slow_hex(s);
			if (low < 0xDC00 || low > 0xDFFF)
				return false;
		}
		else if (s->p < s->end && *s->p && strchr("\"\\/bfnrt", *s->p))
			s->p++;
		else
			return false;
	}
	return slow_take(s, "\"");
}

static bool
slow_digits(Slow *s)
{
	const char *first = s->p;

	while (s->p < s->end && *s->p >= '0' && *s->p <= '9')
		s->p++;
	return s->p > first;
}

static bool
slow_number(Slow *s)
{
	slow_take(s, "-");
	if (!slow_take(s, "0") && !slow_digits(s))
		return false;
	if (slow_take(s, ".") && !slow_digits(s))
		return false;
	if (slow_take(s, "e") || slow_take(s, "E"))
	{
		if (!slow_take(s, "+"))
			slow_take(s, "-");
		return slow_digits(s);
	}
	return true;
}

static bool
slow_members(Slow *s, bool object)
{
	const char *close = object ? "}" : "]";
	bool good = false;

	s->p++;
	if (++s->depth > JSON_MAX_DEPTH)
	{
		s->too_deep = true;
		return false;
	}
	slow_space(s);
	if (slow_take(s, close))
		good = true;
	while (!good)
	{
		if (object)
		{
			slow_space(s);
			if (!slow_string(s))
				return false;
			slow_space(s);
			if (!slow_take(s, ":"))
				return false;
		}
		slow_space(s);
		if (!slow_value(s))
			return false;
		slow_space(s);
		if (slow_take(s, ","))
			continue;
		if (!slow_take(s, close))
			return false;
		good = true;
	}
	s->depth--;
	return true;
}

static bool
slow_value(Slow *s)
{
	if (s->p >= s->end)
		return false;
	if (*s->p == '{' || *s->p == '[')
		return slow_members(s, *s->p == '{');
	if (*s->p == '"')
		return slow_string(s);
	return slow_take(s, "true") || slow_take(s, "false") || slow_take(s, "null") || slow_number(s);
}

static bool
slow_document(const char *p, size_t len, bool *too_deep)
{
	Slow s = {p, p + len, 0, false};
	bool good;

	if (len >= 3 && memcmp(p, "\xEF\xBB\xBF", 3) == 0)
		s.p += 3;
	slow_space(&s);
	good = s.p < s.end && *s.p == '{' && slow_value(&s);
	slow_space(&s);
	*too_deep = s.too_deep;
	return good && s.p == s.end && slow_text(p, len);
}

/* ---- the small readers against the C library ---- */

static void
check_number(const char *text, size_t len)
{
	char copy[128];
	double real;
	float single;
	int64_t integer;
	Decimal decimal;

	if (len >= sizeof(copy))
		return;
	memcpy(copy, text, len);
	copy[len] = '\0';
	if (number_read_double(text, len, &real))
	{
		double expected = strtod(copy, NULL);

		CHECK(memcmp(&real, &expected, sizeof(real)) == 0);
	}
	if (number_read_float(text, len, &single))
	{
		float expected = strtof(copy, NULL);

		CHECK(memcmp(&single, &expected, sizeof(single)) == 0);
	}
	if (number_read_int64(text, len, &integer))
		CHECK(integer == strtoll(copy, NULL, 10));
	if (number_read_decimal(text, len, &decimal))
	{
		CHECK(fabs((double) decimal.mantissa / pow(10, decimal.scale) - strtod(copy, NULL)) <=
			  fabs(strtod(copy, NULL)) * 1e-12);
		CHECK(decimal.digits <= 18 && decimal.scale >= 0);
	}
	for (int shift = 0; shift <= 6; shift += 3)
		if (timestamp_read_epoch(text, len, shift, &integer))
		{
			double expected = strtod(copy, NULL) * pow(10, shift) - 946684800e6;

			CHECK(fabs((double) integer - expected) <= 1 + fabs(expected) * 1e-9);
		}
}

static void
check_timestamp(const char *text, size_t len)
{
	TimestampText read;
	int32_t days;
	struct tm tm = {0};

	if (timestamp_read(text, len, &read))
	{
		tm.tm_year = read.year - 1900;
		tm.tm_mon = read.month - 1;
		tm.tm_mday = read.day;
		tm.tm_hour = read.hour;
		tm.tm_min = read.minute;
		tm.tm_sec = read.second;
		CHECK(timestamp_local(&read) == ((int64_t) timegm(&tm) - 946684800) * 1000000 + read.microsecond);
		CHECK(tm.tm_mday == read.day &&
			  tm.tm_mon == read.month - 1); /* timegm would have moved a day that does not exist */
		CHECK(read.microsecond >= 0 && read.microsecond <= 1000000);
		CHECK(read.zone > -16 * 3600 && read.zone < 16 * 3600);
	}
	if (timestamp_read_date(text, len, &days))
	{
		tm = (struct tm){.tm_year = atoi((char[5]){text[0], text[1], text[2], text[3], 0}) - 1900,
						 .tm_mon = atoi((char[3]){text[5], text[6], 0}) - 1,
						 .tm_mday = atoi((char[3]){text[8], text[9], 0})};
		CHECK((int64_t) days * 86400 == (int64_t) timegm(&tm) - 946684800);
	}
}

static void
check_token(const JsonToken *token, const char *buf, size_t len)
{
	if (token->kind == JSON_ABSENT)
		return;
	CHECK(token->start >= buf && token->start + token->len <= buf + len);
	if (token->kind == JSON_NUMBER)
		check_number(token->start, token->len);
	if (token->kind == JSON_STRING)
	{
		char *out = malloc(token->len + 1);
		size_t n = json_unescape(token, out);

		CHECK(n <= token->len && slow_text(out, n));
		CHECK(token->escaped || (n == token->len && memcmp(out, token->start, n) == 0));
		check_timestamp(out, n);
		check_number(out, n);
		free(out);
	}
}

/* The tree lives as long as the program; what it outgrows stays reachable. */
static void *
keep_alloc(size_t size)
{
	static void *newest;
	void **block = malloc(sizeof(void *) + 8 + size);

	*block = newest;
	newest = block;
	return (char *) block + 16;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static JsonTree tree;
	static JsonScan scan;
	const char *buf = (const char *) data;
	bool good, expected, too_deep;

	if (tree.nodes == NULL)
	{
		int user;

		json_tree_init(&tree, keep_alloc);
		json_tree_add(&tree, 0, "id", 2);
		json_tree_add(&tree, 0, "ts", 2);
		json_tree_add(&tree, 0, "a longer name", 13);
		user = json_tree_add(&tree, 0, "user", 4);
		json_tree_add(&tree, user, "name", 4);
		json_tree_add(&tree, json_tree_add(&tree, user, "geo", 3), "x", 1);
		for (char c = 'a'; c <= 'l'; c++) /* many: hashed */
			json_tree_add(&tree, user, &c, 1);
		json_tree_finish(&tree, &scan);
	}
	good = json_scan(&scan, buf, size);
	expected = slow_document(buf, size, &too_deep);
	if (too_deep)
		CHECK(!good);
	else
		CHECK(good == expected);
	CHECK((utf8_invalid(buf, size) == NULL) == slow_text(buf, size));
	CHECK(json_fault_text(scan.fault)[0] != '\0');
	if (good)
		for (int i = 1; i < tree.nnodes; i++)
			check_token(&scan.tokens[i], buf, size);
	else
		CHECK(scan.where >= buf && scan.where <= buf + size);
	check_number(buf, size);
	check_timestamp(buf, size);
	return 0;
}
