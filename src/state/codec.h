/*
 * codec.h: datums to bytes and back, for state that outlives the process.
 *
 * Bytes are the type's own image wherever that means the same after a restart and a restore; types whose image holds oids of
 * this database (enums, composites, ranges and arrays of the user's own) go through their send and receive functions.
 */
#ifndef STREAM_STATE_CODEC_H
#define STREAM_STATE_CODEC_H

#include "postgres.h"
#include "fmgr.h"
#include "lib/stringinfo.h"

/* A position in bytes being read; never reads past the end: damaged state is an error, not a crash. */
typedef struct ByteReader
{
	const char *at;
	const char *end;
} ByteReader;

extern void bytes_put_varint(StringInfo out, uint64 number); /* 7 bits a byte, lowest first */
extern uint64 bytes_get_varint(ByteReader *reader);
extern const char *bytes_get(ByteReader *reader, Size length);

/* State of another major version is refused: built-in aggregates change what they keep (sum and avg of intervals did in 17). */
extern void codec_check_version(int format, int major);

typedef struct DatumCodec
{
	Oid type;
	int16 length;
	bool by_value;
	char align;
	bool image; /* else send and receive */
	FmgrInfo send;
	FmgrInfo receive;
	Oid receive_param;
	int32 typmod;
} DatumCodec;

/* Function look-ups are kept in CurrentMemoryContext. */
extern void codec_init(DatumCodec *codec, Oid type, int32 typmod);
/* The datum must not be NULL; toasted and expanded values are flattened. May leave garbage in CurrentMemoryContext. */
extern void codec_write(DatumCodec *codec, Datum value, StringInfo out);
/* In CurrentMemoryContext; one allocation for by-reference image types. */
extern Datum codec_read(DatumCodec *codec, ByteReader *reader);

#endif
