/* process.h: background processes of ours, as the postmaster wants them described. */
#ifndef STREAM_UTIL_PROCESS_H
#define STREAM_UTIL_PROCESS_H

#include "postgres.h"
#include "postmaster/bgworker.h"

/*
 * A process of this library that connects to a database, waits for the end of recovery, and is not started again. What is its own (argument, extra, whom to
 * tell) is for the caller to add. name: printf-like.
 */
extern void process_describe(BackgroundWorker *worker, const char *function, const char *type, const char *name, ...) pg_attribute_printf(4, 5);

/* Connects, with the settings our work needs whatever the database or the role has: it writes, and no clock ends its transactions. */
extern void process_connect(Oid database, Oid role);
extern void process_set(const char *name, const char *value);

#endif
