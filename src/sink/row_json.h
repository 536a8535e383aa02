/* row_json.h: a row as JSON text, for the sinks that write it so. */
#ifndef STREAM_SINK_ROW_JSON_H
#define STREAM_SINK_ROW_JSON_H

#include "postgres.h"
#include "executor/tuptable.h"

typedef struct RowJson
{
	TupleDesc desc;		   /* blessed copy of the rows' */
	MemoryContext context; /* of one row; reset by the next */
} RowJson;

extern RowJson *row_json_make(TupleDesc desc); /* in CurrentMemoryContext */
extern Datum row_json_record(RowJson *row, TupleTableSlot *slot); /* the row as a record; valid until the next */
extern Datum row_json_text(RowJson *row, TupleTableSlot *slot);	  /* the row as text of JSON; valid until the next */

#endif
