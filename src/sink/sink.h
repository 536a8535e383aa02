/*
 * sink.h: where rows go. One SinkOps per kind, one line in the table of sink.c.
 * A sink either wraps the last stage into a statement of its own (to_table: INSERT … SELECT, nothing materialised) or receives rows.
 */
#ifndef STREAM_SINK_SINK_H
#define STREAM_SINK_SINK_H

#include "postgres.h"
#include "executor/tuptable.h"
#include "metadata/batch_info.h"
#include "metadata/query.h"
#include "nodes/parsenodes.h"
#include "tcop/dest.h"
#include "utils/jsonb.h"

typedef struct SinkOps SinkOps;

/* What plan/ knows of the rows that will come; the sink creates its target from it. */
typedef struct SinkShape
{
	TupleDesc desc;			/* the query's visible output columns */
	OutputMode mode;
	bool aggregated;		/* there is a GROUP BY: update mode upserts by key */
	Bitmapset *key;			/* update mode: output columns (1-based) that contain no aggregate */
	bool key_is_unique;		/* at most one row per key and batch for sure: no folding needed */
	const char *expanded;	/* a column that makes several rows of a group's results, which `key` cannot tell apart; NULL: none */
	bool retracts;			/* rows of earlier batches leave the target: `retract` is told them, before the batch's own rows come */
	bool replaces;			/* a better row takes another one's place under exactly this key: no other will do */
	bool whole_rows;		/* they have no key: of the rows that are equal in the columns `key`, one leaves */
	bool whole_groups;		/* what leaves is all rows that are equal in the columns `groups`, not one by one by their key */
	Bitmapset *groups;
	Bitmapset *lookup;		/* whole rows: columns an index helps to find them by */
	const char *leaving;	/* what makes them leave, where a sink that cannot take rows back will not do; NULL: it will */
} SinkShape;

typedef struct SinkDef
{
	const SinkOps *ops;
	char *target;		/* table name, function signature, topic, … as given */
	Jsonb *options;
	const char *query_name; /* for messages */
	int64 query_id;			/* with incarnation: what outside sinks are known by; 0 where nothing is written (explain) */
	int incarnation;
	Oid type;			/* of the stream.sink value it came from */
} SinkDef;

typedef struct Sink
{
	const SinkOps *ops;
	SinkDef *def;
	SinkShape *shape;
	const BatchInfo *batch;
	int64 rows; /* rows out in this batch, where the sink itself counts */
	bool outside; /* this target is on another server, though sinks of its kind are in the database as a rule */
	int64 rows_bad; /* rows of this batch that the sink put aside as dead letters */
} Sink;

struct SinkOps
{
	const char *kind; /* 'table' */
	bool needs_target; /* the target must not be NULL */
	bool in_database; /* output and commit entry are one transaction: the offsets' commit may be asynchronous */
	/* May several transactions bring the rows of one batch id, a part each? Low-latency triggers need it. NULL: no. */
	bool (*in_pieces)(SinkDef *def);
	/*
	 * At create and alter: options, privileges, makes what is missing (as the current user). ereport on trouble.
	 * Completes def->target (schema-qualified name); keep sink_def_to_datum(def) from then on.
	 */
	void (*create)(SinkDef *def, SinkShape *shape);
	/* In CurrentMemoryContext, which lives as long as the compiled plan. Checks that the target still fits. */
	Sink *(*open)(SinkDef *def, SinkShape *shape);
	/* The statement to run instead of the last stage: `final` becomes a part of it. NULL callback or NULL result: rows go to receive. */
	Query *(*wrap)(Sink *sink, Query *final);
	/* Once when the query starts to run here, last_batch being committed (-1: none): what an attempt that died has left. Optional. */
	void (*start)(Sink *sink, int64 last_batch);
	/* skip_batch: the batch counts as done and has no effect; takes away what an attempt that died has left of it. Optional. */
	void (*skip)(SinkDef *def, int64 batch_id);
	/* Inside the batch's transaction; sink->batch is set, its counters are 0. */
	void (*begin)(Sink *sink, const BatchInfo *batch);
	void (*receive)(Sink *sink, TupleTableSlot *slot);
	/* A row of the shape that leaves the target, before any row is received; only its key columns are filled. NULL: rows cannot be taken back. */
	void (*retract)(Sink *sink, TupleTableSlot *slot);
	void (*finish)(Sink *sink); /* everything handed over and acknowledged: the transaction commits next */
	/* The query stops here, batches up to last_batch being committed; in a transaction of its own. Optional. */
	void (*leave)(Sink *sink, int64 last_batch);
	void (*close)(Sink *sink);
	Oid (*target_relation)(Sink *sink); /* optional: plans are made anew when it changes */
	/* rewind_query: takes rows of batches after batch_id out of the target (as the current user), or refuses with the reason. Optional. */
	void (*rewind)(SinkDef *def, SinkShape *shape, int64 batch_id);
	char *(*describe)(SinkDef *def);	/* 'table public.alerts', for status and progress */
} ;

extern bool sink_is_in_database(Sink *sink);
extern char *sink_shared_by(int64 query_id, SinkDef *def); /* another query with this target, NULL: there is none */
/* For open(): the sink's own struct, which begins with a Sink. */
extern Sink *sink_make(Size size, const SinkOps *ops, SinkDef *def, SinkShape *shape);
extern bool sink_always_in_pieces(SinkDef *def); /* for sinks that see single rows only */
extern void sink_refuse_options(SinkDef *def); /* for sinks that take none */
/* When a query is made: 0A000 where rows must leave the target and cannot; a notice where they should. */
extern void sink_check_shape(SinkDef *def, SinkShape *shape);
extern void sink_note_staying_rows(void);
extern SinkDef *sink_def_load(StreamQuery *query); /* from the query's value of type stream.sink; NULL fields are 22004 */
extern Datum sink_def_to_datum(SinkDef *def); /* after create(): the same with the target's full name, to be kept */

extern const SinkOps table_sink;
extern const SinkOps kafka_sink;
extern const SinkOps file_sink;
extern const SinkOps log_sink;
extern const SinkOps function_sink;
extern const SinkOps each_sink;
extern const SinkOps channel_sink;
extern const SinkOps memory_sink;

#endif
