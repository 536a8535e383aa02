/*
 * json_scan.c: bytes of a JSON document → tokens of the wanted fields, in one pass, everything checked on the way.
 * json_scan ─ object ─ members along the tree of paths (recursion, bounded); all other values: skip_container, without recursion.
 * Never read at or behind scan->end: messages lie in librdkafka's buffers, with no room after them.
 */
#include "format/json_scan.h"

#include <string.h>

#include "format/utf8.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

/* ---- scalars; each takes the first byte and returns the byte behind, or NULL with the fault set ---- */

static const char *
fail(JsonScan *scan, const char *where, JsonFault fault)
{
	scan->fault = fault;
	scan->where = where;
	return NULL;
}

static const char *
fail_token(JsonScan *scan, const char *where)
{
	return fail(scan, where, where >= scan->end ? JSON_END : JSON_UNEXPECTED);
}

static inline const char *
skip_space(const char *p, const char *end)
{
	while (p < end && (*p == ' ' || *p == '\n' || *p == '\t' || *p == '\r'))
		p++;
	return p;
}

static inline bool
is_digit(char c)
{
	return (unsigned char) (c - '0') <= 9;
}

/* p is at the backslash. */
static const char *
scan_escape(JsonScan *scan, const char *p)
{
	int code, low;

	if (p + 1 >= scan->end)
		return fail(scan, scan->end, JSON_END);
	switch (p[1])
	{
		case '"':
		case '\\':
		case '/':
		case 'b':
		case 'f':
		case 'n':
		case 'r':
		case 't':
			return p + 2;
		case 'u':
			break;
		default:
			return fail(scan, p, JSON_ESCAPE);
	}
	code = json_hex4(p + 2, scan->end);
	if (code < 0)
		return fail(scan, p, JSON_ESCAPE);
	if (code == 0)
		return fail(scan, p, JSON_ZERO);
	if (code < 0xD800 || code > 0xDFFF)
		return p + 6;
	if (code > 0xDBFF || scan->end - p < 12 || p[6] != '\\' || p[7] != 'u')
		return fail(scan, p, JSON_SURROGATE);
	low = json_hex4(p + 8, scan->end);
	if (low < 0)
		return fail(scan, p + 6, JSON_ESCAPE);
	if (low < 0xDC00 || low > 0xDFFF)
		return fail(scan, p, JSON_SURROGATE);
	return p + 12;
}

/* First byte that a string cannot pass over blindly: quote, backslash, control character, non-ASCII; or end. */
static inline const char *
plain_run(const char *p, const char *end)
{
#ifdef __SSE2__
	const __m128i quote = _mm_set1_epi8('"');
	const __m128i backslash = _mm_set1_epi8('\\');
	const __m128i control = _mm_set1_epi8(0x1F);

	for (; end - p >= 16; p += 16)
	{
		__m128i block = _mm_loadu_si128((const __m128i *) p);
		__m128i special = _mm_or_si128(_mm_cmpeq_epi8(block, quote), _mm_cmpeq_epi8(block, backslash));
		unsigned mask;

		special = _mm_or_si128(special, _mm_cmpeq_epi8(_mm_max_epu8(block, control), control));
		mask = (unsigned) _mm_movemask_epi8(_mm_or_si128(special, block));
		if (mask != 0)
			return p + __builtin_ctz(mask);
	}
#endif
	for (; p < end; p++)
	{
		unsigned char c = (unsigned char) *p;

		if (c == '"' || c == '\\' || c < 0x20 || c >= 0x80)
			break;
	}
	return p;
}

/* p is behind the opening quote. */
static inline const char *
scan_string(JsonScan *scan, const char *p, JsonToken *token)
{
	token->kind = JSON_STRING;
	token->start = p;
	token->escaped = false;
	for (;;)
	{
		p = plain_run(p, scan->end);
		if (p >= scan->end)
			return fail(scan, p, JSON_END);
		if (*p == '"')
		{
			token->len = p - token->start;
			return p + 1;
		}
		if (*p == '\\')
		{
			token->escaped = true;
			p = scan_escape(scan, p);
			if (p == NULL)
				return NULL;
			continue;
		}
		if ((unsigned char) *p < 0x20)
			return fail(scan, p, JSON_CONTROL);
		do
		{
			int step = utf8_sequence(p, scan->end);

			if (step == 0)
				return fail(scan, p, JSON_ENCODING);
			p += step;
		} while (p < scan->end && (unsigned char) *p >= 0x80);
	}
}

static const char *
scan_number(JsonScan *scan, const char *p, JsonToken *token)
{
	const char *start = p;
	int exponent = 0;

	if (*p == '-')
		p++;
	if (p >= scan->end || !is_digit(*p))
		return fail_token(scan, p);
	if (*p == '0')
		p++;
	else
		while (p < scan->end && is_digit(*p))
			p++;
	if (p < scan->end && *p == '.')
	{
		p++;
		if (p >= scan->end || !is_digit(*p))
			return fail_token(scan, p);
		while (p < scan->end && is_digit(*p))
			p++;
	}
	if (p < scan->end && (*p == 'e' || *p == 'E'))
	{
		p++;
		if (p < scan->end && (*p == '+' || *p == '-'))
			p++;
		if (p >= scan->end || !is_digit(*p))
			return fail_token(scan, p);
		for (; p < scan->end && is_digit(*p); p++)
			if (exponent < 100000)
				exponent = exponent * 10 + (*p - '0');
	}
	token->kind = JSON_NUMBER;
	token->start = start;
	token->len = p - start;
	token->escaped = false;
	/* Any number of this size fits numeric; about others it is asked. */
	if ((token->len > 1000 || exponent > 1000) && scan->check_number &&
		!scan->check_number(scan->arg, start, token->len))
		return fail(scan, start, JSON_RANGE);
	return p;
}

static const char *
scan_literal(JsonScan *scan, const char *p, JsonToken *token, const char *word, size_t len, JsonKind kind)
{
	size_t left = scan->end - p;

	token->kind = kind;
	token->start = p;
	token->len = len;
	token->escaped = false;
	if (left >= len && memcmp(p, word, len) == 0)
		return p + len;
	for (size_t i = 0; i < len; i++)
		if (i >= left || p[i] != word[i])
			return fail_token(scan, p + i);
	return NULL; /* not reached */
}

static inline const char *
scan_scalar(JsonScan *scan, const char *p, JsonToken *token)
{
	if (p >= scan->end)
		return fail(scan, p, JSON_END);
	switch (*p)
	{
		case '"':
			return scan_string(scan, p + 1, token);
		case 't':
			return scan_literal(scan, p, token, "true", 4, JSON_TRUE);
		case 'f':
			return scan_literal(scan, p, token, "false", 5, JSON_FALSE);
		case 'n':
			return scan_literal(scan, p, token, "null", 4, JSON_NULL);
		default:
			if (*p == '-' || is_digit(*p))
				return scan_number(scan, p, token);
			return fail(scan, p, JSON_UNEXPECTED);
	}
}

/* ---- containers ---- */

/* From behind a key to the first byte of its value. */
static inline const char *
scan_colon(JsonScan *scan, const char *p)
{
	p = skip_space(p, scan->end);
	if (p >= scan->end || *p != ':')
		return fail_token(scan, p);
	return skip_space(p + 1, scan->end);
}

/* `"key" :` up to the first byte of the value. */
static inline const char *
scan_key(JsonScan *scan, const char *p, JsonToken *key)
{
	if (p >= scan->end || *p != '"')
		return fail_token(scan, p);
	p = scan_string(scan, p + 1, key);
	return p == NULL ? NULL : scan_colon(scan, p);
}

/* Names are short: no call. */
static inline bool
same_bytes(const char *a, const char *b, size_t len)
{
	uint64_t x, y;
	uint32_t first[2], last[2];

	if (len < 4)
		return memcmp(a, b, len) == 0;
	if (len < 8)
	{
		memcpy(&first[0], a, 4);
		memcpy(&first[1], b, 4);
		memcpy(&last[0], a + len - 4, 4);
		memcpy(&last[1], b + len - 4, 4);
		return first[0] == first[1] && last[0] == last[1];
	}
	for (size_t i = 0; i + 8 < len; i += 8)
	{
		memcpy(&x, a + i, 8);
		memcpy(&y, b + i, 8);
		if (x != y)
			return false;
	}
	memcpy(&x, a + len - 8, 8);
	memcpy(&y, b + len - 8, 8);
	return x == y;
}

/* Documents of one stream look alike: the child that came next last time, if its name stands at p, quotes and all; else -1. */
static inline int
guess_child(JsonScan *scan, int parent_id, const char *p)
{
	JsonNode *nodes = scan->tree->nodes, *parent = &nodes[parent_id];
	int child = parent->latest >= 0 ? nodes[parent->latest].after : -1;

	if (child < 0 || !nodes[child].quoted || (size_t) (scan->end - p) < nodes[child].name_len + 2 ||
		!same_bytes(p, nodes[child].quoted, nodes[child].name_len + 2))
		return -1;
	parent->latest = child;
	return child;
}

/* The same where some keys are wanted. *child: the node of a wanted one, else -1. */
static inline const char *
scan_wanted_key(JsonScan *scan, const char *p, int node, int *child)
{
	JsonToken key;

	*child = guess_child(scan, node, p);
	if (*child >= 0)
		return scan_colon(scan, p + scan->tree->nodes[*child].name_len + 2);
	p = scan_key(scan, p, &key);
	if (p != NULL)
		*child = json_tree_child(scan, node, &key);
	return p;
}

/* p is at the opening bracket of a value nobody wants the inside of; `depth` brackets are open around it. */
static const char *
skip_container(JsonScan *scan, const char *p, int depth)
{
	uint64_t objects[JSON_MAX_DEPTH / 64 + 1]; /* one bit per open bracket: is it an object? */
	JsonToken ignored;
	int open = 0;

	for (;;)
	{
		/* p is at the first byte of a value */
		if (p < scan->end && (*p == '{' || *p == '['))
		{
			uint64_t bit = UINT64_C(1) << (open & 63);
			bool object = *p == '{';

			if (depth + open >= JSON_MAX_DEPTH)
				return fail(scan, p, JSON_DEPTH);
			if (object)
				objects[open >> 6] |= bit;
			else
				objects[open >> 6] &= ~bit;
			open++;
			p = skip_space(p + 1, scan->end);
			if (p >= scan->end || *p != (object ? '}' : ']'))
			{
				if (object && (p = scan_key(scan, p, &ignored)) == NULL)
					return NULL;
				continue;
			}
			/* empty: the loop below closes it */
		}
		else if ((p = scan_scalar(scan, p, &ignored)) == NULL)
			return NULL;

		/* p is behind a value, or at the bracket that closes an empty container */
		for (;;)
		{
			bool object = objects[(open - 1) >> 6] >> ((open - 1) & 63) & 1;

			p = skip_space(p, scan->end);
			if (p >= scan->end)
				return fail(scan, p, JSON_END);
			if (*p == ',')
			{
				p = skip_space(p + 1, scan->end);
				if (object && (p = scan_key(scan, p, &ignored)) == NULL)
					return NULL;
				break;
			}
			if (*p != (object ? '}' : ']'))
				return fail(scan, p, JSON_UNEXPECTED);
			p++;
			if (--open == 0)
				return p;
		}
	}
}

static void
forget_children(JsonScan *scan, int node)
{
	for (int child = scan->tree->nodes[node].first_child; child >= 0; child = scan->tree->nodes[child].next)
	{
		scan->tokens[child].kind = JSON_ABSENT;
		forget_children(scan, child);
	}
}

/* p is at the opening brace of an object with wanted fields; `depth` brackets are open around it. */
static const char *
scan_object(JsonScan *scan, const char *p, int node, int depth)
{
	JsonToken ignored;

	if (depth >= JSON_MAX_DEPTH)
		return fail(scan, p, JSON_DEPTH);
	p = skip_space(p + 1, scan->end);
	if (p < scan->end && *p == '}')
		return p + 1;
	for (;;)
	{
		JsonToken *token;
		const char *start;
		int child;

		start = p = scan_wanted_key(scan, p, node, &child);
		if (p == NULL)
			return NULL;
		token = child >= 0 ? &scan->tokens[child] : &ignored;
		/* A key met again counts alone, with all that is in it: the last one wins, as in jsonb. */
		if (child >= 0 && token->kind != JSON_ABSENT)
			forget_children(scan, child);
		if (p < scan->end && (*p == '{' || *p == '['))
		{
			JsonKind kind = *p == '{' ? JSON_OBJECT : JSON_ARRAY;

			if (kind == JSON_OBJECT && child >= 0 && scan->tree->nodes[child].nchildren > 0)
				p = scan_object(scan, p, child, depth + 1);
			else
				p = skip_container(scan, p, depth + 1);
			if (p == NULL)
				return NULL;
			token->kind = kind;
			token->start = start;
			token->len = p - start;
			token->escaped = false;
		}
		else if ((p = scan_scalar(scan, p, token)) == NULL)
			return NULL;
		p = skip_space(p, scan->end);
		if (p >= scan->end)
			return fail(scan, p, JSON_END);
		if (*p == '}')
			return p + 1;
		if (*p != ',')
			return fail(scan, p, JSON_UNEXPECTED);
		p = skip_space(p + 1, scan->end);
	}
}

static const char *
scan_document(JsonScan *scan, const char *p)
{
	JsonToken ignored;

	if (p < scan->end && *p == '{')
		return scan_object(scan, p, 0, 0);
	/* Nothing else can be used; it is read to the end all the same, to say the right thing about it. */
	p = p < scan->end && *p == '[' ? skip_container(scan, p, 0) : scan_scalar(scan, p, &ignored);
	if (p == NULL)
		return NULL;
	p = skip_space(p, scan->end);
	if (p < scan->end)
		return fail(scan, p, JSON_UNEXPECTED);
	return fail(scan, scan->begin, JSON_NOT_AN_OBJECT);
}

bool
json_scan(JsonScan *scan, const char *buf, size_t len)
{
	const char *p = buf, *bad;

	scan->begin = buf;
	scan->end = buf + len;
	scan->fault = JSON_OK;
	scan->where = NULL;
	for (int i = 0; i < scan->tree->nnodes; i++)
		scan->tokens[i].kind = JSON_ABSENT;
	/* A byte order mark says "UTF-8" and is no part of the document. */
	if (len >= 3 && memcmp(p, "\xEF\xBB\xBF", 3) == 0)
		p += 3;
	p = scan_document(scan, skip_space(p, scan->end));
	if (p != NULL)
	{
		p = skip_space(p, scan->end);
		if (p == scan->end)
			return true;
		fail(scan, p, JSON_UNEXPECTED);
	}
	/* Bytes that are no text outrank whatever else is wrong. */
	if (scan->fault != JSON_ENCODING && (bad = utf8_invalid(buf, len)) != NULL)
		fail(scan, bad, JSON_ENCODING);
	return false;
}
