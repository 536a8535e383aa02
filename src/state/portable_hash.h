/*
 * portable_hash.h: hashes that lie in tables: the same in every process, after every restart, and in another database a dump was restored to.
 * Types hash enums by the oids of their labels, which are others there; labels themselves can be renamed.
 */
#ifndef STREAM_STATE_PORTABLE_HASH_H
#define STREAM_STATE_PORTABLE_HASH_H

#include "postgres.h"

/* Is the type an enum, or made of some? Its own hash function will not do then. */
extern bool type_has_enum(Oid type);
/* Of such a value. May leave garbage in CurrentMemoryContext. */
extern uint64 portable_hash(Oid type, Oid collation, Datum value);

#endif
