/*
 * divert.h: option on_bad_row of table sinks, 'dead_letter': rows the target does not take are put aside, the others are written.
 */
#ifndef STREAM_SINK_DIVERT_H
#define STREAM_SINK_DIVERT_H

#include "sink/sink.h"

typedef struct Divert Divert;

/* strict: bad rows fail the batch after all. sql reads relation rows_name with the columns of rows, and the parameters of a batch. In CurrentMemoryContext, which lives as long as the sink. */
extern Divert *divert_create(Sink *sink, bool strict, const char *sql, const char *rows_name, TupleDesc rows);
extern void divert_begin(Divert *divert);
extern void divert_receive(Divert *divert, TupleTableSlot *slot);
extern void divert_forget(Divert *divert); /* the rows received so far */
/* What the statement need not be asked about: a row known to be bad becomes a dead letter. */
extern void divert_put_aside(Divert *divert, TupleTableSlot *slot, ErrorData *error);
extern void divert_finish(Divert *divert); /* counts sink->rows_bad */
extern void divert_free(Divert *divert);   /* before the sink's memory goes */

#endif
