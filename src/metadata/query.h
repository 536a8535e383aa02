/*
 * query.h: rows of stream.query (what the user said) and stream.query_run (what should run, and how it went).
 * stream.query_run is not dumped: after a restore every query is stopped.
 */
#ifndef STREAM_METADATA_QUERY_H
#define STREAM_METADATA_QUERY_H

#include "postgres.h"
#include "datatype/timestamp.h"
#include "metadata/batch_info.h"
#include "nodes/parsenodes.h"
#include "utils/jsonb.h"

typedef enum TriggerKind
{
	TRIGGER_PROCESSING_TIME,
	TRIGGER_AVAILABLE_NOW,
	TRIGGER_ONCE,
	TRIGGER_CONTINUOUS,
	TRIGGER_REAL_TIME
} TriggerKind;

typedef struct TriggerDef
{
	TriggerKind kind;
	int64 period; /* microseconds */
} TriggerDef;

#define DEFAULT_MAX_RETRIES 5

typedef struct QueryOptions
{
	int64 max_rows_per_batch; /* 0: none */
	int64 max_bytes_per_batch;
	int64 min_rows_per_batch;
	int64 max_trigger_delay; /* microseconds */
	Jsonb *watermarks;		 /* {"source": "10 minutes"} */
	char *multiple_watermark_policy;
	int64 max_event_time_skew; /* -1: none */
	bool no_data_batches;
	char *late_rows;
	char *state_provider;
	int64 min_batches_to_retain;
	int64 max_retries;
	int64 max_bad_rows_per_batch; /* of one source; -1: no limit */
	int64 idle_timeout; /* -1: none */
	int64 parallelism; /* 0: as the setting says; ask query_parallelism */
	bool dedup_within_watermark;
	bool whole_windows; /* no option: its state has sliding windows as they are, not in panes */
} QueryOptions;

typedef struct StreamQuery
{
	int64 id;
	char *name;
	char *owner_name;
	Oid owner;			/* resolved from the name; InvalidOid if the role is gone: query_check_owner then says so */
	char *text;			/* as written */
	Oid view;			/* stream.query_<id> */
	Datum sink;			/* stream.sink, detoasted copy */
	OutputMode output_mode;
	Datum trigger_datum; /* stream.trigger, detoasted copy */
	TriggerDef trigger;	 /* the same, read */
	Jsonb *options_json;
	QueryOptions options;
	Jsonb *settings;	/* {"search_path": …, "TimeZone": …} pinned at creation */
	Jsonb *signature;	/* of the operators, as of the last create/alter */
	Jsonb *starts;		/* {source: position} at the first look; never NULL */
	int incarnation;	/* grows with reset_query */
} StreamQuery;

/* In CurrentMemoryContext. 42704 when unknown (missing_ok: NULL). Needs a transaction; no privilege. */
extern StreamQuery *query_load(const char *name, bool missing_ok);
extern StreamQuery *query_load_by_id(int64 id, bool missing_ok);
/* What it is now that the caller holds a lock on it: another session may have changed it, or dropped it (an error). */
extern StreamQuery *query_load_again(StreamQuery *query);
/* Are these two looks at a query's row of one query, neither altered nor reset in between? */
extern bool query_is_same(const StreamQuery *a, const StreamQuery *b);
extern List *query_ids(void); /* int64 *, of all there are */

typedef struct QueryName
{
	int64 id;
	char *name;
} QueryName;

extern List *query_names(void); /* QueryName, of all there are */
/* ereport 42501 unless the current user is a member of the owner. */
extern void query_check_owner(StreamQuery *query);
/* Writes the row: inserts (new) or updates by id. id, name, owner_name, text, sink, output_mode, trigger_datum, *_json, settings, signature, starts, incarnation. */
extern void query_insert(StreamQuery *query);
extern void query_update(StreamQuery *query);
extern void query_delete(int64 id);
extern int64 query_next_id(void);
/* The view's Query, a copy ready for rewriting. */
extern Query *query_view_tree(StreamQuery *query);

/* Setting stream_ext.parallelism: tasks of queries that do not say how many. */
extern int stream_default_parallelism;
extern int query_parallelism(const QueryOptions *options);

extern void query_options_read(StreamQuery *query); /* from options_json and signature */
extern TriggerDef trigger_from_datum(Datum composite);
extern const char *trigger_kind_name(TriggerKind kind);

/* Pinned settings: applied for the current transaction only; call at the start of each. Also pins role = session user and row_security. */
extern void query_apply_settings(StreamQuery *query);

/*
 * Whoever plans a query, or shows its state, runs code of its owner's: immutable functions, final functions. Between begin and end the current user is the
 * owner, under the pinned settings, whoever asked; an error ends it too.
 */
typedef struct OwnerScope
{
	Oid caller;
	int security;
	int guc_level;
} OwnerScope;

extern void query_owner_begin(StreamQuery *query, OwnerScope *scope);
extern void query_owner_end(OwnerScope *scope);
extern Jsonb *query_capture_settings(void);

/* One writer per query. Session lock in workers, transaction lock in the foreground. False: somebody else runs it. */
extern bool query_lock(int64 query_id, bool session_level);
/* Held to the end of the transaction by whoever folds or purges, and by whoever takes state away or back. False: somebody has it, and wait is false. */
extern bool query_lock_housekeeping(int64 query_id, bool wait);

/* ---- stream.query_run ---- */
typedef struct QueryRun
{
	bool exists;
	bool wanted;	  /* should a worker run it? */
	char *status;	  /* created, starting, running, stopping, stopped, restarting, failed, finished */
	char *run_id;	  /* uuid of the present or last run */
	int failures;	  /* in a row */
	char *sqlstate;
	char *error;	  /* last error, NULL after success */
	TimestampTz retry_at;
	TimestampTz ended_at; /* when it last ceased to be wanted: query_run_store sees to it; 0: never */
} QueryRun;

extern void query_run_load(int64 query_id, QueryRun *run);
/* Writes the row (insert or update); NULL run_id keeps, status must be one of the eight. C table access. */
extern void query_run_store(int64 query_id, const QueryRun *run);
/* It is not to run any more, and no failure is held against it; to be stored by the caller. */
extern void query_run_end(QueryRun *run, const char *status);
/* What it failed at is mended: stopped, and no failure is held against it. */
extern void query_run_forgive(int64 query_id);
typedef struct RunEntry
{
	int64 query_id;
	bool wanted;
	TimestampTz ended_at;
	char run_id[37]; /* uuid as text, "" before the first */
} RunEntry;
extern List *query_runs(bool only_wanted); /* RunEntry of every query, or of those that should run */
extern char *query_run_new_id(void); /* a random uuid as text */

#endif
