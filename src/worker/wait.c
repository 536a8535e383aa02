/*
 * wait.c: a worker between triggers. Latch (commits, requests) + the sources' sockets + the postmaster + one timeout.
 * A latch may have been reset by whoever slept in between: what woke us is read from flags (wakeup_take), the latch only ends the sleep.
 */
#include "worker/wait.h"

#include "miscadmin.h"
#include "pgstat.h"
#include "storage/latch.h"
#include "util/clock.h"
#include "util/compat.h"
#include "util/wakeup.h"
#include "worker/status.h"

int64
wait_sooner(int64 a, int64 b)
{
	return a < 0 ? b : (b < 0 ? a : Min(a, b));
}

int64
wait_limit(QueryRuntime *rt, int64 last_trigger_mono)
{
	int64 now = clock_monotonic_us();
	TimestampTz due = batch_next_due(rt);
	int64 limit = -1;
	ListCell *cell;

	if (due != DT_NOEND)
		limit = due > clock_now() ? due - clock_now() : 0; /* due may be as early as there is: nothing to subtract from */
	foreach (cell, rt->readers)
	{
		SourceReader *reader = lfirst(cell);
		int again = reader->ops->look_again_ms ? reader->ops->look_again_ms(reader) : -1;

		if (again >= 0)
			limit = wait_sooner(limit, Max(last_trigger_mono + again * INT64CONST(1000) - now, 0));
	}
	return limit;
}

static long
timeout_ms(int64 timeout_us)
{
	/* An hour at most: a wall clock may step while we sleep. */
	return timeout_us < 0 ? -1 : (long) Min((timeout_us + 999) / 1000, INT64CONST(3600000));
}

/* True: a descriptor became readable. */
static bool
sleep_on_sockets(QueryRuntime *rt, int64 timeout_us)
{
	WaitEventSet *set = compat_wait_set(2 + list_length(rt->readers));
	WaitEvent event;
	bool readable;
	ListCell *cell;

	AddWaitEventToSet(set, WL_LATCH_SET, PGINVALID_SOCKET, MyLatch, NULL);
	AddWaitEventToSet(set, WL_EXIT_ON_PM_DEATH, PGINVALID_SOCKET, NULL, NULL);
	foreach (cell, rt->readers)
	{
		SourceReader *reader = lfirst(cell);
		pgsocket socket = reader->ops->wake_socket ? reader->ops->wake_socket(reader) : PGINVALID_SOCKET;

		if (socket != PGINVALID_SOCKET)
			AddWaitEventToSet(set, WL_SOCKET_READABLE, socket, NULL, NULL);
	}
	readable = WaitEventSetWait(set, timeout_ms(timeout_us), &event, 1, PG_WAIT_EXTENSION) > 0 && (event.events & WL_SOCKET_READABLE);
	FreeWaitEventSet(set);
	return readable;
}

static bool
sockets_have_news(QueryRuntime *rt)
{
	bool news = false;
	ListCell *cell;

	foreach (cell, rt->readers)
	{
		SourceReader *reader = lfirst(cell);

		if (reader->ops->wake_socket && (reader->ops->has_news == NULL || reader->ops->has_news(reader)))
			news = true; /* ask the others as well: asking may drain their descriptors */
	}
	return news;
}

bool
wait_for_news(QueryRuntime *rt, int64 timeout_us)
{
	bool readable;

	if (wakeup_take())
		return true;
	pgstat_report_activity(STATE_IDLE, NULL);
	readable = sleep_on_sockets(rt, timeout_us);
	ResetLatch(MyLatch);
	return wakeup_take() || (readable && sockets_have_news(rt));
}

void
wait_for_time(int64 timeout_us)
{
	int64 until = clock_monotonic_us() + timeout_us;

	pgstat_report_activity(STATE_IDLE, NULL);
	for (;;)
	{
		int64 left = until - clock_monotonic_us();

		if (left <= 0 || status_stop_requested())
			return;
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, timeout_ms(left), PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
}
