/*
 * avro_json.c: Avro value → JSON text. The bytes have been read once by avro_scan.c, strings are known to be UTF-8: this is the second look.
 */
#include "format/avro_json.h"

#include <math.h>

#include "common/shortest_dec.h"
#include "format/binary.h"
#include "format/encoded.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/json.h"

static bool write_value(StringInfo json, AvroScan *scan, const AvroSchema *schema);

char *
avro_uuid_text(const char *bytes)
{
	char *text = palloc(37), *out = text;

	for (int i = 0; i < 16; i++)
	{
		if (i == 4 || i == 6 || i == 8 || i == 10)
			*out++ = '-';
		out += sprintf(out, "%02x", (unsigned char) bytes[i]);
	}
	return text;
}

static uint32
little_end(const char *bytes)
{
	return (uint32) (uint8) bytes[0] | (uint32) (uint8) bytes[1] << 8 | (uint32) (uint8) bytes[2] << 16 | (uint32) (uint8) bytes[3] << 24;
}

char *
avro_months_text(const char *bytes)
{
	return psprintf("%u months %u days %u milliseconds", little_end(bytes), little_end(bytes + 4), little_end(bytes + 8));
}

char *
avro_real_text(const AvroToken *token)
{
	char *text = palloc(DOUBLE_SHORTEST_DECIMAL_LEN);

	if (isnan(token->real))
		return pstrdup("NaN");
	if (isinf(token->real))
		return pstrdup(token->real > 0 ? "Infinity" : "-Infinity");
	if (token->schema->type == AVRO_FLOAT)
		float_to_shortest_decimal_buf((float) token->real, text);
	else
		double_to_shortest_decimal_buf(token->real, text);
	return text;
}

/* Bytes that are text already. */
static void
write_string(StringInfo json, const char *p, size_t len)
{
	char *copy = pnstrdup(p, len);

	escape_json(json, copy);
	pfree(copy);
}

static bool
write_decimal(StringInfo json, const AvroToken *token)
{
	if (token->len > BINARY_DECIMAL_MAX_BYTES)
		return false;
	enlargeStringInfo(json, decimal_text_room(token->len, token->schema->scale));
	json->len += decimal_text((const uint8 *) token->start, token->len, token->schema->scale, json->data + json->len);
	return true;
}

static bool
write_bytes(StringInfo json, const AvroToken *token)
{
	switch (token->schema->encoding)
	{
		case ENCODED_DECIMAL:
			return write_decimal(json, token);
		case ENCODED_UUID:
			appendStringInfo(json, "\"%s\"", avro_uuid_text(token->start));
			return true;
		case ENCODED_MONTHS:
			appendStringInfo(json, "\"%s\"", avro_months_text(token->start));
			return true;
		default:
			appendStringInfoString(json, "\"\\\\x");
			enlargeStringInfo(json, token->len * 2 + 1);
			json->len += hex_encode(token->start, token->len, json->data + json->len);
			json->data[json->len] = '\0';
			appendStringInfoChar(json, '"');
			return true;
	}
}

static bool
write_number(StringInfo json, const AvroToken *token)
{
	char *text = encoded_text(token->schema->encoding, token->number);

	if (text == NULL)
		return false;
	appendStringInfo(json, token->schema->encoding == ENCODED_PLAIN ? "%s" : "\"%s\"", text);
	pfree(text);
	return true;
}

static bool
write_scalar(StringInfo json, const AvroToken *token)
{
	char *text;

	switch (token->schema->type)
	{
		case AVRO_BOOLEAN:
			appendStringInfoString(json, token->number ? "true" : "false");
			return true;
		case AVRO_INT:
		case AVRO_LONG:
			return write_number(json, token);
		case AVRO_FLOAT:
		case AVRO_DOUBLE:
			text = avro_real_text(token);
			appendStringInfo(json, isfinite(token->real) ? "%s" : "\"%s\"", text);
			pfree(text);
			return true;
		case AVRO_ENUM:
			escape_json(json, token->schema->names[token->number]);
			return true;
		case AVRO_BYTES:
		case AVRO_FIXED:
			return write_bytes(json, token);
		case AVRO_STRING:
			write_string(json, token->start, token->len);
			return true;
		default:
			appendStringInfoString(json, "null");
			return true;
	}
}

static bool
write_record(StringInfo json, AvroScan *scan, const AvroSchema *schema)
{
	appendStringInfoChar(json, '{');
	for (int i = 0; i < schema->count; i++)
	{
		if (i > 0)
			appendStringInfoChar(json, ',');
		escape_json(json, schema->names[i]);
		appendStringInfoChar(json, ':');
		if (!write_value(json, scan, schema->children[i]))
			return false;
	}
	appendStringInfoChar(json, '}');
	return true;
}

static bool
write_items(StringInfo json, AvroScan *scan, const AvroSchema *schema)
{
	static const AvroSchema text = {.type = AVRO_STRING};
	bool is_map = schema->type == AVRO_MAP, first = true;
	AvroToken key;
	int64 count;

	appendStringInfoChar(json, is_map ? '{' : '[');
	while (avro_read_block(scan, &count) && count > 0)
		while (count-- > 0)
		{
			if (!first)
				appendStringInfoChar(json, ',');
			first = false;
			if (is_map && !avro_read_scalar(scan, &text, &key))
				return false;
			if (is_map)
			{
				write_string(json, key.start, key.len);
				appendStringInfoChar(json, ':');
			}
			if (!write_value(json, scan, schema->children[0]))
				return false;
		}
	appendStringInfoChar(json, is_map ? '}' : ']');
	return scan->fault == AVRO_OK;
}

static bool
write_value(StringInfo json, AvroScan *scan, const AvroSchema *schema)
{
	AvroToken token = {0};

	schema = avro_read_branch(scan, schema);
	if (schema == NULL)
		return false;
	if (schema->type == AVRO_RECORD)
		return write_record(json, scan, schema);
	if (schema->type == AVRO_ARRAY || schema->type == AVRO_MAP)
		return write_items(json, scan, schema);
	return avro_read_scalar(scan, schema, &token) && write_scalar(json, &token);
}

bool
avro_json_write(StringInfo json, const AvroToken *token)
{
	AvroScan scan = {.p = token->start, .begin = token->start, .end = token->start + token->len};

	return write_value(json, &scan, token->schema);
}
