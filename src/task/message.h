/*
 * message.h: what goes between a query's process and its tasks, private to task/.
 *
 * Query → task: an order, for one run over one batch. Task → query: blocks of rows or groups, dead letters, at last what was seen ("done"); errors and
 * warnings as the server itself would send them. Each message begins with its kind, eight bytes long, so that what follows is aligned.
 */
#ifndef STREAM_TASK_MESSAGE_H
#define STREAM_TASK_MESSAGE_H

#include "task/task.h"

#include "lib/stringinfo.h"
#include "state/codec.h"
#include "storage/shm_mq.h"

#define TASK_BLOCK_BYTES 32768 /* rows and groups are sent when so many bytes have gathered */

typedef enum MessageKind
{
	/* 'E' and 'N' are the server's own: error, notice */
	MESSAGE_ORDER = 'O',
	MESSAGE_ROWS = 'R',
	MESSAGE_GROUPS = 'G',
	MESSAGE_LETTER = 'L',
	MESSAGE_DONE = 'D'
} MessageKind;

/* In the segment, before the two queues. */
typedef struct TaskShared
{
	struct PGPROC *leader;
	pid_t leader_pid;
} TaskShared;

#define TASK_ORDERS_BYTES (64 * 1024)
#define TASK_RESULTS_BYTES (1024 * 1024)
#define TASK_ORDERS_AT MAXALIGN(sizeof(TaskShared))
#define TASK_RESULTS_AT (TASK_ORDERS_AT + TASK_ORDERS_BYTES)
#define TASK_SEGMENT_BYTES (TASK_RESULTS_AT + TASK_RESULTS_BYTES)

/* Travels in bgw_extra. */
typedef struct TaskLaunch
{
	Oid database;
	Oid owner;
	int64 query_id;
	int number;
} TaskLaunch;

/* The fixed part of an order; then the settings, the snapshot, the sources, and what kind of run it is. */
typedef struct OrderHead
{
	bool fold;
	int share, shares, share_rows;
	int nsources;
	BatchInfo info; /* query_name is not valid */
} OrderHead;

typedef struct OrderSource
{
	Oid relid;
	AttrNumber event_time;
	int64 watermark_delay;
	bool observe;
	int64 max_bad_rows;
	TimestampTz max_event_time;
	bool from_start; /* no position to start from */
	bool nothing;	 /* no rows of it: no position to end at */
} OrderSource;

/* ---- message.c ---- */
extern void message_begin(StringInfo message, MessageKind kind);
extern void message_put(StringInfo message, const void *bytes, Size length); /* as they are */
extern void message_put_sized(StringInfo message, const void *bytes, Size length);
extern void message_put_text(StringInfo message, const char *text); /* NULL allowed */
extern void message_get(ByteReader *reader, void *bytes, Size length);
extern void *message_get_sized(ByteReader *reader, Size *length); /* a copy; length may be NULL */
extern char *message_get_text(ByteReader *reader);

/* Order for the run of a batch, without what kind of run it is. */
extern void order_write(StringInfo message, const OrderHead *head, Jsonb *settings, List *batches);
/* Counters of the batches, as "done" tells them. */
extern void counts_write(StringInfo message, List *batches);
extern void counts_take(ByteReader *reader, List *batches);
extern void letter_write(StringInfo message, const char *source, const char *reason, Jsonb *position, const char *raw, Size raw_len, const char *error);
extern void letter_take(ByteReader *reader, const BatchInfo *info);

/* ---- row.c: rows in a block: the columns needed, as datums; those by reference point into the block ---- */
typedef struct RowShape
{
	TupleDesc desc;
	int ncolumns;
	int *columns; /* 0-based */
} RowShape;

extern void row_shape_init(RowShape *shape, TupleDesc desc, Bitmapset *needed);
extern void row_write(const RowShape *shape, StringInfo block, TupleTableSlot *slot);
/* Fills values and nulls of the slot, all columns; returns what follows the row. */
extern const char *row_read(const RowShape *shape, const char *at, TupleTableSlot *slot);

/* ---- pool.c, for scan.c and fold.c ---- */
extern int task_pool_size(TaskPool *pool);
extern bool task_pool_is_busy(TaskPool *pool);
extern Jsonb *task_pool_settings(TaskPool *pool);
/* The message is the same for all but for its head's share. */
extern void task_pool_order(TaskPool *pool, StringInfo message, const BatchInfo *info);
/* The next block of that task, good until the next call for it; MESSAGE_DONE: it is not busy any more. Letters are taken, errors raised. */
extern MessageKind task_pool_receive(TaskPool *pool, int task, ByteReader *block);

#endif
