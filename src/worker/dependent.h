/* dependent.h: errors of DROP and its kin that name the view of a query name the query as well. */
#ifndef STREAM_WORKER_DEPENDENT_H
#define STREAM_WORKER_DEPENDENT_H

#include "postgres.h"
#include "nodes/pg_list.h"
#include "util/compat.h"

/* Before the statement: what may be needed; NIL: it needs nothing. Looked up now, for after an error nothing can be. */
extern List *dependent_queries(Node *stmt);

/* In PG_CATCH: throws the error again, "view stream.query_7" of its detail being "view stream.query_7 (streaming query "sales")". */
extern void dependent_rethrow(List *queries, MemoryContext context) pg_attribute_noreturn();

#endif
