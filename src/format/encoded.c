/*
 * encoded.c: days, times, instants, decimals and bytes of other systems → columns. Common columns are filled directly, others from ISO text by
 * their input function.
 */
#include "format/encoded.h"

#include "catalog/pg_type.h"
#include "common/int.h"
#include "format/binary.h"
#include "format/number.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/datetime.h"
#include "utils/timestamp.h"

#define EPOCH_DAYS (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE)

Encoding
encoding_of_name(const char *name)
{
	static const struct
	{
		const char *name;
		Encoding encoding;
	} names[] = {
		{"io.debezium.time.Date", ENCODED_DAYS},
		{"io.debezium.time.Time", ENCODED_TIME_MS},
		{"io.debezium.time.MicroTime", ENCODED_TIME_US},
		{"io.debezium.time.NanoTime", ENCODED_TIME_NS},
		{"io.debezium.time.Timestamp", ENCODED_INSTANT_MS},
		{"io.debezium.time.MicroTimestamp", ENCODED_INSTANT_US},
		{"io.debezium.time.NanoTimestamp", ENCODED_INSTANT_NS},
		{"io.debezium.time.MicroDuration", ENCODED_DURATION_US},
		{"io.debezium.data.Json", ENCODED_JSON},
		{"org.apache.kafka.connect.data.Date", ENCODED_DAYS},
		{"org.apache.kafka.connect.data.Time", ENCODED_TIME_MS},
		{"org.apache.kafka.connect.data.Timestamp", ENCODED_INSTANT_MS},
		{"org.apache.kafka.connect.data.Decimal", ENCODED_DECIMAL},
	};

	for (int i = 0; i < lengthof(names); i++)
		if (strcmp(names[i].name, name) == 0)
			return names[i].encoding;
	return ENCODED_PLAIN;
}

/* Does the column want what the form means, and not the number it is written as? */
static bool
column_wants(const Column *column)
{
	switch (column->base_type)
	{
		case INT2OID:
		case INT4OID:
		case INT8OID:
		case FLOAT4OID:
		case FLOAT8OID:
		case NUMERICOID:
			return false;
		default:
			return true;
	}
}

/* Nanoseconds become microseconds, halves to even, as everywhere. */
static int64
round_thousand(int64 number)
{
	int64 whole = number / 1000, rest = number % 1000;

	if (rest > 500 || (rest == 500 && whole % 2 != 0))
		whole++;
	else if (rest < -500 || (rest == -500 && whole % 2 != 0))
		whole--;
	return whole;
}

/* Microseconds of a form; false: beyond any. */
static bool
microseconds(Encoding encoding, int64 number, int64 *us)
{
	switch (encoding)
	{
		case ENCODED_DAYS:
			return !pg_mul_s64_overflow(number, USECS_PER_DAY, us);
		case ENCODED_TIME_MS:
		case ENCODED_INSTANT_MS:
			return !pg_mul_s64_overflow(number, 1000, us);
		case ENCODED_TIME_NS:
		case ENCODED_INSTANT_NS:
			*us = round_thousand(number);
			return true;
		default:
			*us = number;
			return true;
	}
}

static bool
is_time(Encoding encoding)
{
	return encoding == ENCODED_TIME_MS || encoding == ENCODED_TIME_US || encoding == ENCODED_TIME_NS;
}

/* Timestamp since 2000-01-01; false: out of range. */
static bool
instant_of(int64 us, Timestamp *instant)
{
	return !pg_sub_s64_overflow(us, EPOCH_DAYS * USECS_PER_DAY, instant) && IS_VALID_TIMESTAMP(*instant);
}

static char *
time_text(int64 us)
{
	if (us < 0 || us > USECS_PER_DAY)
		return NULL;
	return psprintf("%02d:%02d:%02d.%06d", (int) (us / USECS_PER_HOUR), (int) (us / USECS_PER_MINUTE % 60), (int) (us / USECS_PER_SEC % 60),
					(int) (us % USECS_PER_SEC));
}

static char *
instant_text(Encoding encoding, int64 us)
{
	char *text = palloc(MAXDATELEN + 1);
	struct pg_tm tm;
	fsec_t fraction;
	Timestamp instant;

	if (!instant_of(us, &instant) || timestamp2tm(instant, NULL, &tm, &fraction, NULL, NULL) != 0)
		return NULL;
	tm.tm_isdst = 0; /* in UTC, and says so */
	if (encoding == ENCODED_DAYS)
		EncodeDateOnly(&tm, USE_ISO_DATES, text);
	else
		EncodeDateTime(&tm, fraction, true, 0, NULL, USE_ISO_DATES, text);
	return text;
}

char *
encoded_text(Encoding encoding, int64 number)
{
	int64 us;

	if (encoding == ENCODED_PLAIN)
		return psprintf(INT64_FORMAT, number);
	if (!microseconds(encoding, number, &us))
		return NULL;
	if (is_time(encoding))
		return time_text(us);
	if (encoding == ENCODED_DURATION_US)
		return psprintf(INT64_FORMAT " microseconds", us);
	return instant_text(encoding, us);
}

bool
encoded_int(Column *column, Encoding encoding, int64 number, Datum *value, DecodeError *error)
{
	char *text;
	int64 us;
	Timestamp instant;

	if (encoding == ENCODED_PLAIN && column->kind == COLUMN_INT8)
	{
		*value = Int64GetDatum(number);
		return true;
	}
	if (encoding == ENCODED_PLAIN || !column_wants(column))
	{
		text = psprintf(INT64_FORMAT, number);
		return column_from_number(column, text, strlen(text), value, error);
	}
	if ((column->kind == COLUMN_TIMESTAMP || column->kind == COLUMN_TIMESTAMPTZ) && encoding != ENCODED_DAYS && !is_time(encoding) &&
		microseconds(encoding, number, &us) && instant_of(us, &instant))
	{
		*value = TimestampGetDatum(instant);
		return true;
	}
	text = encoded_text(encoding, number);
	if (text == NULL)
		return decode_fail(error, column, ERRCODE_DATETIME_VALUE_OUT_OF_RANGE, "date or time out of range: " INT64_FORMAT, number);
	if (column->is_json)
		text = psprintf("\"%s\"", text);
	return column->is_json ? column_from_json(column, text, strlen(text), value, error) : column_from_string(column, text, strlen(text), value, error);
}

/* Nanoseconds have more digits than the quick reader takes. */
static bool
read_long_integer(const char *p, size_t len, int64 *number)
{
	char copy[24], *end;

	if (len >= sizeof(copy))
		return false;
	memcpy(copy, p, len);
	copy[len] = '\0';
	errno = 0;
	*number = strtoi64(copy, &end, 10);
	return errno == 0 && *end == '\0';
}

bool
encoded_number(Column *column, Encoding encoding, const char *p, size_t len, Datum *value, DecodeError *error)
{
	int64 number;

	if (encoding == ENCODED_PLAIN || !column_wants(column))
		return column_from_number(column, p, len, value, error);
	if (!number_read_int64(p, len, &number) && !read_long_integer(p, len, &number))
		return decode_fail(error, column, ERRCODE_DATETIME_VALUE_OUT_OF_RANGE, "date or time out of range: \"%.*s\"", (int) Min(len, 40), p);
	return encoded_int(column, encoding, number, value, error);
}

bool
encoded_decimal(Column *column, const uint8 *bytes, size_t len, int scale, Datum *value, DecodeError *error)
{
	char *text;
	size_t n;

	if (len > BINARY_DECIMAL_MAX_BYTES || scale < 0 || scale > BINARY_DECIMAL_MAX_SCALE)
		return decode_fail(error, column, ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE, "decimal of %zu bytes and scale %d is out of range", len, scale);
	text = palloc(decimal_text_room(len, scale));
	n = decimal_text(bytes, len, scale, text);
	return column_from_number(column, text, n, value, error);
}

bool
encoded_bytes(Column *column, const uint8 *bytes, size_t len, Datum *value, DecodeError *error)
{
	char *text;

	if (column->type == BYTEAOID)
	{
		*value = PointerGetDatum(cstring_to_text_with_len((const char *) bytes, len)); /* bytea is laid out alike */
		return true;
	}
	text = palloc(len * 2 + 5);
	memcpy(text, "\"\\\\x", 4); /* in a document the backslash is escaped */
	hex_encode((const char *) bytes, len, text + 4);
	text[4 + len * 2] = '"';
	if (column->is_json)
		return column_from_json(column, text, len * 2 + 5, value, error);
	return column_from_string(column, text + 2, len * 2 + 2, value, error);
}

bool
encoded_json(Column *column, const char *p, size_t len, Datum *value, DecodeError *error)
{
	return column->is_json ? column_input(column, p, len, value, error) : column_from_string(column, p, len, value, error);
}
