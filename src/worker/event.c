/*
 * event.c: events of a query for listeners.
 * NOTIFY takes a global lock at commit and halves the throughput of small batches, so progress is noted here and sent once a second,
 * in a transaction of its own that does not wait for the disk.
 */
#include "worker/event.h"

#include "access/xact.h"
#include "commands/async.h"
#include "util/clock.h"
#include "util/notify.h"
#include "utils/guc.h"

#define EVENT_INTERVAL_US INT64CONST(1000000)

static int64 last_sent = 0;			/* monotonic */
static bool progress_noted = false;
static bool idle_noted = false;
static bool unreadable_noted = false, readable_noted = false;
static int64 noted_batch = -1;

/* An event that finds no room is lost: a query does not fail for those who listen and do not hear. The server's log says that the queue fills. */
void
event_notify(int64 query_id, const char *event, int64 batch_id)
{
	if (notify_queue_is_full())
		return;
	Async_Notify("stream_events", psprintf("{\"query_id\": " INT64_FORMAT ", \"event\": \"%s\", \"batch_id\": %s}", query_id, event,
										   batch_id < 0 ? "null" : psprintf(INT64_FORMAT, batch_id)));
}

void
event_note_progress(int64 batch_id)
{
	progress_noted = true;
	idle_noted = false;
	noted_batch = batch_id;
}

void
event_note_idle(int64 batch_id)
{
	idle_noted = true;
	noted_batch = batch_id;
}

void
event_note_rows(bool unreadable, bool readable, int64 batch_id)
{
	unreadable_noted |= unreadable;
	readable_noted |= readable;
	noted_batch = batch_id;
	last_sent = 0; /* rare, and each counts: the next batch may be the end of it */
}

int64
event_send_due(int64 query_id)
{
	int64 now;

	if (!progress_noted && !idle_noted && !unreadable_noted && !readable_noted)
		return -1;
	now = clock_monotonic_us();
	if (last_sent != 0 && now - last_sent < EVENT_INTERVAL_US)
		return last_sent + EVENT_INTERVAL_US - now;
	last_sent = now;
	StartTransactionCommand();
	if (progress_noted)
		event_notify(query_id, "progress", noted_batch);
	if (idle_noted)
		event_notify(query_id, "idle", noted_batch);
	if (unreadable_noted)
		event_notify(query_id, "unreadable", noted_batch);
	if (readable_noted)
		event_notify(query_id, "readable", noted_batch);
	progress_noted = idle_noted = unreadable_noted = readable_noted = false;
	(void) set_config_option("synchronous_commit", "off", PGC_USERSET, PGC_S_SESSION, GUC_ACTION_LOCAL, true, 0, false);
	CommitTransactionCommand();
	return -1;
}
