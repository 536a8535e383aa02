/*
 * message.c: orders, counters and dead letters as bytes. Both ends are the same library in the same server, so structs travel as they are.
 */
#include "task/message.h"

#include "metadata/dead_letter.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

void
message_begin(StringInfo message, MessageKind kind)
{
	char head[sizeof(uint64)] = {(char) kind};

	resetStringInfo(message);
	appendBinaryStringInfo(message, head, sizeof(head));
}

void
message_put(StringInfo message, const void *bytes, Size length)
{
	appendBinaryStringInfo(message, bytes, length);
}

void
message_put_sized(StringInfo message, const void *bytes, Size length)
{
	bytes_put_varint(message, length);
	message_put(message, bytes, length);
}

void
message_put_text(StringInfo message, const char *text)
{
	appendStringInfoChar(message, text != NULL);
	if (text)
		message_put_sized(message, text, strlen(text) + 1);
}

void
message_get(ByteReader *reader, void *bytes, Size length)
{
	memcpy(bytes, bytes_get(reader, length), length);
}

void *
message_get_sized(ByteReader *reader, Size *length)
{
	Size size = bytes_get_varint(reader);
	void *copy = palloc(Max(size, 1));

	message_get(reader, copy, size);
	if (length)
		*length = size;
	return copy;
}

char *
message_get_text(ByteReader *reader)
{
	return *bytes_get(reader, 1) ? message_get_sized(reader, NULL) : NULL;
}

/* ---- orders ---- */

static void
source_write(StringInfo message, const SourceBatch *batch)
{
	const SourceDef *def = batch->reader->def;
	OrderSource source = {.relid = def->relid,
						  .event_time = def->event_time,
						  .watermark_delay = def->watermark_delay,
						  .observe = !batch->observer_taken,
						  .max_bad_rows = batch->max_bad_rows,
						  .max_event_time = batch->max_event_time,
						  .from_start = batch->from == NULL,
						  .nothing = batch->to == NULL};

	message_put(message, &source, sizeof(source));
	if (batch->from)
		message_put_sized(message, batch->from, VARSIZE(batch->from));
	if (batch->to)
		message_put_sized(message, batch->to, VARSIZE(batch->to));
}

static void
snapshot_write(StringInfo message)
{
	Size size = EstimateSnapshotSpace(GetActiveSnapshot());
	char *bytes = palloc(size);

	SerializeSnapshot(GetActiveSnapshot(), bytes);
	message_put_sized(message, bytes, size);
	pfree(bytes);
}

void
order_write(StringInfo message, const OrderHead *head, Jsonb *settings, List *batches)
{
	ListCell *lc;

	message_begin(message, MESSAGE_ORDER);
	message_put(message, head, sizeof(*head));
	message_put_text(message, head->info.query_name);
	message_put_sized(message, settings, VARSIZE(settings));
	snapshot_write(message);
	foreach (lc, batches)
		source_write(message, lfirst(lc));
}

/* ---- counters ---- */

void
counts_write(StringInfo message, List *batches)
{
	ListCell *lc;

	foreach (lc, batches)
	{
		SourceBatch *batch = lfirst(lc);

		message_put(message, batch, sizeof(*batch));
		message_put(message, batch->lane_max, sizeof(TimestampTz) * batch->nlanes);
	}
}

void
counts_take(ByteReader *reader, List *batches)
{
	ListCell *lc;

	foreach (lc, batches)
	{
		SourceBatch *batch = lfirst(lc), share;

		message_get(reader, &share, sizeof(share));
		share.lane_max = palloc(sizeof(TimestampTz) * Max(share.nlanes, 1));
		message_get(reader, share.lane_max, sizeof(TimestampTz) * share.nlanes);
		source_observe_share(batch, &share);
		pfree(share.lane_max);
		if (share.rows_bad > 0)
			source_check_bad_rows(batch, NULL, ERRCODE_DATA_EXCEPTION, "one of several tasks' shares");
	}
}

/* ---- dead letters ---- */

void
letter_write(StringInfo message, const char *source, const char *reason, Jsonb *position, const char *raw, Size raw_len, const char *error)
{
	message_begin(message, MESSAGE_LETTER);
	message_put_text(message, source);
	message_put_text(message, reason);
	message_put_text(message, error);
	appendStringInfoChar(message, position != NULL);
	if (position)
		message_put_sized(message, position, VARSIZE(position));
	appendStringInfoChar(message, raw != NULL);
	if (raw)
		message_put_sized(message, raw, raw_len);
}

void
letter_take(ByteReader *reader, const BatchInfo *info)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "stream_ext letter", ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	char *source = message_get_text(reader), *reason = message_get_text(reader), *error = message_get_text(reader);
	Jsonb *position = *bytes_get(reader, 1) ? message_get_sized(reader, NULL) : NULL;
	Size raw_len = 0;
	char *raw = *bytes_get(reader, 1) ? message_get_sized(reader, &raw_len) : NULL;

	dead_letter_add(info, source, reason, position, raw, raw_len, error);
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
}
