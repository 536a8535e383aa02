/*
 * changelog.c: state as rows of stream.state_change and stream.state_snapshot.
 * Entries are packed into chunks of about a page and read back in batch order through the primary key.
 * Everything happens in the caller's transaction: the batch that fails takes its changes with it.
 */
#include "state/changelog.h"

#include "access/detoast.h"
#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/indexing.h"
#include "state/codec.h"
#include "state/cursor.h"
#include "state/rows.h"
#include "state/store.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "util/heap.h"

#define CHUNK_TARGET 7900 /* with the other columns just under toast_tuple_target of the tables */
#define CHUNK_HEADER 2

#define ENTRY_REMOVED 0x01
#define ENTRY_EXPIRES 0x02

/* ---- writing ---- */

struct ChunkWriter
{
	StateId id;
	int64 batch_id;
	int chunk;
	int64 bytes;
	bool wrote;
	Relation relation;
	CatalogIndexState indexes;
	Datum name;
	StringInfoData data; /* room for the varlena header, the chunk header, then entries */
};

static void
writer_start_chunk(ChunkWriter *writer)
{
	resetStringInfo(&writer->data);
	appendStringInfoSpaces(&writer->data, VARHDRSZ);
	appendStringInfoChar(&writer->data, STATE_FORMAT);
	appendStringInfoChar(&writer->data, PG_VERSION_NUM / 10000);
}

ChunkWriter *
chunk_writer_begin(const char *table, const StateId *id, int64 batch_id, int first_chunk)
{
	ChunkWriter *writer = palloc0(sizeof(ChunkWriter));

	writer->id = *id;
	writer->batch_id = batch_id;
	writer->chunk = first_chunk;
	writer->relation = heap_open(table, RowExclusiveLock);
	writer->indexes = CatalogOpenIndexes(writer->relation);
	writer->name = CStringGetTextDatum(id->state_name);
	initStringInfo(&writer->data);
	enlargeStringInfo(&writer->data, BLCKSZ);
	writer_start_chunk(writer);
	return writer;
}

static void
writer_write_chunk(ChunkWriter *writer)
{
	Datum values[] = {Int64GetDatum(writer->id.query_id), Int32GetDatum(writer->id.operator_id), writer->name,
					  Int64GetDatum(writer->batch_id),	  Int32GetDatum(writer->chunk),			 PointerGetDatum(writer->data.data)};
	bool nulls[lengthof(values)] = {false};
	HeapTuple tuple;

	SET_VARSIZE(writer->data.data, writer->data.len);
	tuple = heap_form_tuple(RelationGetDescr(writer->relation), values, nulls);
	CatalogTupleInsertWithInfo(writer->relation, tuple, writer->indexes);
	heap_freetuple(tuple);
	writer->bytes += writer->data.len;
	writer->chunk++;
	writer->wrote = true;
	writer_start_chunk(writer);
}

void
chunk_writer_add(ChunkWriter *writer, const PackedEntry *entry)
{
	StringInfo data = &writer->data;
	bool expires = !entry->removed && entry->expires != DT_NOEND;
	Size size = entry->key_length + entry->value_length + 24;

	if (data->len > VARHDRSZ + CHUNK_HEADER && data->len + size > CHUNK_TARGET)
		writer_write_chunk(writer);
	if (size > MaxAllocSize - BLCKSZ)
		ereport(ERROR, (errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
						errmsg("one entry of state \"%s\" of operator %d takes %zu bytes, more than can be stored",
							   writer->id.state_name, writer->id.operator_id, size),
						errhint("Group by more keys, use smaller windows, or aggregate into something smaller.")));
	appendStringInfoChar(data, (entry->removed ? ENTRY_REMOVED : 0) | (expires ? ENTRY_EXPIRES : 0));
	bytes_put_varint(data, entry->key_length);
	appendBinaryStringInfo(data, entry->key, entry->key_length);
	if (expires)
		appendBinaryStringInfo(data, (const char *) &entry->expires, sizeof(TimestampTz));
	if (!entry->removed)
	{
		bytes_put_varint(data, entry->value_length);
		appendBinaryStringInfo(data, entry->value, entry->value_length);
	}
}

int
chunk_writer_end(ChunkWriter *writer, bool even_empty, int64 *bytes)
{
	int next;

	if (writer->data.len > VARHDRSZ + CHUNK_HEADER || (even_empty && !writer->wrote))
		writer_write_chunk(writer);
	next = writer->chunk;
	*bytes += writer->bytes;
	CatalogCloseIndexes(writer->indexes);
	table_close(writer->relation, NoLock);
	pfree(writer->data.data);
	pfree(DatumGetPointer(writer->name));
	pfree(writer);
	CommandCounterIncrement();
	return next;
}

/* ---- reading entries ---- */

ChunkScan *
chunk_scan_begin(const char *table, const StateId *id, int64 from_batch, int64 to_batch)
{
	ChunkScan *scan = palloc0(sizeof(ChunkScan));

	scan->batch_id = -1;
	scan->cursor = cursor_over_batches(table, id, from_batch, to_batch, ForwardScanDirection, AccessShareLock);
	return scan;
}

static void
chunk_check_header(ByteReader *reader)
{
	const char *header = bytes_get(reader, CHUNK_HEADER);

	codec_check_version(header[0], header[1]);
}

static bool
chunk_scan_next_chunk(ChunkScan *scan)
{
	struct varlena *data;
	Datum stored;
	ByteReader reader;

	if (scan->detoasted)
		pfree(scan->detoasted);
	scan->detoasted = NULL;
	if (!cursor_next(scan->cursor))
		return false;
	scan->batch_id = DatumGetInt64(cursor_column(scan->cursor, COLUMN_BATCH));
	scan->chunk = DatumGetInt32(cursor_column(scan->cursor, COLUMN_CHUNK));
	stored = cursor_column(scan->cursor, COLUMN_DATA);
	data = PG_DETOAST_DATUM_PACKED(stored);
	if (data != (struct varlena *) DatumGetPointer(stored))
		scan->detoasted = data;
	reader.at = VARDATA_ANY(data);
	reader.end = reader.at + VARSIZE_ANY_EXHDR(data);
	scan->bytes += VARSIZE_ANY(data);
	chunk_check_header(&reader);
	scan->at = reader.at;
	scan->end = reader.end;
	return true;
}

bool
chunk_scan_next(ChunkScan *scan, PackedEntry *entry)
{
	ByteReader reader;
	int flags;

	while (scan->at == scan->end)
	{
		if (!chunk_scan_next_chunk(scan))
			return false;
	}
	reader.at = scan->at;
	reader.end = scan->end;
	flags = *bytes_get(&reader, 1);
	entry->removed = (flags & ENTRY_REMOVED) != 0;
	entry->key_length = bytes_get_varint(&reader);
	entry->key = bytes_get(&reader, entry->key_length);
	entry->expires = DT_NOEND;
	if (flags & ENTRY_EXPIRES)
		memcpy(&entry->expires, bytes_get(&reader, sizeof(TimestampTz)), sizeof(TimestampTz));
	entry->value = NULL;
	entry->value_length = 0;
	if (!entry->removed)
	{
		entry->value_length = bytes_get_varint(&reader);
		entry->value = bytes_get(&reader, entry->value_length);
	}
	scan->at = reader.at;
	return true;
}

void
chunk_scan_end(ChunkScan *scan)
{
	cursor_end(scan->cursor);
	pfree(scan);
}

/* ---- questions and deletions ---- */

static int64
edge_batch(const char *table, const StateId *id, int64 from_batch, int64 to_batch, ScanDirection direction)
{
	ChunkCursor *cursor = cursor_over_batches(table, id, from_batch, to_batch, direction, AccessShareLock);
	int64 batch_id = cursor_next(cursor) ? DatumGetInt64(cursor_column(cursor, COLUMN_BATCH)) : -1;

	cursor_end(cursor);
	return batch_id;
}

int64
chunk_first_batch(const char *table, const StateId *id, int64 from_batch, int64 to_batch)
{
	return edge_batch(table, id, from_batch, to_batch, ForwardScanDirection);
}

int64
chunk_last_batch(const char *table, const StateId *id, int64 from_batch, int64 to_batch)
{
	return edge_batch(table, id, from_batch, to_batch, BackwardScanDirection);
}

int
chunk_next_number(const char *table, const StateId *id, int64 batch_id)
{
	ChunkCursor *cursor = cursor_over_batches(table, id, batch_id, batch_id, BackwardScanDirection, AccessShareLock);
	int next = cursor_next(cursor) ? DatumGetInt32(cursor_column(cursor, COLUMN_CHUNK)) + 1 : 0;

	cursor_end(cursor);
	return next;
}

int64
snapshot_newest(const StateId *id, int64 upto_batch)
{
	return chunk_last_batch(STATE_SNAPSHOT, id, 0, upto_batch);
}

/*
 * Purging always deletes the changes up to the oldest base kept (a snapshot, or an entry of the sizes); so where both are there, nothing was purged.
 */
int64
state_oldest(const StateId *id)
{
	bool rows = OidIsValid(rows_relation(id->query_id));
	int64 base = chunk_first_batch(rows ? STATE_SIZE : STATE_SNAPSHOT, id, 0, PG_INT64_MAX);

	if (base < 0 || chunk_first_batch(rows ? STATE_UNDO : STATE_CHANGE, id, 0, base) >= 0)
		return 0;
	return base;
}

void
state_check_retained(const StateId *id, int64 batch_id)
{
	int64 oldest = state_oldest(id);

	if (batch_id < oldest)
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("state as of batch %lld is no longer retained", (long long) batch_id),
						errdetail("The oldest batch state \"%s\" of operator %d can be read as of is %lld.", id->state_name,
								  id->operator_id, (long long) oldest),
						errhint("The option min_batches_to_retain says how far back state is kept.")));
}

int64
chunk_bytes(const char *table, const StateId *id, int64 from_batch, int64 to_batch)
{
	ChunkCursor *cursor = cursor_over_batches(table, id, from_batch, to_batch, ForwardScanDirection, AccessShareLock);
	int64 bytes = 0;

	while (cursor_next(cursor))
		bytes += toast_raw_datum_size(cursor_column(cursor, COLUMN_DATA));
	cursor_end(cursor);
	return bytes;
}

int64
chunk_delete(const char *table, const StateId *id, int64 from_batch, int64 to_batch)
{
	ChunkCursor *cursor = cursor_over_batches(table, id, from_batch, to_batch, ForwardScanDirection, RowExclusiveLock);
	int64 rows = 0;

	while (cursor_next(cursor))
	{
		simple_heap_delete(cursor->table, &cursor->slot->tts_tid);
		rows++;
	}
	cursor_end(cursor);
	if (rows > 0)
		CommandCounterIncrement();
	return rows;
}

/* The first state of the table after (operator, name); NULL at the end. Skips from state to state through the index. */
static StateId *
state_id_after(const char *table, int64 query_id, const StateId *after)
{
	CursorKey keys[] = {{COLUMN_QUERY, BTEqualStrategyNumber, Int64GetDatum(query_id)},
						{COLUMN_OPERATOR, BTGreaterStrategyNumber, Int32GetDatum(after ? after->operator_id : -1)}};
	CursorKey same_operator[] = {{COLUMN_QUERY, BTEqualStrategyNumber, Int64GetDatum(query_id)},
								 {COLUMN_OPERATOR, BTEqualStrategyNumber, Int32GetDatum(after ? after->operator_id : -1)},
								 {COLUMN_NAME, BTGreaterStrategyNumber, CStringGetTextDatum(after ? after->state_name : "")}};
	StateId *id = NULL;

	for (int attempt = after ? 0 : 1; attempt < 2 && id == NULL; attempt++)
	{
		ChunkCursor *cursor = attempt == 0
								  ? cursor_begin(table, same_operator, lengthof(same_operator), ForwardScanDirection, AccessShareLock, NULL)
								  : cursor_begin(table, keys, lengthof(keys), ForwardScanDirection, AccessShareLock, NULL);

		if (cursor_next(cursor))
		{
			id = palloc0(sizeof(StateId));
			id->query_id = query_id;
			id->operator_id = DatumGetInt32(cursor_column(cursor, COLUMN_OPERATOR));
			id->state_name = TextDatumGetCString(cursor_column(cursor, COLUMN_NAME));
		}
		cursor_end(cursor);
	}
	return id;
}

static bool
state_id_known(List *ids, const StateId *id)
{
	ListCell *cell;

	foreach (cell, ids)
	{
		StateId *known = lfirst(cell);

		if (known->operator_id == id->operator_id && strcmp(known->state_name, id->state_name) == 0)
			return true;
	}
	return false;
}

static int
state_id_compare(const ListCell *left, const ListCell *right)
{
	const StateId *a = lfirst(left), *b = lfirst(right);

	return a->operator_id != b->operator_id ? (a->operator_id > b->operator_id ? 1 : -1) : strcmp(a->state_name, b->state_name);
}

List *
state_ids(int64 query_id)
{
	static const char *const tables[] = {STATE_SNAPSHOT, STATE_CHANGE, STATE_SIZE, STATE_UNDO};
	List *ids = NIL;

	for (int i = 0; i < lengthof(tables); i++)
	{
		for (StateId *id = state_id_after(tables[i], query_id, NULL); id; id = state_id_after(tables[i], query_id, id))
		{
			if (!state_id_known(ids, id))
				ids = lappend(ids, id);
		}
	}
	list_sort(ids, state_id_compare);
	return ids;
}
