/* csv_scan.c: records and fields of CSV: RFC 4180, where a quote counts at the beginning of a field only. */
#include "format/csv_scan.h"

#include <string.h>

static CsvState
state_after(CsvState state, char c, char delimiter)
{
	switch (state)
	{
		case CSV_QUOTED:
			return c == '"' ? CSV_QUOTE : CSV_QUOTED;
		case CSV_QUOTE:
			if (c == '"')
				return CSV_QUOTED;
			break;
		case CSV_FIELD_START:
			if (c == '"')
				return CSV_QUOTED;
			break;
		case CSV_PLAIN:
			break;
	}
	return c == delimiter ? CSV_FIELD_START : CSV_PLAIN;
}

size_t
csv_scan_record(char delimiter, const char *buf, size_t len, bool at_end, size_t *resume, CsvState *state)
{
	const char *end = *resume == 0 && len > 0 ? memchr(buf, '\n', len) : NULL;

	/* Nearly always: no quote before the line ends. */
	if (end && memchr(buf, '"', end - buf) == NULL)
		return end - buf + 1;
	for (size_t i = *resume; i < len; i++)
	{
		if (buf[i] == '\n' && *state != CSV_QUOTED)
			return i + 1;
		*state = state_after(*state, buf[i], delimiter);
	}
	*resume = len;
	return at_end ? len : 0;
}

const char *
csv_record_end(const char *buf, size_t len)
{
	if (len > 0 && buf[len - 1] == '\n')
		len--;
	if (len > 0 && buf[len - 1] == '\r')
		len--;
	return buf + len;
}

static bool
plain_field(char delimiter, const char **p, const char *end, CsvField *field)
{
	const char *stop = end > *p ? memchr(*p, delimiter, end - *p) : NULL;

	field->at = *p;
	field->last = stop == NULL;
	field->length = (stop ? stop : end) - *p;
	*p = stop ? stop + 1 : end;
	if (field->length == 0)
		return true;
	if (memchr(field->at, '"', field->length))
		field->fault = "is quoted wrongly";
	else if (memchr(field->at, '\n', field->length))
		field->fault = "holds a line end without quotes: a record is one line";
	return field->fault == NULL;
}

bool
csv_scan_field(char delimiter, const char **p, const char *end, char *text, CsvField *field)
{
	const char *at = *p;
	bool closed = false;

	*field = (CsvField){.quoted = at < end && *at == '"'};
	if (!field->quoted)
		return plain_field(delimiter, p, end, field);
	field->at = text;
	for (at++; at < end && !closed; at++)
	{
		if (*at == '"' && (at + 1 == end || at[1] != '"'))
			closed = true;
		else
		{
			at += *at == '"' ? 1 : 0; /* of two, one */
			text[field->length++] = *at;
		}
	}
	field->last = at >= end;
	if (!closed || (!field->last && *at != delimiter))
	{
		field->fault = "is quoted wrongly";
		return false;
	}
	*p = field->last ? end : at + 1;
	return true;
}
