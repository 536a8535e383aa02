/*
 * replace.h: rows of a plain table that take the place of others by key. Known keys are updated here; rows with new ones are inserted by bulk.c.
 */
#ifndef STREAM_SINK_REPLACE_H
#define STREAM_SINK_REPLACE_H

#include "postgres.h"
#include "nodes/execnodes.h"
#include "nodes/parsenodes.h"

typedef struct Replace Replace;

/* Of an INSERT … ON CONFLICT DO UPDATE, in CurrentMemoryContext; NULL: only the executor does what it says. */
extern Replace *replace_create(Query *insert, Relation target);
extern void replace_sort(Replace *replace, Query *rows); /* in the order of the key's index: its pages are visited once */
extern void replace_begin(Replace *replace, EState *estate, ResultRelInfo *target); /* indexes opened as for ON CONFLICT; in the estate's memory */
/* Puts the row in the place of the one with its key. false: there is none. */
extern bool replace_known(Replace *replace, TupleTableSlot *row);
/* Index entries of a row just inserted. false: another was faster with its key; the row is taken out of the table again. */
extern bool replace_enter(Replace *replace, TupleTableSlot *row);

#endif
