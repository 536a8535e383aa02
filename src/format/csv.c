/*
 * csv.c: one CSV record → columns: RFC 4180 with COPY's reading of NULL (an empty field without quotes).
 * Columns are filled in their order, or by the names of a header record. A wrong number of fields makes the row bad, never a shift.
 */
#include "format/csv.h"

#include "format/column.h"
#include "format/utf8.h"

typedef struct CsvDecoder
{
	Decoder base;
	char delimiter;
	bool null_on_error;
	int ncolumns;
	Column *columns;
	int nfields; /* of a record */
	int *column_of_field; /* index into columns, -1: nobody wants the field */
	char *text;			  /* the field at hand, without quotes */
	size_t text_size;
} CsvDecoder;

void
csv_by_position(Decoder *decoder)
{
	CsvDecoder *self = (CsvDecoder *) decoder;

	if (self->column_of_field)
		pfree(self->column_of_field);
	self->nfields = self->ncolumns;
	self->column_of_field = palloc(sizeof(int) * Max(self->ncolumns, 1));
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
	self->columns = palloc0(sizeof(Column) * Max(config->desc->natts, 1));
	for (int i = 0; i < config->desc->natts; i++)
		if (config->paths[i] != NULL && !TupleDescAttr(config->desc, i)->attisdropped)
			column_init(&self->columns[self->ncolumns++], config, i);
	if (self->ncolumns == 0)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("format \"csv\" needs a column to fill"),
						errhint("Declare the columns of the records, besides the source's metadata columns.")));
	self->text_size = 256;
	self->text = palloc(self->text_size);
	csv_by_position(&self->base);
	return &self->base;
}

/* ---- records and fields ---- */

size_t
csv_record_length(const char *buf, size_t len, bool at_end, size_t *resume, bool *quoted)
{
	for (size_t i = *resume; i < len; i++)
	{
		if (buf[i] == '"')
			*quoted = !*quoted;
		else if (buf[i] == '\n' && !*quoted)
			return i + 1;
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

	field->quoted = at < end && *at == '"';
	if (!field->quoted)
	{
		const char *stop = memchr(at, self->delimiter, end - at);

		field->at = at;
		*last = stop == NULL;
		field->length = (stop ? stop : end) - at;
		*p = stop ? stop + 1 : end;
		return memchr(field->at, '"', field->length) == NULL;
	}
	if (self->text_size < (size_t) (end - at))
	{
		self->text_size = Max(self->text_size * 2, (size_t) (end - at));
		self->text = repalloc(self->text, self->text_size);
	}
	field->at = self->text;
	field->length = 0;
	for (at++; at < end; at++)
	{
		if (*at == '"')
		{
			at++;
			if (at == end || *at != '"')
				break;
		}
		self->text[field->length++] = *at;
		if (at + 1 == end)
			return false; /* no closing quote */
	}
	*last = at >= end;
	if (!*last && *at != self->delimiter)
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

void
csv_by_header(Decoder *decoder, const char *buf, size_t len)
{
	CsvDecoder *self = (CsvDecoder *) decoder;
	const char *p = buf, *end = record_end(buf, len);
	int allocated = 16;
	bool last = false;

	if (self->column_of_field)
		pfree(self->column_of_field);
	self->column_of_field = palloc(sizeof(int) * allocated);
	self->nfields = 0;
	while (!last)
	{
		Field field;

		if (!next_field(self, &p, end, &field, &last))
		{
			csv_by_position(decoder);
			return;
		}
		if (self->nfields == allocated)
			self->column_of_field = repalloc(self->column_of_field, sizeof(int) * (allocated *= 2));
		self->column_of_field[self->nfields] = -1;
		for (int i = 0; i < self->ncolumns; i++)
			if (strlen(self->columns[i].name) == field.length && memcmp(self->columns[i].name, field.at, field.length) == 0)
				self->column_of_field[self->nfields] = i;
		self->nfields++;
	}
}

/* ---- decode ---- */

static bool
take_field(CsvDecoder *self, Column *column, const Field *field, Datum *values, bool *isnull, DecodeError *error)
{
	int i = column->index;

	isnull[i] = false;
	if (!field->quoted && field->length == 0)
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

	if (bad != NULL)
		return decode_fail(error, NULL, ERRCODE_CHARACTER_NOT_IN_REPERTOIRE,
						   "invalid byte sequence for encoding \"UTF8\": 0x%02x at byte %zu", (unsigned char) *bad, (size_t) (bad - buf));
	for (int i = 0; i < self->ncolumns; i++)
	{
		values[self->columns[i].index] = (Datum) 0;
		isnull[self->columns[i].index] = true;
	}
	while (!last)
	{
		Field field;

		if (!next_field(self, &p, end, &field, &last))
			return decode_fail(error, NULL, ERRCODE_BAD_COPY_FILE_FORMAT, "field %d is quoted wrongly", n + 1);
		if (n >= self->nfields)
			return decode_fail(error, NULL, ERRCODE_BAD_COPY_FILE_FORMAT, "extra data after the last of %d fields", self->nfields);
		if (self->column_of_field[n] >= 0 &&
			!take_field(self, &self->columns[self->column_of_field[n]], &field, values, isnull, error))
			return false;
		n++;
	}
	if (n < self->nfields)
		return decode_fail(error, NULL, ERRCODE_BAD_COPY_FILE_FORMAT, "%d fields instead of %d", n, self->nfields);
	return true;
}

const DecoderOps csv_decoder = {
	.name = "csv",
	.open = csv_open,
	.decode = csv_decode,
};
