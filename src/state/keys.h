/*
 * keys.h: keys of state: hashed and compared as their types say (NULLs equal), formed, and put into bytes.
 * Most comparisons end at the bytes: equal images are equal whatever the type, and for many types the reverse holds too.
 */
#ifndef STREAM_STATE_KEYS_H
#define STREAM_STATE_KEYS_H

#include "postgres.h"
#include "executor/tuptable.h"
#include "lib/stringinfo.h"
#include "state/row_codec.h"
#include "state/store.h"

typedef struct KeyColumn
{
	int16 length;
	bool by_value;
	bool image_decides; /* different images: different values */
	Oid collation;
	FmgrInfo equal;
	FmgrInfo hash;
	FmgrInfo stored_hash; /* the type's extended hash function, else the same as hash */
	bool extended;
	Oid by_parts; /* its hash would not be the same in another database: the type; else InvalidOid */
} KeyColumn;

typedef struct KeyType
{
	RowCodec *row; /* with room for a deformed stored key */
	int ncolumns;
	KeyColumn *columns;
	MemoryContext scratch; /* for what the types' functions allocate; reset by key_hash */
} KeyType;

/* In CurrentMemoryContext. */
extern KeyType *key_type_create(const StateSchema *schema);
extern uint32 key_hash(KeyType *type, const Datum *values, const bool *nulls);
/* The same in every process and after every restart: columns from..to-1. */
extern uint64 key_hash_stored(KeyType *type, int from, int to, const Datum *values, const bool *nulls);
extern bool key_equals(KeyType *type, MinimalTuple key, const Datum *values, const bool *nulls);
/* A tuple without toasted parts; in CurrentMemoryContext. */
extern MinimalTuple key_form(KeyType *type, const Datum *values, const bool *nulls);
/* By-reference values point into the key. */
extern void key_deform(KeyType *type, MinimalTuple key, Datum *values, bool *nulls);
extern void key_write(KeyType *type, MinimalTuple key, StringInfo out);
extern MinimalTuple key_read(KeyType *type, const char *bytes, uint32 length);

#endif
