/*
 * target.h: the table a table sink writes to: made when missing, checked whenever a plan is made.
 */
#ifndef STREAM_SINK_TARGET_H
#define STREAM_SINK_TARGET_H

#include "sink/sink.h"
#include "lib/stringinfo.h"

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
	bool outside;	/* a foreign table, or one of its partitions is: rows commit on another server */
	bool divert;	/* option on_bad_row: rows it does not take become dead letters */
	char *op;		/* change data: column that says what happened (sink/change.h); NULL: rows are rows */
	char *unchanged; /* change data: column that names the columns a change did not bring; NULL: none does */
	List *key;		/* String; NIL with upsert: the target has one row at most (aggregate without GROUP BY) */
	struct _SPI_plan *clear; /* DELETE of everything, once it was needed */
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

/* A statement of the target's own, as the current user. */
extern void target_execute(const char *sql);

/* Deletes all rows, in complete mode and where a change says so. */
extern void target_clear(Target *target);
/* Deletes what an earlier attempt of this batch may have committed on another server. */
extern void target_take_back(Target *target, SinkDef *def, const BatchInfo *batch);
/* Plans are let go, before the target's memory is. */
extern void target_release(Target *target);

/* Is it a column of the target? Not those that only say what to do. */
extern bool target_is_written(Target *target, const char *column);

/* "t.column = value", as the column's unique index compares. */
extern void target_append_equality(StringInfo sql, Target *target, const char *column, const char *value);

/* "a, b": identifiers quoted. */
extern char *target_column_list(List *columns);

#endif
