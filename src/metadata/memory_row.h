/* memory_row.h: rows of memory sinks, in stream.memory_row. */
#ifndef STREAM_METADATA_MEMORY_ROW_H
#define STREAM_METADATA_MEMORY_ROW_H

#include "postgres.h"
#include "utils/jsonb.h"
#include "utils/tuplestore.h"

extern void memory_row_add(int64 query_id, int64 batch_id, int64 number, Jsonb *row);
/* Rows of that batch and later ones. */
extern void memory_rows_delete(int64 query_id, int64 from_batch);
/* All rows of a query, one jsonb column, in the order they came. */
extern void memory_rows_read(int64 query_id, Tuplestorestate *store, TupleDesc desc);

#endif
