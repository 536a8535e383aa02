/*
 * format.h: bytes → columns. A decoder turns one message or line into the values of a source's columns.
 * Free of executor and SPI; errors in the data come back as values, never as ereport.
 */
#ifndef STREAM_FORMAT_FORMAT_H
#define STREAM_FORMAT_FORMAT_H

#include "postgres.h"
#include "access/tupdesc.h"
#include "nodes/bitmapset.h"
#include "nodes/pg_list.h"

typedef enum TimestampUnit
{
	TIMESTAMP_UNIT_NONE, /* a JSON number in a timestamp column is a bad row */
	TIMESTAMP_UNIT_S,
	TIMESTAMP_UNIT_MS,
	TIMESTAMP_UNIT_US
} TimestampUnit;

extern TimestampUnit timestamp_unit_named(const char *name); /* s, ms, us; NULL: none */

/* Why a row could not be read. Lives until the next call of the decoder. */
typedef struct DecodeError
{
	int sqlstate;		/* 22P02 invalid text, 22021 bad encoding, 22003 out of range, 23502 not null, … */
	const char *column; /* column it was about, or NULL: the document as a whole */
	char message[256];	/* names the column, too */
} DecodeError;

/* Where format avro has its schemas from: one for all messages, or by the id in each message's frame. */
typedef struct AvroSource
{
	const char *schema; /* JSON, in the database's encoding */
	/* Texts of the schema (UTF-8), the last, and of those it refers to. NIL: there is none, *error says why. What is no fault of the message is an ereport. */
	List *(*lookup)(void *arg, uint32 id, DecodeError *error);
	void *arg;
} AvroSource;

typedef struct DecoderConfig
{
	TupleDesc desc;		/* the source's columns */
	const char **paths; /* per attribute: dotted path inside the document; NULL: not filled by the decoder
								 * (metadata columns, dropped columns) */
	Bitmapset *needed;	/* attribute numbers whose values are wanted; the others are checked all the same, since a row
								 * is bad or good for every query alike. NULL set means: all */
	TimestampUnit timestamp_unit;
	char delimiter;		/* csv: between fields; 0: a comma */
	const char *null_text; /* csv: a field without quotes that says so is NULL; NULL: an empty one */
	bool message;		/* csv: a message, not a line of a file: it may begin with a byte order mark */
	const AvroSource *avro; /* format avro */
	bool null_on_error; /* on_bad_row 'null': unreadable fields become NULL; an unreadable document still fails */
} DecoderConfig;

typedef struct Decoder Decoder;

typedef struct DecoderOps
{
	const char *name; /* 'json' */
	/* Checks the config against the column types (ereport), allocates in CurrentMemoryContext. */
	Decoder *(*open)(const DecoderConfig *config);
	/*
	 * Fills values/isnull (indexed by attnum − 1) for the columns with a path; others are left alone. By-reference values
	 * are palloc'ed in CurrentMemoryContext or point into buf, which the caller keeps until the row is done. False: *error says why.
	 */
	bool (*decode)(Decoder *decoder, const char *buf, size_t len, Datum *values, bool *isnull, DecodeError *error);
	/* A message that has only a key: the same of what it says. NULL: the format cannot tell. */
	bool (*decode_key)(Decoder *decoder, const char *key, size_t len, Datum *values, bool *isnull, DecodeError *error);
} DecoderOps;

struct Decoder
{
	const DecoderOps *ops;
};

/* The row of the format table, or NULL. */
extern const DecoderOps *format_lookup(const char *name);
extern char *format_names(void); /* "csv, json, …" */

extern const DecoderOps avro_decoder;
extern const DecoderOps csv_decoder;
extern const DecoderOps debezium_decoder;
extern const DecoderOps json_decoder;
extern const DecoderOps text_decoder;
extern const DecoderOps raw_decoder;

#endif
