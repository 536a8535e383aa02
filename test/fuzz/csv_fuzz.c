/*
 * csv_fuzz.c: libFuzzer target for CSV records and fields. The input is cut into records as a file is, at once and in pieces; fields that are read
 * are written again with quotes and must be read as the same.
 */
#include "fuzz.h"

#include "format/csv_scan.h"

#define MAX_FIELDS 4096

/* The record quoted throughout, one after the other: what comes back is what went out. */
static void
check_fields(char delimiter, const char *record, size_t len)
{
	const char *p = record, *end = csv_record_end(record, len);
	size_t room = 4 * len + 16, written = 0, lengths[MAX_FIELDS];
	char *text = malloc(len + 1), *all = malloc(len + 1), *again = malloc(room);
	size_t kept = 0, n = 0;
	CsvField field;
	bool good;

	do
	{
		good = csv_scan_field(delimiter, &p, end, text, &field);
		CHECK(p >= record && p <= end);
		CHECK(good == (field.fault == NULL));
		if (!good || n == MAX_FIELDS)
			break;
		CHECK(field.quoted || (field.at >= record && field.at + field.length <= end));
		lengths[n++] = field.length;
		again[written++] = '"';
		for (size_t i = 0; i < field.length; i++)
		{
			if (field.at[i] == '"')
				again[written++] = '"';
			again[written++] = field.at[i];
			all[kept++] = field.at[i];
		}
		again[written++] = '"';
		if (!field.last)
			again[written++] = delimiter;
	} while (!field.last);
	if (good && n < MAX_FIELDS)
	{
		size_t seen = 0, at = 0;

		CHECK(p == end);
		p = again;
		do
		{
			CHECK(csv_scan_field(delimiter, &p, again + written, text, &field));
			CHECK(seen < n && field.quoted && field.length == lengths[seen]);
			CHECK(memcmp(field.at, all + at, field.length) == 0);
			at += lengths[seen++];
		} while (!field.last);
		CHECK(seen == n);
	}
	free(text);
	free(all);
	free(again);
}

/* Bytes that come one after the other end a record at the same place. */
static void
check_pieces(char delimiter, const char *buf, size_t len, size_t record)
{
	size_t resume = 0, step = 1 + len / 7, found = 0;
	CsvState state = CSV_FIELD_START;

	for (size_t have = 0; found == 0; have = have + step < len ? have + step : len)
	{
		found = csv_scan_record(delimiter, buf, have, have == len, &resume, &state);
		if (have == len)
			break;
	}
	CHECK(found == record);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char delimiters[] = {',', ';', '\t', ' '};
	char delimiter, *buf;
	size_t at = 0, len;

	if (size == 0)
		return 0;
	len = size - 1;
	delimiter = delimiters[data[0] % 4];
	buf = malloc(len + 1); /* of its exact size for the sanitizer */
	memcpy(buf, data + 1, len);
	check_fields(delimiter, buf, len);
	while (at < len)
	{
		size_t resume = 0;
		CsvState state = CSV_FIELD_START;
		size_t record = csv_scan_record(delimiter, buf + at, len - at, true, &resume, &state);

		CHECK(record > 0 && record <= len - at);
		check_pieces(delimiter, buf + at, len - at, record);
		check_fields(delimiter, buf + at, record);
		at += record;
	}
	free(buf);
	return 0;
}
