/* event.h: NOTIFY on channel stream_events: {"query_id": 1, "event": "progress", "batch_id": 7}. */
#ifndef STREAM_WORKER_EVENT_H
#define STREAM_WORKER_EVENT_H

#include "postgres.h"

/* In the current transaction. batch_id -1: null. event: start, progress, idle, unreadable, readable, termination. */
extern void event_notify(int64 query_id, const char *event, int64 batch_id);

/* The worker's own progress and idle events: at most one transaction a second, the last state is never lost. */
extern void event_note_progress(int64 batch_id);
extern void event_note_idle(int64 batch_id);
/* Sources have become unreadable, or readable again: sent at the next look. */
extern void event_note_rows(bool unreadable, bool readable, int64 batch_id);
/* Sends what is due. Microseconds until something is, -1: nothing waits. */
extern int64 event_send_due(int64 query_id);

#endif
