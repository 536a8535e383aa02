/*
 * text.c: the whole message is the value: 'text' into one text column, 'raw' into one bytea column.
 * Text is UTF-8 and is checked; bytes are taken as they are.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

#include "format/column.h"
#include "format/format.h"
#include "format/utf8.h"

typedef struct WholeDecoder
{
	Decoder base;
	Column column;
	bool null_on_error;
} WholeDecoder;

/* The one column the message goes into. */
static int
only_column(const DecoderConfig *config, const char *format, const char *type)
{
	int found = -1;

	for (int i = 0; i < config->desc->natts; i++)
	{
		if (config->paths[i] == NULL || TupleDescAttr(config->desc, i)->attisdropped)
			continue;
		if (found >= 0)
			ereport(ERROR, errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					errmsg("format \"%s\" fills one column, but there are several", format),
					errdetail("Both \"%s\" and \"%s\" would be filled from the message.",
							  NameStr(TupleDescAttr(config->desc, found)->attname),
							  NameStr(TupleDescAttr(config->desc, i)->attname)),
					errhint("Declare one column of type %s, besides the source's metadata columns.", type));
		found = i;
	}
	if (found < 0)
		ereport(ERROR, errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("format \"%s\" needs a column to fill", format),
				errhint("Declare one column of type %s, besides the source's metadata columns.", type));
	return found;
}

static Decoder *
open_whole(const DecoderConfig *config, const DecoderOps *ops, const char *type_name)
{
	WholeDecoder *self = palloc0(sizeof(WholeDecoder));
	Oid type;

	self->base.ops = ops;
	self->null_on_error = config->null_on_error;
	column_init(&self->column, config, only_column(config, ops->name, type_name));
	type = self->column.base_type;
	if (ops == &raw_decoder ? self->column.type != BYTEAOID
							: type != TEXTOID && type != VARCHAROID && type != BPCHAROID)
		ereport(ERROR, errcode(ERRCODE_DATATYPE_MISMATCH),
				errmsg("format \"%s\" cannot fill column \"%s\" of type %s", ops->name, self->column.name,
					   format_type_be(self->column.type)),
				errhint("Declare the column as %s.", type_name));
	return &self->base;
}

static Decoder *
text_open(const DecoderConfig *config)
{
	return open_whole(config, &text_decoder, "text");
}

static Decoder *
raw_open(const DecoderConfig *config)
{
	return open_whole(config, &raw_decoder, "bytea");
}

static bool
text_decode(Decoder *decoder, const char *buf, size_t len, Datum *values, bool *isnull, DecodeError *error)
{
	WholeDecoder *self = (WholeDecoder *) decoder;
	Column *column = &self->column;
	const char *bad = utf8_invalid(buf, len);

	if (bad != NULL)
		return decode_fail(error, NULL, ERRCODE_CHARACTER_NOT_IN_REPERTOIRE,
						   "invalid byte sequence for encoding \"UTF8\": 0x%02x at byte %zu", (unsigned char) *bad,
						   (size_t) (bad - buf));
	/* A byte order mark says "UTF-8" and is no part of the text. */
	if (len >= 3 && memcmp(buf, "\xEF\xBB\xBF", 3) == 0)
	{
		buf += 3;
		len -= 3;
	}
	isnull[column->index] = !column->needed;
	if (!column_from_string(column, buf, len, &values[column->index], error))
	{
		if (!self->null_on_error || !column_take_null(column, error))
			return false;
		isnull[column->index] = true;
	}
	if (isnull[column->index])
		values[column->index] = (Datum) 0;
	return true;
}

static bool
raw_decode(Decoder *decoder, const char *buf, size_t len, Datum *values, bool *isnull, DecodeError *error)
{
	WholeDecoder *self = (WholeDecoder *) decoder;

	isnull[self->column.index] = !self->column.needed;
	values[self->column.index] = self->column.needed ? PointerGetDatum(cstring_to_text_with_len(buf, len))
													 : (Datum) 0; /* bytea is laid out alike */
	return true;
}

const DecoderOps text_decoder = {
	.name = "text",
	.open = text_open,
	.decode = text_decode,
};

const DecoderOps raw_decoder = {
	.name = "raw",
	.open = raw_open,
	.decode = raw_decode,
};
