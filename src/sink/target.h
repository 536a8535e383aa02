/*
 * target.h: the table a table sink writes to: made when missing, checked whenever a plan is made.
 */
#ifndef STREAM_SINK_TARGET_H
#define STREAM_SINK_TARGET_H

#include "sink/sink.h"

typedef struct Target
{
	Oid relid;
	char *name;		/* schema-qualified and quoted */
	List *columns;	/* String: the query's columns in order */
	char *batch_id; /* column that takes the batch id; NULL: none */
	bool batch_id_required; /* the user named it: a table without it is an error */
	bool upsert;	/* by key; else rows are added */
	bool key_is_shape_key; /* it is the query's own key, not one from the options */
	bool retracts;	/* rows leave it by their key, or by what whole rows are compared by */
	bool divert;	/* option on_bad_row: rows it does not take become dead letters */
	List *key;		/* String; NIL with upsert: the target has one row at most (aggregate without GROUP BY) */
} Target;

/* Options of to_table and what they mean for this query: everything but relid and name. */
extern Target *target_describe(SinkDef *def, SinkShape *shape);

/* Finds the relation and checks that it can be written; error 42P01 when it is not there and missing_ok is false. */
extern bool target_find(Target *target, SinkDef *def, SinkShape *shape, bool missing_ok);

/* CREATE TABLE as the current user. */
extern void target_make(Target *target, SinkDef *def, SinkShape *shape);

/* Upserts need a unique index on exactly the key: finds it, or makes it (make: at create and alter), or refuses. */
extern void target_check_key(Target *target, SinkDef *def, bool make);

/* 42501 unless rows may be deleted, where the query does. */
extern void target_check_delete(Target *target, SinkShape *shape);

/* "a, b": identifiers quoted. */
extern char *target_column_list(List *columns);

#endif
