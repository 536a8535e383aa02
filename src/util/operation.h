/* operation.h: how far a long operation has come, for stream.operations; kept where PostgreSQL keeps the progress of VACUUM and its kin. */
#ifndef STREAM_UTIL_OPERATION_H
#define STREAM_UTIL_OPERATION_H

#include "postgres.h"
#include "utils/backend_status.h"

/* In the order of operation_name's table. */
typedef enum OperationKind
{
	OPERATION_BATCH,
	OPERATION_LOAD_STATE,
	OPERATION_FOLD_STATE,
	OPERATION_REWIND_TARGET,
	OPERATION_REWIND_STATE,
	OPERATION_SHARE /* of a batch, by a task: counted where the batch is shown */
} OperationKind;

/* Report again after so many rows. */
#define OPERATION_ROWS 4096

/* This process is at it, and has done so many rows. batch_id -1: none. An abort, or operation_end, takes it away. */
extern void operation_show(OperationKind kind, int64 query_id, int64 batch_id, int64 rows);
/* So much more of what is shown; of something else: it begins with that. */
extern void operation_add(OperationKind kind, int64 query_id, int64 batch_id, int64 rows, int64 bytes);
extern void operation_end(void);

typedef struct OperationStatus
{
	OperationKind kind;
	const char *name;
	int64 query_id;
	int64 batch_id;
	int64 rows;
	int64 bytes;
	int64 started_at; /* TimestampTz */
} OperationStatus;

/* What the process behind that entry is at; false: nothing of ours. */
extern bool operation_read(const PgBackendStatus *backend, OperationStatus *status);

#endif
