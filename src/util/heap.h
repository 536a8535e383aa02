/*
 * heap.h: the extension's own tables by C table access: no SPI, no planner, no privilege of the query's owner needed.
 * Relations are found by name in schema stream and cached; every insert maintains the indexes.
 */
#ifndef STREAM_UTIL_HEAP_H
#define STREAM_UTIL_HEAP_H

#include "postgres.h"
#include "access/htup.h"
#include "access/genam.h"
#include "utils/relcache.h"

extern Oid heap_relation_oid(const char *name);			/* table or index of schema stream; error if missing */
extern void heap_insert_row(const char *table, Datum *values, bool *nulls);
extern Relation heap_open(const char *table, LOCKMODE lockmode);
/* Rows by index, in index order: equality on the first nkeys columns of the index (int8/int4/text by the column's type). */
typedef struct HeapScan HeapScan;
extern HeapScan *heap_scan_begin(const char *table, const char *index, int nkeys, Datum *keys, bool backward);
/* The same, from this value of the next column (int8) on. */
extern HeapScan *heap_scan_begin_at(const char *table, const char *index, int nkeys, Datum *keys, int64 low);
extern HeapTuple heap_scan_next(HeapScan *scan, Datum *values, bool *nulls); /* NULL at the end; by-reference values live until the next call */
extern void heap_scan_end(HeapScan *scan);
extern void heap_delete_row(const char *table, HeapTuple tuple);
extern void heap_update_row(const char *table, HeapTuple tuple, Datum *values, bool *nulls);

#endif
