/*
 * codec.c: datums to bytes and back.
 * Operator values and keys pass here on their way to and from the changelog.
 * The layout is part of what is stored: a change to it needs a new STATE_FORMAT (changelog.h).
 */
#include "state/codec.h"

#include "access/transam.h"
#include "access/tupmacs.h"
#include "catalog/pg_type.h"
#include "state/changelog.h"
#include "utils/builtins.h"
#include "utils/expandeddatum.h"
#include "utils/lsyscache.h"

static void
bytes_damaged(void)
{
	ereport(ERROR, (errcode(ERRCODE_DATA_CORRUPTED), errmsg("saved state of a streaming query is damaged"),
					errdetail("An entry ends before its last field."),
					errhint("Restore it from a backup, or forget it with stream.reset_query().")));
}

void
codec_check_version(int format, int major)
{
	int ours = PG_VERSION_NUM / 10000;

	if (format >= STATE_FORMAT_OLDEST && format <= STATE_FORMAT && major == ours)
		return;
	ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE), errmsg("saved state of the streaming query cannot be read by this version"),
					errdetail("It was written by PostgreSQL %d in state format %d; this is PostgreSQL %d with state format %d.", major, format, ours, STATE_FORMAT),
					errhint("Forget the state with stream.reset_query() and process the source again.")));
}

void
bytes_put_varint(StringInfo out, uint64 number)
{
	while (number >= 0x80)
	{
		appendStringInfoCharMacro(out, (char) (number | 0x80));
		number >>= 7;
	}
	appendStringInfoCharMacro(out, (char) number);
}

uint64
bytes_get_varint(ByteReader *reader)
{
	uint64 number = 0;

	for (int shift = 0; shift < 64; shift += 7)
	{
		uint8 byte;

		if (reader->at >= reader->end)
			bytes_damaged();
		byte = (uint8) *reader->at++;
		number |= (uint64) (byte & 0x7f) << shift;
		if (byte < 0x80)
			return number;
	}
	bytes_damaged();
	return 0;
}

const char *
bytes_get(ByteReader *reader, Size length)
{
	const char *bytes = reader->at;

	if (length > (Size) (reader->end - reader->at))
		bytes_damaged();
	reader->at += length;
	return bytes;
}

/* Does the image of this type hold oids that another database would give otherwise? */
static bool
type_image_is_portable(Oid type)
{
	Oid base = getBaseType(type);
	Oid element = get_element_type(base);

	if (base == RECORDOID || base == RECORDARRAYOID)
		return false;
	if (base < FirstNormalObjectId)
		return true;
	return !OidIsValid(element) && get_typtype(base) == TYPTYPE_BASE;
}

void
codec_init(DatumCodec *codec, Oid type, int32 typmod)
{
	codec->type = type;
	codec->typmod = typmod;
	get_typlenbyvalalign(type, &codec->length, &codec->by_value, &codec->align);
	codec->image = type_image_is_portable(type);
	if (!codec->image)
	{
		Oid function;
		bool is_varlena;

		if (getBaseType(type) == RECORDOID || getBaseType(type) == RECORDARRAYOID)
			ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
							errmsg("a streaming query cannot keep values of type %s as state", format_type_be(type)),
							errhint("Cast the value to a named composite type, or use its fields.")));
		getTypeBinaryOutputInfo(type, &function, &is_varlena);
		fmgr_info(function, &codec->send);
		getTypeBinaryInputInfo(type, &function, &codec->receive_param);
		fmgr_info(function, &codec->receive);
	}
}

static void
write_varlena(struct varlena *bytes, StringInfo out)
{
	bytes_put_varint(out, VARSIZE_ANY_EXHDR(bytes));
	appendBinaryStringInfo(out, VARDATA_ANY(bytes), VARSIZE_ANY_EXHDR(bytes));
}

static void
write_expanded(Datum value, StringInfo out)
{
	ExpandedObjectHeader *object = DatumGetEOHP(value);
	Size size = EOH_get_flat_size(object);
	char *flat = palloc(size);

	EOH_flatten_into(object, flat, size);
	write_varlena((struct varlena *) flat, out);
	pfree(flat);
}

void
codec_write(DatumCodec *codec, Datum value, StringInfo out)
{
	if (!codec->image)
		write_varlena((struct varlena *) SendFunctionCall(&codec->send, value), out);
	else if (codec->by_value)
	{
		char fixed[sizeof(Datum)];

		store_att_byval(fixed, value, codec->length);
		appendBinaryStringInfo(out, fixed, codec->length);
	}
	else if (codec->length > 0)
		appendBinaryStringInfo(out, DatumGetPointer(value), codec->length);
	else if (codec->length == -2)
	{
		Size length = strlen(DatumGetCString(value));

		bytes_put_varint(out, length);
		appendBinaryStringInfo(out, DatumGetCString(value), length);
	}
	else if (VARATT_IS_EXTERNAL_EXPANDED(DatumGetPointer(value)))
		write_expanded(value, out);
	else
		write_varlena(PG_DETOAST_DATUM_PACKED(value), out);
}

static Datum
read_by_value(DatumCodec *codec, const char *bytes)
{
	union
	{
		char bytes[sizeof(Datum)];
		Datum align;
	} fixed;

	memcpy(fixed.bytes, bytes, codec->length);
	return fetch_att(fixed.bytes, true, codec->length);
}

/* A label that was renamed, a column that was added: the type's own message says what, this where. */
static void
read_context(void *arg)
{
	errcontext("reading a value of type %s from the saved state of a streaming query", format_type_be(((DatumCodec *) arg)->type));
}

static Datum
read_received(DatumCodec *codec, const char *bytes, Size length)
{
	ErrorContextCallback context = {.previous = error_context_stack, .callback = read_context, .arg = codec};
	StringInfoData message;
	Datum value;

	error_context_stack = &context;
	initStringInfo(&message);
	appendBinaryStringInfo(&message, bytes, length);
	value = ReceiveFunctionCall(&codec->receive, &message, codec->receive_param, codec->typmod);
	error_context_stack = context.previous;
	pfree(message.data); /* a kilobyte at least, in memory that lives as long as the state */
	return value;
}

Datum
codec_read(DatumCodec *codec, ByteReader *reader)
{
	Size length;
	const char *bytes;
	char *copy;

	if (codec->image && codec->length > 0)
	{
		bytes = bytes_get(reader, codec->length);
		if (codec->by_value)
			return read_by_value(codec, bytes);
		copy = palloc(codec->length);
		memcpy(copy, bytes, codec->length);
		return PointerGetDatum(copy);
	}
	length = bytes_get_varint(reader);
	bytes = bytes_get(reader, length);
	if (!codec->image)
		return read_received(codec, bytes, length);
	if (codec->length == -2)
		return CStringGetDatum(pnstrdup(bytes, length));
	copy = palloc(length + VARHDRSZ);
	SET_VARSIZE(copy, length + VARHDRSZ);
	memcpy(VARDATA(copy), bytes, length);
	return PointerGetDatum(copy);
}
