/*
 * socket.c: lines from a TCP server, for trying things out. What has been read is kept until its batch commits, and nowhere else:
 * a restart loses lines, which is why such a source says that it is not replayable. A position counts lines: {"n": 12}.
 */
#include "source/source.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include "catalog/pg_foreign_table.h"
#include "commands/defrem.h"
#include "format/format.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/latch.h"
#include "util/clock.h"
#include "util/json_build.h"
#include "util/options.h"
#include "utils/builtins.h"
#include "utils/memutils.h"

#define LOOK_AGAIN_MS 1000
#define READ_SIZE 65536
#define MAX_LINE (64 * 1024 * 1024)
#define HOLD_BYTES (16 * 1024 * 1024) /* of lines no batch has committed yet; more is left to wait in the network */
#define CONNECT_MS 5000

typedef struct SocketOptions
{
	char *host, *format, *timestamp_unit;
	int64 port;
} SocketOptions;

typedef struct SocketReader
{
	SourceReader base;
	int fd;						/* -1: not connected */
	bool at_end;				/* the server closed; it may come back */
	int64 connected_at;			/* monotonic, the last attempt */
	bool placed;				/* the first line has its number */
	MemoryContextCallback closing;
	MemoryContext lines_context;
	StringInfoData partial;		/* what came after the last line end */
	int64 first;				/* number of lines before lines[0] */
	List *lines;				/* StringInfo, oldest first */
	int64 held;					/* bytes of them */
} SocketReader;

static const OptionDef socket_option_defs[] = {
	{"host", OPTION_TEXT, offsetof(SocketOptions, host), 0, 0, NULL},
	{"port", OPTION_INT64, offsetof(SocketOptions, port), 1, 65535, NULL},
	{NULL, 0, 0, 0, 0, NULL}};

static void
socket_parse(SourceDef *def)
{
	SocketOptions *options = palloc0(sizeof(SocketOptions));

	options->host = "127.0.0.1";
	options->format = "text";
	source_parse_options(def, options, &options->format, &options->timestamp_unit);
	if (options->port == 0)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("source %s needs option \"port\"", def->name)));
}

static char *
socket_prepare(const char *name, List *options, const char *columns)
{
	ereport(NOTICE, (errmsg("socket source \"%s\" is not replayable: lines are lost when the server restarts or a batch fails", name),
					 errhint("It is for trying things out. Use a Kafka, file or table source for everything else.")));
	return columns ? pstrdup(columns) : "line pg_catalog.text";
}

/* ---- the connection ---- */

static void
socket_disconnect(void *arg)
{
	SocketReader *reader = arg;

	if (reader->fd >= 0)
		close(reader->fd);
	reader->fd = -1;
}

typedef struct Address
{
	int family, kind, protocol;
	struct sockaddr_storage where;
	socklen_t length;
} Address;

/* In memory that an error frees as well. */
static List *
addresses_find(SocketOptions *options)
{
	struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM}, *found;
	List *addresses = NIL;

	if (getaddrinfo(options->host, psprintf(INT64_FORMAT, options->port), &hints, &found) != 0)
		return NIL;
	for (struct addrinfo *a = found; a != NULL; a = a->ai_next)
	{
		Address *address = palloc(sizeof(Address));

		address->family = a->ai_family;
		address->kind = a->ai_socktype;
		address->protocol = a->ai_protocol;
		address->length = a->ai_addrlen;
		memcpy(&address->where, a->ai_addr, a->ai_addrlen);
		addresses = lappend(addresses, address);
	}
	freeaddrinfo(found);
	return addresses;
}

/* An attempt is under way: waits for its end, with interrupts served. */
static bool
connect_succeeds(int fd)
{
	int64 until = clock_monotonic_us() + CONNECT_MS * INT64CONST(1000), left;
	int error = 0;
	socklen_t length = sizeof(error);

	while ((left = until - clock_monotonic_us()) > 0)
	{
		int events = WaitLatchOrSocket(MyLatch, WL_LATCH_SET | WL_SOCKET_WRITEABLE | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, fd, left / 1000 + 1, PG_WAIT_EXTENSION);

		if (events & WL_LATCH_SET)
			ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
		if (events & WL_SOCKET_WRITEABLE)
			return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) == 0 && error == 0;
	}
	return false;
}

static void
address_try(SocketReader *reader, Address *a)
{
	reader->fd = socket(a->family, a->kind, a->protocol);
	if (reader->fd < 0)
		return;
	if (!pg_set_noblock(reader->fd))
		ereport(ERROR, (errcode_for_socket_access(), errmsg("could not set socket of source %s to nonblocking mode: %m", reader->base.def->name)));
	if (connect(reader->fd, (struct sockaddr *) &a->where, a->length) != 0 && (errno != EINPROGRESS || !connect_succeeds(reader->fd)))
		socket_disconnect(reader);
}

static void
socket_connect(SocketReader *reader)
{
	SocketOptions *options = reader->base.def->options;
	List *addresses = addresses_find(options);
	ListCell *lc;

	foreach (lc, addresses)
		if (reader->fd < 0)
			address_try(reader, lfirst(lc));
	if (reader->fd < 0 && reader->at_end)
		return; /* nobody there again yet */
	reader->at_end = false;
	if (reader->fd < 0)
		ereport(ERROR, (errcode(ERRCODE_CONNECTION_EXCEPTION), errmsg("source %s cannot connect to %s port " INT64_FORMAT, reader->base.def->name,
																	  options->host, options->port)));
}

static void
line_complete(SocketReader *reader)
{
	StringInfo line = makeStringInfo();

	appendBinaryStringInfo(line, reader->partial.data, reader->partial.len);
	if (line->len > 0 && line->data[line->len - 1] == '\r')
		line->data[--line->len] = '\0';
	reader->lines = lappend(reader->lines, line);
	reader->held += line->len;
	resetStringInfo(&reader->partial);
}

/* Takes what has arrived, without waiting, as far as there is room. */
static void
socket_receive(SocketReader *reader)
{
	MemoryContext old;
	char buf[READ_SIZE];
	ssize_t n = -1;

	if (reader->fd < 0 && clock_monotonic_us() - reader->connected_at >= LOOK_AGAIN_MS * INT64CONST(1000))
	{
		socket_connect(reader);
		reader->connected_at = clock_monotonic_us();
	}
	old = MemoryContextSwitchTo(reader->lines_context);
	while (reader->fd >= 0 && reader->held < HOLD_BYTES && (n = recv(reader->fd, buf, sizeof(buf), 0)) != 0)
	{
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			break; /* nothing more for now, or broken: the next look tells */
		for (ssize_t i = 0; i < n; i++)
		{
			if (buf[i] == '\n')
				line_complete(reader);
			else
				appendStringInfoCharMacro(&reader->partial, buf[i]);
		}
		if (reader->partial.len > MAX_LINE)
			ereport(ERROR, (errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED), errmsg("line of source %s is longer than %d bytes", reader->base.def->name, MAX_LINE)));
	}
	if (n == 0)
	{
		if (reader->partial.len > 0)
			line_complete(reader);
		socket_disconnect(reader);
		reader->at_end = true;
	}
	MemoryContextSwitchTo(old);
}

/* ---- positions ---- */

static Position *
socket_initial(SourceReader *reader)
{
	return NULL;
}

static int64
lines_end(SocketReader *reader)
{
	return reader->first + list_length(reader->lines);
}

static Position *
socket_latest(SourceReader *base)
{
	SocketReader *reader = (SocketReader *) base;

	socket_receive(reader);
	return source_position_of(reader->placed ? lines_end(reader) : PG_INT64_MAX);
}

static SourceAdvance
socket_advance(SourceReader *base, Position *from, Position *ceiling, const ReadLimit *limit)
{
	SocketReader *reader = (SocketReader *) base;
	SourceAdvance advance = {NULL, -1, -1, false, NULL};
	int64 start = source_position_n(from), end;

	if (!reader->placed || reader->lines == NIL)
		reader->first = Max(reader->first, start); /* a new connection goes on counting where the log is */
	reader->placed = true;
	socket_receive(reader);
	end = lines_end(reader);
	if (ceiling)
		end = Min(end, source_position_n(ceiling));
	advance.rows_waiting = Max(end - start, 0);
	if (limit->max_rows > 0 && end - start > limit->max_rows)
	{
		end = start + limit->max_rows;
		advance.more = true;
	}
	advance.rows = Max(end - start, 0);
	advance.rows_left = advance.rows_waiting - advance.rows;
	if (end > start)
		advance.end = source_position_of(end);
	return advance;
}

static SourceReader *
socket_open(SourceDef *def)
{
	SocketReader *reader = palloc0(sizeof(SocketReader));

	reader->base.ops = &socket_source;
	reader->base.def = def;
	reader->base.context = CurrentMemoryContext;
	reader->fd = -1;
	reader->lines_context = AllocSetContextCreate(CurrentMemoryContext, "stream_ext socket lines", ALLOCSET_DEFAULT_SIZES);
	reader->partial.data = MemoryContextAlloc(reader->lines_context, 1024);
	reader->partial.maxlen = 1024;
	resetStringInfo(&reader->partial);
	reader->closing.func = socket_disconnect;
	reader->closing.arg = reader;
	MemoryContextRegisterResetCallback(CurrentMemoryContext, &reader->closing);
	return &reader->base;
}

/* ---- scans ---- */

typedef struct SocketScan
{
	int64 next, end;
	Decoder *decoder;
} SocketScan;

static void
socket_scan_rewind(SourceScan *scan)
{
	SocketScan *state = scan->state;
	SocketReader *reader = (SocketReader *) scan->reader;

	state->next = source_position_n(scan->from);
	if (state->next < reader->first)
	{
		ereport(WARNING, (errcode(ERRCODE_DATA_EXCEPTION),
						  errmsg("lines " INT64_FORMAT " to " INT64_FORMAT " of socket source %s are lost", state->next + 1,
								 Min(reader->first, state->end), scan->reader->def->name)));
		state->next = reader->first;
	}
}

static Decoder *
decoder_open(SourceScan *scan)
{
	SourceDef *def = scan->reader->def;
	SocketOptions *options = def->options;
	const DecoderOps *format = format_lookup(options->format);
	DecoderConfig config = {.desc = def->desc, .paths = def->paths, .needed = scan->needed, .timestamp_unit = timestamp_unit_named(options->timestamp_unit),
							.null_on_error = def->on_bad_row == BAD_ROW_NULL};

	return format->open(&config);
}

static void
socket_scan_begin(SourceScan *scan)
{
	SocketScan *state = palloc0(sizeof(SocketScan));

	if (scan->batch == NULL)
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						errmsg("socket source %s can only be read by a streaming query", scan->reader->def->name)));
	state->decoder = decoder_open(scan);
	state->end = source_position_n(scan->to);
	scan->state = state;
	socket_scan_rewind(scan);
}

static bool
socket_scan_again(SourceScan *scan, const SourceLetter *letter, TupleTableSlot *slot)
{
	Decoder *decoder = scan->again;
	DecodeError error;

	if (decoder == NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(scan->context);

		scan->again = decoder = decoder_open(scan);
		MemoryContextSwitchTo(old);
	}
	if (decoder->ops->decode(decoder, letter->raw ? letter->raw : "", letter->raw_len, slot->tts_values, slot->tts_isnull, &error))
		return true;
	source_bad_row(scan, letter->position, letter->raw, letter->raw_len, error.sqlstate, error.message);
	return false;
}

static bool
socket_scan_next(SourceScan *scan, TupleTableSlot *slot)
{
	SocketReader *reader = (SocketReader *) scan->reader;
	SocketScan *state = scan->state;

	while (state->next < state->end && state->next < lines_end(reader))
	{
		StringInfo line = list_nth(reader->lines, state->next++ - reader->first);
		JsonBuild b = {NULL, NULL};
		DecodeError error;

		memset(slot->tts_isnull, true, slot->tts_tupleDescriptor->natts * sizeof(bool));
		if (state->decoder->ops->decode(state->decoder, line->data, line->len, slot->tts_values, slot->tts_isnull, &error))
			return true;
		json_object_begin(&b, NULL);
		json_add_int(&b, "line", state->next);
		json_object_end(&b);
		source_bad_row(scan, json_result(&b), line->data, line->len, error.sqlstate, error.message);
	}
	return false;
}

static void
socket_scan_end(SourceScan *scan)
{
}

static void
socket_acknowledge(SourceReader *base, Position *upto)
{
	SocketReader *reader = (SocketReader *) base;
	int n = Min(Max(source_position_n(upto) - reader->first, 0), list_length(reader->lines));

	for (int i = 0; i < n; i++)
	{
		StringInfo line = list_nth(reader->lines, i);

		reader->held -= line->len;
		pfree(line->data);
		pfree(line);
	}
	reader->lines = list_delete_first_n(reader->lines, n);
	reader->first += n;
}

static pgsocket
socket_wake_socket(SourceReader *base)
{
	SocketReader *reader = (SocketReader *) base;

	return reader->fd >= 0 && reader->held < HOLD_BYTES ? reader->fd : PGINVALID_SOCKET;
}

static int
socket_look_again_ms(SourceReader *base)
{
	return LOOK_AGAIN_MS;
}

static void
socket_close(SourceReader *reader)
{
	socket_disconnect(reader);
}

const SourceOps socket_source = {
	.kind = "socket",
	.server = "stream_socket",
	.forgets = true,
	.options = socket_option_defs,
	.options_size = sizeof(SocketOptions),
	.prepare = socket_prepare,
	.parse = socket_parse,
	.open = socket_open,
	.initial = socket_initial,
	.latest = socket_latest,
	.advance = socket_advance,
	.scan_begin = socket_scan_begin,
	.scan_next = socket_scan_next,
	.scan_rewind = socket_scan_rewind,
	.scan_end = socket_scan_end,
	.scan_again = socket_scan_again,
	.acknowledge = socket_acknowledge,
	.wake_socket = socket_wake_socket,
	.look_again_ms = socket_look_again_ms,
	.close = socket_close,
};
