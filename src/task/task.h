/*
 * task.h: long-lived helper processes of one query's run: they read shares of a batch, and what they make of it goes through shared memory to the only
 * writer, the process that runs the query. Option parallelism. Results never depend on tasks: without any of them the batch runs all the same.
 *
 *   scan   a task fetches and decodes its share; its rows come to the writer in the order in which it would have read them itself
 *   fold   a task runs the stage as well, and folds its rows into groups; their transition values come
 */
#ifndef STREAM_TASK_TASK_H
#define STREAM_TASK_TASK_H

#include "postgres.h"
#include "metadata/query.h"
#include "nodes/plannodes.h"
#include "operator/operator.h"
#include "source/source.h"
#include "util/compat.h"

typedef struct TaskPool TaskPool;

/* Setting stream_ext.task_rows: batches of fewer rows are not worth their messages. */
extern int stream_task_rows;

/* ---- pool.c ---- */

/* As many tasks as the query wants and the server has room for, in a context of their own below CurrentMemoryContext; NULL: none. */
extern TaskPool *task_pool_open(StreamQuery *query);
/* Ends them. Also done when the pool's context goes, and when this process ends. */
extern void task_pool_close(TaskPool *pool);

/* ---- scan.c ---- */

/* The batch's rows of this source are read by tasks, whoever scans it. info lives as long as the batch. */
extern void task_scan_attach(TaskPool *pool, SourceBatch *batch);

/* ---- fold.c ---- */

/* Has the tasks run the plan of a stage over these sources' ranges (SourceBatch), and takes the groups they fold its rows into; how many came. */
extern int64 task_fold(TaskPool *pool, List *batches, PlannedStmt *planned, Operator *op);

/* ---- process.c ---- */
extern PGDLLEXPORT void stream_task_main(Datum arg) pg_attribute_noreturn();

#endif
