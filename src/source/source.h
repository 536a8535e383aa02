/*
 * source.h: where rows come from. One SourceOps per kind, one line in the table of source.c.
 *
 *   SourceDef     what the catalog says of one source (a foreign table): columns, options, event time
 *   SourceReader  the open source of one query in this process: connections, caches; lives as long as the worker
 *   Position      jsonb that only its source reads; the offset log keeps it
 *   SourceBatch   one source's share of a batch: range, counters, event times seen
 *   SourceScan    one pass over a range of it, for the FDW
 */
#ifndef STREAM_SOURCE_SOURCE_H
#define STREAM_SOURCE_SOURCE_H

#include "postgres.h"
#include "access/tupdesc.h"
#include "executor/tuptable.h"
#include "metadata/batch_info.h"
#include "nodes/bitmapset.h"
#include "nodes/pg_list.h"
#include "util/options.h"
#include "utils/jsonb.h"

typedef Jsonb Position;

typedef enum BadRowPolicy
{
	BAD_ROW_DEAD_LETTER,
	BAD_ROW_FAIL,
	BAD_ROW_SKIP,
	BAD_ROW_NULL
} BadRowPolicy;

typedef struct SourceOps SourceOps;

typedef struct SourceDef
{
	Oid relid;				   /* the foreign table */
	Oid owner;				   /* its owner */
	char *name;				   /* schema-qualified and quoted: key in the offset log, name in messages */
	const SourceOps *ops;
	TupleDesc desc;			   /* its columns (dropped ones included) */
	AttrNumber event_time;	   /* column with the event time, 0: none declared */
	Oid event_time_type;	   /* TIMESTAMPTZOID or TIMESTAMPOID (read as UTC) */
	int64 watermark_delay;	   /* microseconds; -1: event time without watermark */
	BadRowPolicy on_bad_row;
	List *table_options;	   /* DefElem: of the foreign table, as text */
	List *server_options;	   /* DefElem: of its server */
	List *user_options;		   /* DefElem: of the user mapping of GetUserId() or PUBLIC; secrets live here */
	const char **paths;		   /* per attribute: column option "path", else the column's name */
	void *options;			   /* parsed by ops->parse into the source's own struct */
} SourceDef;

typedef struct SourceReader
{
	const SourceOps *ops;
	SourceDef *def;
	int64 query_id;		   /* whose reader it is; 0: a read by hand */
	bool scouts;		   /* tasks read the batches, it looks for what is new: it need not fetch far ahead */
	int64 rows_expected;   /* in the batch to come, for the planner: as announced, else as in the last one; -1: nobody knows */
	double recent_rows, recent_bad; /* of about the last thousand rows, and how many of them were bad */
	bool unreadable;	   /* nearly all of them */
	MemoryContext context; /* dies with the reader */
} SourceReader;

typedef struct ReadLimit
{
	int64 max_rows;	 /* 0: none */
	int64 max_bytes; /* 0: none */
	int64 min_rows;	 /* the caller waits for that many: count rows_waiting up to it; 0: nobody asks */
	bool everything; /* one batch for all there is (trigger once): no limit of the source's own either */
	bool be_sure;	 /* somebody waits for the answer "nothing": look, do not rely on news that come by themselves */
} ReadLimit;

/* What advance() found. */
typedef struct SourceAdvance
{
	Position *end;		/* NULL: nothing new */
	int64 rows;			/* rows in the range if cheaply known, else -1 */
	int64 rows_waiting; /* rows between from and the ceiling if cheaply known (min_rows_per_batch), else -1 */
	bool more;			/* data remains behind end */
	Position *latest;	/* the newest there is, as far as is known without asking, nothing new or not; NULL: not known. Logged with the batch, for those who watch */
	int64 rows_left;	/* rows behind end; 0 with more: not known */
	int64 bytes;		/* to be read of files; 0: not known */
	Jsonb *behind;		/* array of lane numbers that still have unread data behind end; NULL: none. Logged with the batch */
} SourceAdvance;

/* A dead letter of this source that comes again with the batch, behind its range. */
typedef struct SourceLetter
{
	int64 id;
	Jsonb *position; /* or NULL */
	char *raw;		 /* or NULL */
	Size raw_len;
	char *error;	 /* out, by the observer: still bad, and why; NULL: it is a row now */
} SourceLetter;

struct SourceRemote;

typedef struct SourceBatch
{
	SourceReader *reader;
	Position *from, *to;		   /* (from, to] in the source's own sense; equal or NULL to: no rows of this source in the batch */
	const BatchInfo *info;
	bool observer_taken;		   /* the first scan observes; others of the same source read the same rows silently */
	bool observed_all;			   /* that scan has seen the end */
	int64 rows;					   /* good rows seen by the observer */
	int64 rows_bad;
	int64 bytes;
	int64 rows_shown, bytes_shown; /* of them, good and bad, in stream.operations: by us, or by the tasks that read them */
	/* event time, microseconds as TimestampTz; by the observer over every good row, before any WHERE */
	int64 event_rows;
	TimestampTz event_min, event_max;
	double event_sum;
	int nlanes;					   /* lanes = partitions; 1 where there are none */
	TimestampTz *lane_max;		   /* DT_NOBEGIN until a row is seen; grown by source_observe */
	int64 rows_ahead;			   /* rows beyond that */
	int64 max_bad_rows;			   /* more fail the batch; -1: no limit */
	List *letters;				   /* SourceLetter */
	TimestampTz max_event_time;	   /* rows above do not move the watermark (max_event_time_skew); DT_NOEND: no limit */
	int share, shares;			   /* this process reads the share'th part of the range; shares 0: all of it */
	int share_rows;				   /* where rows have no partitions: so many in a row belong to one share */
	const struct SourceRemote *remote; /* other processes read it; NULL: this one does */
	void *remote_arg;
} SourceBatch;

typedef struct SourceScan
{
	SourceReader *reader;
	Position *from, *to;   /* NULL from: the very start; NULL to: what is there now (batch reads by hand) */
	SourceBatch *batch;	   /* NULL outside a streaming query */
	bool observer;		   /* counts, watches event time, keeps bad rows */
	bool started, done;
	bool range_done;	   /* letters follow */
	int next_letter;
	SourceLetter *letter;  /* the one being decoded; NULL: a row of the range */
	void *again;		   /* scan_again's own, kept over its calls */
	Bitmapset *needed;	   /* attributes the plan uses; NULL: all */
	MemoryContext context; /* of the scan */
	MemoryContext row_context; /* reset before every row by the caller of next() */
	int64 bad_rows;		   /* outside a batch: to warn once */
	int lane;			   /* set by next(): lane of the row just returned */
	uint64 order;		   /* set by next() where a range is shared: rows come in ascending order, and those of one number are of one share */
	const struct SourceRemote *remote; /* of the batch, while it serves this scan */
	void *state;		   /* the source's own, or the remote's */
} SourceScan;

/*
 * A range read by other processes, each a share of it: rows come as the source would hand them out here, in the same order, and have been observed there.
 * As the scan callbacks below; begin may decline, and the source reads by itself.
 */
typedef struct SourceRemote
{
	bool (*begin)(SourceScan *scan);
	bool (*next)(SourceScan *scan, TupleTableSlot *slot);
	void (*rewind)(SourceScan *scan);
	void (*end)(SourceScan *scan);
} SourceRemote;

struct SourceOps
{
	const char *kind;	   /* 'table' */
	const char *server;	   /* built-in server and wrapper: 'stream_table' */
	bool shares;  /* several processes can read a range, each a share (SourceBatch.shares) */
	bool forgets; /* what has been acknowledged cannot be read again: no stream.rewind_query */
	/*
	 * Is this option valid at that place (ForeignTableRelationId, ForeignServerRelationId, UserMappingRelationId, AttributeRelationId)?
	 * Checks the value as well (ereport). Options common to all kinds are handled before. NULL: what `options` says.
	 */
	const OptionDef *options; /* of the foreign table; read by source_parse_options into a struct of that size */
	Size options_size;
	bool (*check_option)(const char *name, const char *value, Oid catalog);
	const char *(*option_names)(Oid catalog); /* for the error that lists the valid ones */
	/*
	 * create_source: what must be made before the foreign table can be, and the column list when the user gave none ("a int, b text"; NULL: he
	 * must give one). Optional. name: of the source; options: DefElem list.
	 */
	char *(*prepare)(const char *name, List *options, const char *columns);
	/* def->options from the lists; whatever is missing or contradictory is an ereport naming def->name. */
	void (*parse)(SourceDef *def);
	SourceReader *(*open)(SourceDef *def); /* in CurrentMemoryContext; registers its own clean-up callback on it */
	/*
	 * create_query: what a query over it would wait for, such as 'topic "x"'; NULL: nothing, or no answer within a second. Refuses what can be seen to be
	 * wrong without asking. Optional.
	 */
	char *(*absent)(SourceDef *def);
	/* Before initial(), of all sources of a query: what must be made while the transaction has not written anything yet. Optional. */
	void (*arrive)(SourceReader *reader);
	/* Where a new query starts. NULL: the very start. */
	Position *(*initial)(SourceReader *reader);
	/* The newest position: the fixed end of available_now and of process_all_available. */
	Position *(*latest)(SourceReader *reader);
	/* The next range from `from`, not beyond `ceiling` (NULL: none), within the limit. Runs inside a transaction with a snapshot. */
	SourceAdvance (*advance)(SourceReader *reader, Position *from, Position *ceiling, const ReadLimit *limit);
	void (*scan_begin)(SourceScan *scan);
	/* Fills slot->tts_values/tts_isnull of all attributes (caller stores the virtual tuple); false at the end. Good rows only: bad ones go to source_bad_row. */
	bool (*scan_next)(SourceScan *scan, TupleTableSlot *slot);
	void (*scan_rewind)(SourceScan *scan);
	void (*scan_end)(SourceScan *scan);
	/*
	 * A row that could not be read comes again: its bytes decoded by the present definition, metadata columns from its position where that tells them, else
	 * NULL. False: still bad, source_bad_row was told. Optional: without it rows of this source cannot come again.
	 */
	bool (*scan_again)(SourceScan *scan, const SourceLetter *letter, TupleTableSlot *slot);
	/* The batch up to here is committed: older data may be let go. Optional. */
	void (*acknowledge)(SourceReader *reader, Position *upto);
	/*
	 * The relation of this database whose rows it hands on, InvalidOid: none. create_source makes the source depend on it; a query must not
	 * write to what it reads. Optional.
	 */
	Oid (*base_relation)(SourceDef *def);
	/* Descriptor that becomes readable when data arrives, PGINVALID_SOCKET: none (the source sets the worker's latch itself). Optional. */
	pgsocket (*wake_socket)(SourceReader *reader);
	/* Is there something new, cheaply, without transaction? Called after a wake-up. Optional; default: true. */
	bool (*has_news)(SourceReader *reader);
	/* Look again after so many milliseconds even if nobody woke us: for sources nothing tells of news (files, clocks). -1: never. Optional. */
	int (*look_again_ms)(SourceReader *reader);
	void (*close)(SourceReader *reader); /* early; the context callback does the same */
};

/* ---- source.c ---- */
/* Opens the source def tells of, in a context of its own below parent; event time and delay as in def. */
extern SourceReader *source_reader_open(MemoryContext parent, const SourceDef *def, int64 query_id);
extern void source_reader_close(SourceReader *reader);
/* Would a reader of the one do for the other? */
extern bool source_is_unchanged(const SourceDef *a, const SourceDef *b);
extern const SourceOps *source_lookup_kind(const char *kind);
extern char *source_kinds(void);
extern bool source_is_stream(Oid relid);						   /* a foreign table of one of our wrappers? */
extern SourceDef *source_load(Oid relid);						   /* from the catalog, in CurrentMemoryContext; user mapping of the current user */

/*
 * A struct by ops->options, what they do not say left as `target` is. format and timestamp_unit: where those two common options go; NULL: the source does
 * not decode.
 */
extern void source_parse_options(SourceDef *def, void *target, char **format, char **timestamp_unit);

/* Positions that are a number: {"n": 12}; 0 for none. */
extern int64 source_position_n(Position *position);
extern Position *source_position_of(int64 n);

/*
 * A row of the source that cannot be read. By def->on_bad_row: dead letter, error, counted, … Outside a streaming query: 'fail' raises,
 * everything else warns once per scan. Does nothing for scans that do not observe.
 */
extern void source_bad_row(SourceScan *scan, Jsonb *position, const char *raw, Size raw_len, int sqlstate, const char *message);

/* Counts a good row and its event time; called by fdw.c for the observing scan. */
extern void source_observe(SourceScan *scan, TupleTableSlot *slot);

/* Fails the batch when more rows of the source were bad than it may have; message: what is wrong with the last one. */
extern void source_check_bad_rows(SourceBatch *batch, Jsonb *position, int sqlstate, const char *message);
/* What another process has seen of its share. */
extern void source_observe_share(SourceBatch *batch, const SourceBatch *share);

/* The batch running in this process; fdw.c looks its scans up here by relid. NULL list between batches. List of SourceBatch. */
extern void source_set_running(List *batches);
extern SourceBatch *source_running(Oid relid);
extern void source_show_progress(SourceBatch *batch); /* in stream.operations: what has been read since the last time */
/* Reads what no scan of the plan has read, so that counts, watermarks and dead letters never depend on the plan. */
extern void source_drain(SourceBatch *batch);

/* Opens, in CurrentMemoryContext, a scan of the batch, or (batch NULL) of everything there is now. */
extern SourceScan *source_scan_open(SourceReader *reader, SourceBatch *batch, Bitmapset *needed);
/* One row into the slot (virtual), observed when it is this scan's task; false at the end. */
extern bool source_scan_next(SourceScan *scan, TupleTableSlot *slot);
extern void source_scan_rewind(SourceScan *scan);
extern void source_scan_close(SourceScan *scan);

/* ---- fdw.c ---- */
#define STREAM_SCAN_MARK "stream_ext batch" /* RangeTblEntry.enrname of a source read as part of a batch; set by plan/ */

extern const SourceOps table_source;
extern const SourceOps kafka_source;
extern const SourceOps file_source;
extern const SourceOps rate_source;
extern const SourceOps socket_source;
extern const SourceOps changes_source;

#endif
