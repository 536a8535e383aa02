/* source_columns.h: columns of a source that is there already. */
#ifndef STREAM_API_SOURCE_COLUMNS_H
#define STREAM_API_SOURCE_COLUMNS_H

#include "postgres.h"
#include "nodes/parsenodes.h"

/* source.c */
extern CreateForeignTableStmt *source_columns_parse(const char *columns);
extern void source_run_utility(Node *statement, const char *what);
extern List *source_readers(Oid relid); /* names (char *) of the streaming queries that read it */

/*
 * The columns (as source_columns_parse gives them) are added, or get another type where they are there. Queries that read the source keep their
 * text: for another type they must be stopped, and must still fit their state.
 */
extern void source_change_columns(Oid relid, RangeVar *source, List *columns);

#endif
