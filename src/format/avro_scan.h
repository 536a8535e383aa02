/*
 * avro_scan.h: one pass over the bytes of an Avro value: checks all of it, remembers where the wanted fields are.
 * A writer's schema as a tree, the tree of wanted fields (json_scan.h), a token per wanted field. Free of PostgreSQL, so that it can be fuzzed alone.
 */
#ifndef STREAM_FORMAT_AVRO_SCAN_H
#define STREAM_FORMAT_AVRO_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "format/encoding.h"
#include "format/json_scan.h"

#define AVRO_MAX_DEPTH 512 /* values inside one another */

typedef enum AvroType
{
	AVRO_NULL,
	AVRO_BOOLEAN,
	AVRO_INT,
	AVRO_LONG,
	AVRO_FLOAT,
	AVRO_DOUBLE,
	AVRO_BYTES,
	AVRO_STRING,
	AVRO_FIXED,
	AVRO_ENUM,
	AVRO_ARRAY,
	AVRO_MAP,
	AVRO_UNION,
	AVRO_RECORD
} AvroType;

typedef struct AvroSchema AvroSchema;

/* Which field of a record goes to which wanted field, for one place in the tree of those. */
typedef struct AvroFields
{
	int node;
	int *children; /* per field of the record: node, -1: nobody wants it */
	struct AvroFields *next;
} AvroFields;

/* Of a type used in several places there is one of these; types may contain themselves. */
struct AvroSchema
{
	AvroType type;
	Encoding encoding;
	int scale;			   /* ENCODED_DECIMAL */
	size_t size;		   /* AVRO_FIXED */
	int count;			   /* symbols, branches, fields; 1 of an array or a map */
	AvroSchema **children; /* branches, fields, items */
	const char **names;	   /* symbols, fields */
	AvroFields *fields;	   /* AVRO_RECORD, where it is wanted; made by avro_resolve */
};

typedef struct AvroToken
{
	const AvroSchema *schema; /* never a union; NULL: the field is absent */
	const char *start;		  /* the value as it is written; of bytes, strings and fixed: what is in it */
	size_t len;
	int64_t number; /* of boolean, int, long; of enum the symbol */
	double real;	/* of float, double */
} AvroToken;

typedef enum AvroFault
{
	AVRO_OK,
	AVRO_END,	   /* ends too early */
	AVRO_VARINT,   /* a number of more than 64 bits, or an int of more than 32 */
	AVRO_LENGTH,   /* a negative length */
	AVRO_FLAG,	   /* a boolean that is neither 0 nor 1 */
	AVRO_BRANCH,   /* no such branch of a union */
	AVRO_SYMBOL,   /* no such symbol of an enum */
	AVRO_ENCODING, /* a string that is not UTF-8, or has a zero byte */
	AVRO_DEPTH,	   /* nested too deeply */
	AVRO_ITEMS,	   /* more items without content than anybody means */
	AVRO_UNREAD	   /* bytes are left */
} AvroFault;

typedef struct AvroScan
{
	const JsonTree *tree;
	AvroToken *tokens; /* per node of the tree, valid after avro_scan */
	const char *p, *begin, *end;
	int64_t steps; /* values still allowed */
	int depth;
	AvroFault fault;
	const char *where; /* byte the fault is about; may be end */
} AvroScan;

/* Prepares a schema for the wanted fields below node; again for each place. alloc: zeroed memory. */
extern void avro_resolve(AvroSchema *schema, const JsonTree *tree, int node, void *(*alloc)(size_t size));
/* The whole of buf is one value of the schema. */
extern bool avro_scan(AvroScan *scan, const AvroSchema *schema, const char *buf, size_t len);
extern const char *avro_fault_text(AvroFault fault);

/* For a second look at a value that avro_scan has read: the next scalar; arrays and maps by their blocks. */
extern bool avro_read_scalar(AvroScan *scan, const AvroSchema *schema, AvroToken *token);
/* The branch of a union that follows, or the schema itself. NULL: none. */
extern const AvroSchema *avro_read_branch(AvroScan *scan, const AvroSchema *schema);
/* Items of the block that begins here; 0: the end. False: fault. */
extern bool avro_read_block(AvroScan *scan, int64_t *count);

#endif
