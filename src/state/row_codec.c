/*
 * row_codec.c: the bytes of keys and of rows that wait in state.
 */
#include "state/row_codec.h"

#include "access/htup_details.h"
#include "util/compat.h"
#include "utils/memutils.h"

RowCodec *
row_codec_create(TupleDesc desc)
{
	RowCodec *codec = palloc0(sizeof(RowCodec));

	codec->desc = CreateTupleDescCopy(desc);
	codec->image = true;
	codec->columns = palloc0(sizeof(DatumCodec) * Max(desc->natts, 1));
	codec->values = palloc0(sizeof(Datum) * Max(desc->natts, 1));
	codec->nulls = palloc0(sizeof(bool) * Max(desc->natts, 1));
	codec->scratch = AllocSetContextCreate(CurrentMemoryContext, "stream state row codec", ALLOCSET_SMALL_SIZES);
	for (int i = 0; i < desc->natts; i++)
	{
		codec_init(&codec->columns[i], TupleDescAttr(desc, i)->atttypid, TupleDescAttr(desc, i)->atttypmod);
		codec->image &= codec->columns[i].image;
	}
	return codec;
}

void
row_codec_deform(RowCodec *codec, MinimalTuple row, Datum *values, bool *nulls)
{
	HeapTupleData tuple;

	tuple.t_len = row->t_len + MINIMAL_TUPLE_OFFSET;
	tuple.t_data = (HeapTupleHeader) ((char *) row - MINIMAL_TUPLE_OFFSET);
	heap_deform_tuple(&tuple, codec->desc, values, nulls);
}

void
row_codec_write(RowCodec *codec, MinimalTuple row, StringInfo out)
{
	MemoryContext caller;

	if (codec->image)
	{
		appendBinaryStringInfo(out, (char *) row + MINIMAL_TUPLE_DATA_OFFSET, row->t_len - MINIMAL_TUPLE_DATA_OFFSET);
		return;
	}
	MemoryContextReset(codec->scratch);
	caller = MemoryContextSwitchTo(codec->scratch);
	row_codec_deform(codec, row, codec->values, codec->nulls);
	for (int i = 0; i < codec->desc->natts; i++)
	{
		appendStringInfoChar(out, codec->nulls[i] ? 0 : 1);
		if (!codec->nulls[i])
			codec_write(&codec->columns[i], codec->values[i], out);
	}
	MemoryContextSwitchTo(caller);
}

static MinimalTuple
read_image(const char *bytes, uint32 length)
{
	MinimalTuple row = palloc0(length + MINIMAL_TUPLE_DATA_OFFSET);

	row->t_len = length + MINIMAL_TUPLE_DATA_OFFSET;
	memcpy((char *) row + MINIMAL_TUPLE_DATA_OFFSET, bytes, length);
	return row;
}

/*
 * Version 0.1.0 kept rows that wait for a join whole, header and all, whatever their types. Such bytes begin with their number and zeros; an image begins with
 * what follows those, where the fifth byte, the length of the header, is none.
 */
static bool
is_whole(const char *bytes, uint32 length)
{
	static const char zeros[MINIMAL_TUPLE_PADDING];
	uint32 own;

	if (length < SizeofMinimalTupleHeader)
		return false;
	memcpy(&own, bytes, sizeof(own));
	return own == length && memcmp(bytes + offsetof(MinimalTupleData, mt_padding), zeros, sizeof(zeros)) == 0;
}

MinimalTuple
row_codec_read(RowCodec *codec, const char *bytes, uint32 length)
{
	ByteReader reader = {bytes, bytes + length};
	MemoryContext caller;

	if (unlikely(is_whole(bytes, length)))
		return memcpy(palloc(length), bytes, length);
	if (codec->image)
		return read_image(bytes, length);
	MemoryContextReset(codec->scratch);
	caller = MemoryContextSwitchTo(codec->scratch);
	for (int i = 0; i < codec->desc->natts; i++)
	{
		codec->nulls[i] = *bytes_get(&reader, 1) == 0;
		if (!codec->nulls[i])
			codec->values[i] = codec_read(&codec->columns[i], &reader);
	}
	MemoryContextSwitchTo(caller);
	return heap_form_minimal_tuple(codec->desc, codec->values, codec->nulls);
}
