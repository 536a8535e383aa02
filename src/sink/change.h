/*
 * change.h: change data into a table: a column of the rows says what happened to the row of their key.
 *
 * Options of to_table: key (needed), op_column, unchanged_column. Neither of the two columns is written to the target.
 *   op_column         text: the words of util/change_op.h. Of several changes of one key in a batch the last wins;
 *                     'd' removes the key's row, if there is one, in the same batch; 't' empties the target of all that came before it.
 *                     An update that moves a row to another key must come as two rows: 'd' of the old, 'c' of the new one.
 *   unchanged_column  text[]: names of those columns of the query whose values this change did not bring (large values that were not
 *                     touched): the target keeps what it has. NULL: none.
 * Sources of change data (format debezium, kind changes) declare such columns as `op text` and `unchanged text[]`.
 * A row without a known word, or with a NULL in its key, is a bad row of the sink: the batch fails, or on_bad_row puts it aside.
 */
#ifndef STREAM_SINK_CHANGE_H
#define STREAM_SINK_CHANGE_H

#include "sink/target.h"

typedef struct Change Change;

/* The columns fit what the options say of them; ereport. */
extern void change_check(Target *target, SinkDef *def, SinkShape *shape);
/* One MERGE over rows_name, with the columns c1 … cn of the query. */
extern char *change_statement(Target *target, SinkShape *shape, const char *rows_name);

/* In CurrentMemoryContext, which lives as long as the sink; rows: their columns in the statement. */
extern Change *change_create(Sink *sink, Target *target, const char *rows_name, TupleDesc rows);
extern void change_begin(Change *change);
extern void change_receive(Change *change, TupleTableSlot *slot);
extern void change_finish(Change *change);
extern void change_free(Change *change); /* before the sink's memory goes */

#endif
