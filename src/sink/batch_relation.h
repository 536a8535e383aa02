/*
 * batch_relation.h: the relation `batch` that the function of a function sink reads: a foreign table in pg_temp over a tuplestore of this process.
 */
#ifndef STREAM_SINK_BATCH_RELATION_H
#define STREAM_SINK_BATCH_RELATION_H

#include "postgres.h"
#include "access/tupdesc.h"
#include "utils/tuplestore.h"

/* Makes pg_temp.batch with these columns, or finds it. As the current user, who needs TEMP. */
extern void batch_relation_make(TupleDesc desc);
extern void batch_relation_drop(void);

/* What it reads from now on, in this transaction; NULL: nothing. */
extern void batch_relation_set_rows(Tuplestorestate *rows, TupleDesc desc);

#endif
