/*
 * row_codec.h: rows of values to bytes and back, for state that outlives the process.
 * Bytes are the tuple's own where every column's image is portable (codec.h); else column by column.
 */
#ifndef STREAM_STATE_ROW_CODEC_H
#define STREAM_STATE_ROW_CODEC_H

#include "postgres.h"
#include "executor/tuptable.h"
#include "lib/stringinfo.h"
#include "state/codec.h"

typedef struct RowCodec
{
	TupleDesc desc;
	bool image;
	DatumCodec *columns;
	Datum *values; /* scratch: a deformed row */
	bool *nulls;
	MemoryContext scratch; /* for what the types' functions allocate */
} RowCodec;

/* In CurrentMemoryContext. Refuses (0A000) types that cannot be put into bytes. */
extern RowCodec *row_codec_create(TupleDesc desc);
/* By-reference values point into the row. */
extern void row_codec_deform(RowCodec *codec, MinimalTuple row, Datum *values, bool *nulls);
/* Rows without toasted parts. */
extern void row_codec_write(RowCodec *codec, MinimalTuple row, StringInfo out);
/* In CurrentMemoryContext. */
extern MinimalTuple row_codec_read(RowCodec *codec, const char *bytes, uint32 length);

#endif
