/*
 * failure.c: what an error means for a query: class, back-off, text, log lines.
 * Error of a batch → transient? → delay → one line in the log, or a count of those left out.
 */
#include "worker/failure.h"

#include "common/pg_prng.h"
#include "lib/stringinfo.h"
#include "mb/pg_wchar.h"
#include "util/clock.h"

#define FIRST_DELAY_US (100 * INT64CONST(1000))
#define LAST_DELAY_US (60 * INT64CONST(1000000))
#define CRASH_FLOOR_US INT64CONST(1000000)
#define CRASH_LAST_US (300 * INT64CONST(1000000))

bool
failure_is_transient(int sqlstate)
{
	switch (ERRCODE_TO_CATEGORY(sqlstate))
	{
		case MAKE_SQLSTATE('0', '8', '0', '0', '0'): /* connection exception: broker or server away */
		case MAKE_SQLSTATE('4', '0', '0', '0', '0'): /* transaction rollback: deadlock, serialization */
		case MAKE_SQLSTATE('5', '3', '0', '0', '0'): /* insufficient resources */
			return true;
		default:
			break;
	}
	switch (sqlstate)
	{
		case ERRCODE_LOCK_NOT_AVAILABLE:
		case ERRCODE_QUERY_CANCELED: /* by a timeout or by hand */
		case ERRCODE_ADMIN_SHUTDOWN:
		case ERRCODE_CRASH_SHUTDOWN:
		case ERRCODE_CANNOT_CONNECT_NOW:
		case ERRCODE_IO_ERROR:
		case ERRCODE_FDW_TABLE_NOT_FOUND: /* a topic that nobody has made yet */
		case ERRCODE_OBJECT_IN_USE: /* somebody runs the query in the foreground */
			return true;
		default:
			return false;
	}
}

static int64
jittered(int64 delay)
{
	return (int64) (delay * (0.75 + 0.5 * pg_prng_double(&pg_global_prng_state)));
}

int64
failure_delay_us(int failures)
{
	int64 delay = FIRST_DELAY_US;

	for (int i = 1; i < failures && delay < LAST_DELAY_US; i++)
		delay *= 2;
	return jittered(Min(delay, LAST_DELAY_US));
}

/* Whoever is killed once may be innocent. A query that takes its process down each time may take the whole server with it: let the others work in between. */
int64
failure_crash_delay_us(int failures)
{
	int64 delay = CRASH_FLOOR_US;

	if (failures <= 1)
		return failure_delay_us(failures);
	for (int i = 2; i < failures && delay < CRASH_LAST_US; i++)
		delay *= 2;
	return jittered(Min(delay, CRASH_LAST_US));
}

/* The parts stand on lines of their own; a message with such a line inside is cut short in await_termination, no more. */
static const char *const part_marks[] = {"\nDETAIL:  ", "\nHINT:  ", "\nCONTEXT:  "};

/* A function may raise whatever it likes, and every attempt's error is kept. */
#define PART_BYTES 8192

static const char *
clipped(const char *text, int bytes)
{
	int length = strlen(text);

	return length <= bytes ? text : psprintf("%.*s …", pg_mbcliplen(text, length, bytes), text);
}

char *
failure_text(const ErrorData *error)
{
	const char *parts[] = {error->detail, error->hint, error->context};
	StringInfoData text;

	initStringInfo(&text);
	appendStringInfoString(&text, clipped(error->message ? error->message : "unknown error", PART_BYTES));
	for (int i = 0; i < lengthof(parts); i++)
	{
		if (parts[i])
			appendStringInfo(&text, "%s%s", part_marks[i], clipped(parts[i], PART_BYTES));
	}
	return text.data;
}

static const char *
message_end(const char *text)
{
	const char *end = text + strlen(text);

	for (int i = 0; i < lengthof(part_marks); i++)
	{
		const char *mark = strstr(text, part_marks[i]);

		if (mark && mark < end)
			end = mark;
	}
	return end;
}

char *
failure_message(const char *text)
{
	return pnstrdup(text, message_end(text) - text);
}

char *
failure_rest(const char *text)
{
	const char *end = message_end(text);

	return *end ? pstrdup(end + 1) : NULL;
}

/* ---- log ---- */

#define LINES_PER_MINUTE 6 /* the others are for the last word */
#define MESSAGE_LINES 3
#define MESSAGE_BYTES 1000

static int
count_lines(const char *text)
{
	int lines = 1;

	while (text && (text = strchr(text, '\n')) != NULL)
	{
		lines++;
		text++;
	}
	return lines;
}

/* The beginning of it, as long as the log should have it. */
static char *
message_head(const char *message)
{
	const char *end = message;

	for (int i = 0; i < MESSAGE_LINES && (end = strchr(end, '\n')) != NULL; i++)
		end++;
	return (char *) clipped(message, end ? Min(end - message - 1, MESSAGE_BYTES) : MESSAGE_BYTES);
}

void
failure_log(const char *query_name, const ErrorData *error, int failures, int64 delay_us, bool final)
{
	static int64 minute_began = 0;
	static int lines = 0;
	static int left_out = 0;
	int64 now = clock_monotonic_us();
	char *message = message_head(failure_message(failure_text(error)));
	bool with_context = failures == 1 && error->context && count_lines(error->context) <= 4;

	if (minute_began == 0 || now - minute_began > 60 * INT64CONST(1000000))
	{
		minute_began = now;
		lines = 0;
	}
	if (!final && lines + count_lines(message) > LINES_PER_MINUTE)
	{
		left_out++;
		return;
	}
	lines += count_lines(message) + (with_context ? count_lines(error->context) : 0);
	if (final)
		ereport(LOG, (errcode(error->sqlerrcode), errmsg("streaming query \"%s\" failed for good after %d attempts: %s: %s", query_name,
														 failures, unpack_sql_state(error->sqlerrcode), message),
					  errhidestmt(true), errhidecontext(true)));
	else
		ereport(LOG, (errcode(error->sqlerrcode),
					  errmsg("streaming query \"%s\" failed, next attempt in " INT64_FORMAT " ms: %s: %s%s", query_name, delay_us / 1000,
							 unpack_sql_state(error->sqlerrcode), message,
							 left_out ? psprintf(" (%d failures not logged)", left_out) : ""),
					  with_context ? errcontext("%s", error->context) : 0, errhidestmt(true)));
	left_out = 0;
}
