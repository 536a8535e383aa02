/*
 * csv.c: one CSV record → columns: RFC 4180 with COPY's reading of NULL (an empty field without quotes, or what option null says).
 * Columns are filled in their order, or by the names of a header record. A wrong number of fields makes the row bad, never a shift.
 */
#include "format/csv.h"

#include "format/column.h"
#include "format/utf8.h"
#include "utils/memutils.h"

typedef struct CsvDecoder
{
	Decoder base;
	char delimiter;
	bool null_on_error;
	bool message;
	const char *null_text;
	size_t null_length;
	int ncolumns;
	Column *columns;
	const char *header_fault; /* NULL: none */
	int nfields; /* of a record */
	int *column_of_field; /* index into columns, -1: nobody wants the field */
	bool *in_header;	  /* per column */
	const char *fault;	  /* what is wrong with the field at hand */
	char *text;			  /* the field at hand, without quotes */
	size_t text_size;
} CsvDecoder;

void
csv_by_position(Decoder *decoder)
{
	CsvDecoder *self = (CsvDecoder *) decoder;

	if (self->column_of_field)
		pfree(self->column_of_field);
	self->header_fault = NULL;
	memset(self->in_header, true, sizeof(bool) * self->ncolumns);
	self->nfields = self->ncolumns;
	self->column_of_field = MemoryContextAlloc(GetMemoryChunkContext(self), sizeof(int) * Max(self->ncolumns, 1));
	for (int i = 0; i < self->ncolumns; i++)
		self->column_of_field[i] = i;
}

static Decoder *
csv_open(const DecoderConfig *config)
{
	CsvDecoder *self = palloc0(sizeof(CsvDecoder));

	self->base.ops = &csv_decoder;
	self->delimiter = config->delimiter ? config->delimiter : ',';
	self->null_on_error = config->null_on_error;
	self->message = config->message;
	self->null_text = config->null_text ? pstrdup(config->null_text) : "";
	self->null_length = strlen(self->null_text);
	self->columns = palloc0(sizeof(Column) * Max(config->desc->natts, 1));
	for (int i = 0; i < config->desc->natts; i++)
		if (config->paths[i] != NULL && !TupleDescAttr(config->desc, i)->attisdropped)
			column_init(&self->columns[self->ncolumns++], config, i);
	if (self->ncolumns == 0)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("format \"csv\" needs a column to fill"),
						errhint("Declare the columns of the records, besides the source's metadata columns.")));
	self->in_header = palloc0(sizeof(bool) * Max(self->ncolumns, 1));
	self->text_size = 256;
	self->text = palloc(self->text_size);
	csv_by_position(&self->base);
	return &self->base;
}

/* ---- records and fields ---- */

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
csv_record_length(Decoder *decoder, const char *buf, size_t len, bool at_end, size_t *resume, CsvState *state)
{
	char delimiter = ((CsvDecoder *) decoder)->delimiter;
	const char *end = *resume == 0 ? memchr(buf, '\n', len) : NULL;

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

typedef struct Field
{
	const char *at; /* text without quotes */
	size_t length;
	bool quoted;
} Field;

/* The field that begins at *p; moves *p behind its delimiter. False: malformed. *last: it was the last one of the record. */
static bool
next_field(CsvDecoder *self, const char **p, const char *end, Field *field, bool *last)
{
	const char *at = *p;
	bool closed = false;

	field->quoted = at < end && *at == '"';
	if (!field->quoted)
	{
		const char *stop = memchr(at, self->delimiter, end - at);

		field->at = at;
		*last = stop == NULL;
		field->length = (stop ? stop : end) - at;
		*p = stop ? stop + 1 : end;
		self->fault = memchr(field->at, '"', field->length) ? "is quoted wrongly"
					  : memchr(field->at, '\n', field->length) ? "holds a line end without quotes: a record is one line"
																: NULL;
		return self->fault == NULL;
	}
	if (self->text_size < (size_t) (end - at))
	{
		self->text_size = Max(self->text_size * 2, (size_t) (end - at));
		self->text = repalloc(self->text, self->text_size);
	}
	field->at = self->text;
	field->length = 0;
	for (at++; at < end && !closed; at++)
	{
		if (*at == '"' && (at + 1 == end || at[1] != '"'))
			closed = true;
		else
		{
			at += *at == '"' ? 1 : 0; /* of two, one */
			self->text[field->length++] = *at;
		}
	}
	*last = at >= end;
	self->fault = "is quoted wrongly";
	if (!closed || (!*last && *at != self->delimiter))
		return false;
	*p = *last ? end : at + 1;
	return true;
}

static const char *
record_end(const char *buf, size_t len)
{
	if (len > 0 && buf[len - 1] == '\n')
		len--;
	if (len > 0 && buf[len - 1] == '\r')
		len--;
	return buf + len;
}

/* Index of the column with the field's name, -1: nobody wants it. */
static int
column_named(CsvDecoder *self, const Field *field)
{
	for (int i = 0; i < self->ncolumns; i++)
		if (strlen(self->columns[i].name) == field->length && memcmp(self->columns[i].name, field->at, field->length) == 0)
			return i;
	return -1;
}

void
csv_by_header(Decoder *decoder, const char *buf, size_t len)
{
	CsvDecoder *self = (CsvDecoder *) decoder;
	const char *p = buf, *end = record_end(buf, len);
	int allocated = 16;
	bool last = false, any = false;

	if (self->column_of_field)
		pfree(self->column_of_field);
	self->column_of_field = MemoryContextAlloc(GetMemoryChunkContext(self), sizeof(int) * allocated);
	self->nfields = 0;
	self->header_fault = NULL;
	memset(self->in_header, false, sizeof(bool) * self->ncolumns);
	while (!last)
	{
		Field field;

		if (!next_field(self, &p, end, &field, &last))
		{
			self->header_fault = "the file's header is quoted wrongly";
			return;
		}
		if (self->nfields == allocated)
			self->column_of_field = repalloc(self->column_of_field, sizeof(int) * (allocated *= 2));
		self->column_of_field[self->nfields] = column_named(self, &field);
		if (self->column_of_field[self->nfields] >= 0)
			any = self->in_header[self->column_of_field[self->nfields]] = true;
		self->nfields++;
	}
	if (!any)
		self->header_fault = "the file's header names none of the source's columns";
}

/* ---- decode ---- */

static bool
take_field(CsvDecoder *self, Column *column, const Field *field, Datum *values, bool *isnull, DecodeError *error)
{
	int i = column->index;

	isnull[i] = false;
	if (!field->quoted && field->length == self->null_length && memcmp(field->at, self->null_text, field->length) == 0)
	{
		values[i] = (Datum) 0;
		isnull[i] = true;
		return column_take_null(column, error);
	}
	values[i] = (Datum) 0;
	if (column_from_string(column, field->at, field->length, &values[i], error))
	{
		isnull[i] = !column->needed;
		return true;
	}
	isnull[i] = true;
	return self->null_on_error && column_take_null(column, error);
}

static bool
csv_decode(Decoder *decoder, const char *buf, size_t len, Datum *values, bool *isnull, DecodeError *error)
{
	CsvDecoder *self = (CsvDecoder *) decoder;
	const char *p = buf, *end = record_end(buf, len), *bad = utf8_invalid(buf, len);
	bool last = false;
	int n = 0;

	if (self->message && end - p >= 3 && memcmp(p, "\xEF\xBB\xBF", 3) == 0)
		p += 3;
	if (bad != NULL)
		return decode_fail(error, NULL, ERRCODE_CHARACTER_NOT_IN_REPERTOIRE,
						   "invalid byte sequence for encoding \"UTF8\": 0x%02x at byte %zu", (unsigned char) *bad, (size_t) (bad - buf));
	if (self->header_fault)
		return decode_fail(error, NULL, ERRCODE_BAD_COPY_FILE_FORMAT, "%s", self->header_fault);
	for (int i = 0; i < self->ncolumns; i++)
	{
		values[self->columns[i].index] = (Datum) 0;
		isnull[self->columns[i].index] = true;
		if (!self->in_header[i] && !column_take_null(&self->columns[i], error))
			return false;
	}
	while (!last)
	{
		Field field;

		if (!next_field(self, &p, end, &field, &last))
			return decode_fail(error, NULL, ERRCODE_BAD_COPY_FILE_FORMAT, "field %d %s", n + 1, self->fault);
		if (n >= self->nfields)
			return decode_fail(error, NULL, ERRCODE_BAD_COPY_FILE_FORMAT, "expected %d fields, found more", self->nfields);
		if (self->column_of_field[n] >= 0 &&
			!take_field(self, &self->columns[self->column_of_field[n]], &field, values, isnull, error))
			return false;
		n++;
	}
	if (n < self->nfields)
		return decode_fail(error, NULL, ERRCODE_BAD_COPY_FILE_FORMAT, "expected %d fields, found %d", self->nfields, n);
	return true;
}

const DecoderOps csv_decoder = {
	.name = "csv",
	.open = csv_open,
	.decode = csv_decode,
};
