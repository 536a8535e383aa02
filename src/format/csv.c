/*
 * csv.c: one CSV record → columns: RFC 4180 with COPY's reading of NULL (an empty field without quotes, or what option null says).
 * Columns are filled in their order, or by the names of a header record. A wrong number of fields makes the row bad, never a shift.
 */
#include "format/csv.h"

#include "format/column.h"
#include "format/utf8.h"
#include "mb/pg_wchar.h"
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
	const char **names; /* of the columns, in UTF-8 as a header has them */
	const char *header_fault; /* NULL: none */
	int nfields; /* of a record */
	int *column_of_field; /* index into columns, -1: nobody wants the field */
	bool *in_header;	  /* per column */
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
	self->null_text = config->null_text ? pg_server_to_any(config->null_text, strlen(config->null_text), PG_UTF8) : "";
	self->null_length = strlen(self->null_text);
	self->columns = palloc0(sizeof(Column) * Max(config->desc->natts, 1));
	self->names = palloc0(sizeof(char *) * Max(config->desc->natts, 1));
	for (int i = 0; i < config->desc->natts; i++)
		if (config->paths[i] != NULL && !TupleDescAttr(config->desc, i)->attisdropped)
		{
			Column *column = &self->columns[self->ncolumns];

			column_init(column, config, i);
			self->names[self->ncolumns++] = pg_server_to_any(column->name, strlen(column->name), PG_UTF8);
		}
	if (self->ncolumns == 0)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("format \"csv\" needs a column to fill"),
						errhint("Declare the columns of the records, besides the source's metadata columns.")));
	self->in_header = palloc0(sizeof(bool) * Max(self->ncolumns, 1));
	self->text_size = 256;
	self->text = palloc(self->text_size);
	csv_by_position(&self->base);
	return &self->base;
}

/* ---- records and headers ---- */

size_t
csv_record_length(Decoder *decoder, const char *buf, size_t len, bool at_end, size_t *resume, CsvState *state)
{
	return csv_scan_record(((CsvDecoder *) decoder)->delimiter, buf, len, at_end, resume, state);
}

/* The next field of a record that ends at end. */
static bool
next_field(CsvDecoder *self, const char **p, const char *end, CsvField *field)
{
	if (self->text_size < (size_t) (end - *p))
	{
		self->text_size = Max(self->text_size * 2, (size_t) (end - *p));
		self->text = repalloc(self->text, self->text_size);
	}
	return csv_scan_field(self->delimiter, p, end, self->text, field);
}

/* Index of the column with the field's name, -1: nobody wants it. */
static int
column_named(CsvDecoder *self, const CsvField *field)
{
	for (int i = 0; i < self->ncolumns; i++)
		if (strlen(self->names[i]) == field->length && memcmp(self->names[i], field->at, field->length) == 0)
			return i;
	return -1;
}

void
csv_by_header(Decoder *decoder, const char *buf, size_t len)
{
	CsvDecoder *self = (CsvDecoder *) decoder;
	const char *p = buf, *end = csv_record_end(buf, len);
	int allocated = 16;
	bool any = false;
	CsvField field;

	if (self->column_of_field)
		pfree(self->column_of_field);
	self->column_of_field = MemoryContextAlloc(GetMemoryChunkContext(self), sizeof(int) * allocated);
	self->nfields = 0;
	self->header_fault = NULL;
	memset(self->in_header, false, sizeof(bool) * self->ncolumns);
	do
	{
		if (!next_field(self, &p, end, &field))
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
	} while (!field.last);
	if (!any)
		self->header_fault = "the file's header names none of the source's columns";
}

/* ---- decode ---- */

static bool
take_field(CsvDecoder *self, Column *column, const CsvField *field, Datum *values, bool *isnull, DecodeError *error)
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
	const char *p = buf, *end = csv_record_end(buf, len), *bad = utf8_invalid(buf, len);
	CsvField field;
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
	do
	{
		if (!next_field(self, &p, end, &field))
			return decode_fail(error, NULL, ERRCODE_BAD_COPY_FILE_FORMAT, "field %d %s", n + 1, field.fault);
		if (n >= self->nfields)
			return decode_fail(error, NULL, ERRCODE_BAD_COPY_FILE_FORMAT, "expected %d fields, found more", self->nfields);
		if (self->column_of_field[n] >= 0 &&
			!take_field(self, &self->columns[self->column_of_field[n]], &field, values, isnull, error))
			return false;
		n++;
	} while (!field.last);
	if (n < self->nfields)
		return decode_fail(error, NULL, ERRCODE_BAD_COPY_FILE_FORMAT, "expected %d fields, found %d", self->nfields, n);
	return true;
}

const DecoderOps csv_decoder = {
	.name = "csv",
	.open = csv_open,
	.decode = csv_decode,
};
