/*
 * retraction.h: rows a table sink takes back out of its target.
 */
#ifndef STREAM_SINK_RETRACTION_H
#define STREAM_SINK_RETRACTION_H

#include "sink/target.h"

typedef struct Retraction Retraction;

/* In CurrentMemoryContext, which lives as long as the sink. NULL when the target never loses rows. */
extern Retraction *retraction_create(Target *target, SinkShape *shape);
/* Deletes what the row stands for: by key, or one row equal to it. */
extern void retraction_run(Retraction *retraction, TupleTableSlot *row);
extern void retraction_free(Retraction *retraction);

#endif
