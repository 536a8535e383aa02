/*
 * file_read.c: bytes of one file → lines or CSV records → rows.
 * A batch reads a file up to the size it had when it was planned: what is appended later is not part of it, and a retry reads the same.
 */
#include "source/file.h"

#include "catalog/pg_type.h"
#include "format/csv.h"
#include "miscadmin.h"
#include "util/closest.h"
#include "util/json_build.h"
#include "util/options.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#define READ_SIZE (256 * 1024)
#define MAX_RECORD (256 * 1024 * 1024)

typedef enum FileColumn
{
	FILE_COLUMN_PATH,
	FILE_COLUMN_LINE,
	FILE_COLUMN_MODIFIED,
	FILE_COLUMNS
} FileColumn;

struct RecordReader
{
	SourceScan *scan;
	MemoryContext context; /* of this struct */
	MemoryContext decoder_context;
	MemoryContext file_context; /* of the open file */
	Decoder *decoder;
	const char *format;
	int metadata[FILE_COLUMNS]; /* index of the column, -1: not declared */
	FileEntry *entry;
	FileBytes *bytes;
	bool at_end;
	char *buf;
	size_t size, start, filled;
	size_t resume;		/* scanned so far of the record at hand */
	CsvState csv;
	int64 line;			/* number of the line that starts at buf + start */
};

static const char *const metadata_names[] = {"file_path", "file_line", "file_modified"};

static int
metadata_column(SourceDef *def, const char *name)
{
	for (int i = 0; i < def->desc->natts; i++)
		if (!TupleDescAttr(def->desc, i)->attisdropped && strcmp(NameStr(TupleDescAttr(def->desc, i)->attname), name) == 0)
			return i;
	return -1;
}

RecordReader *
file_read_open(SourceScan *scan)
{
	RecordReader *read = palloc0(sizeof(RecordReader));

	read->scan = scan;
	read->context = CurrentMemoryContext;
	read->decoder_context = AllocSetContextCreate(CurrentMemoryContext, "stream_ext file decoder", ALLOCSET_DEFAULT_SIZES);
	for (int i = 0; i < FILE_COLUMNS; i++)
		read->metadata[i] = metadata_column(scan->reader->def, metadata_names[i]);
	read->file_context = AllocSetContextCreate(CurrentMemoryContext, "stream_ext file", ALLOCSET_SMALL_SIZES);
	read->size = READ_SIZE;
	read->buf = MemoryContextAlloc(read->context, read->size);
	return read;
}

static Decoder *
decoder_open(SourceDef *def, const char *format, Bitmapset *needed)
{
	FileOptions *options = def->options;
	const DecoderOps *ops = format_lookup(format);
	DecoderConfig config = {.desc = def->desc, .needed = needed, .timestamp_unit = timestamp_unit_named(options->timestamp_unit),
							.null_on_error = def->on_bad_row == BAD_ROW_NULL, .delimiter = options->delimiter ? options->delimiter[0] : 0, .null_text = options->null_text};

	if (ops == NULL)
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED), errmsg("format \"%s\" of source %s is not supported", format, def->name),
						errdetail("Formats are: %s.", format_names()), closest_hint(format, format_names())));
	config.paths = palloc(sizeof(char *) * Max(def->desc->natts, 1));
	memcpy(config.paths, def->paths, sizeof(char *) * def->desc->natts);
	for (int i = 0; i < FILE_COLUMNS; i++)
		if (metadata_column(def, metadata_names[i]) >= 0)
			config.paths[metadata_column(def, metadata_names[i])] = NULL;
	return ops->open(&config);
}

/* Metadata columns have types of their own: anything else would be read as what it is not. */
static void
metadata_check(SourceDef *def)
{
	static const Oid types[] = {TEXTOID, INT8OID, TIMESTAMPTZOID};

	for (int i = 0; i < FILE_COLUMNS; i++)
	{
		int column = metadata_column(def, metadata_names[i]);
		Oid type = column >= 0 ? TupleDescAttr(def->desc, column)->atttypid : types[i];

		if (type != types[i] && !(i == FILE_COLUMN_LINE && type == INT4OID))
			ereport(ERROR, (errcode(ERRCODE_DATATYPE_MISMATCH), errmsg("column \"%s\" of source %s must be of type %s", metadata_names[i], def->name, format_type_be(types[i]))));
	}
}

void
file_read_check(SourceDef *def, const char *format)
{
	metadata_check(def);
	if (format)
		(void) decoder_open(def, format, NULL);
}

/* A decoder for the file's format; kept while the format stays the same. */
static void
decoder_choose(RecordReader *read, const char *format)
{
	MemoryContext old;

	if (read->decoder && strcmp(read->format, format) == 0)
	{
		if (strcmp(format, "csv") == 0)
			csv_by_position(read->decoder);
		return;
	}
	read->decoder = NULL;
	MemoryContextReset(read->decoder_context);
	old = MemoryContextSwitchTo(read->decoder_context);
	read->format = pstrdup(format);
	read->decoder = decoder_open(read->scan->reader->def, format, read->scan->needed);
	MemoryContextSwitchTo(old);
}

/* ---- bytes ---- */

static void
buffer_fill(RecordReader *read)
{
	size_t n;

	if (read->start > 0)
	{
		memmove(read->buf, read->buf + read->start, read->filled - read->start);
		read->filled -= read->start;
		read->start = 0;
	}
	if (read->filled > MAX_RECORD)
		ereport(ERROR, (errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
						errmsg("record at line " INT64_FORMAT " of file \"%s\" of source %s is longer than %d bytes", read->line, read->entry->path,
							   read->scan->reader->def->name, MAX_RECORD),
						errhint("A quote that is never closed makes the rest of a CSV file one record. stream.skip_batch gives up the batch.")));
	if (read->filled == read->size)
	{
		read->size *= 2;
		read->buf = repalloc_huge(read->buf, read->size);
	}
	n = file_bytes_read(read->bytes, read->buf + read->filled, Min(read->size - read->filled, (size_t) READ_SIZE));
	read->filled += n;
	read->at_end = n == 0;
	CHECK_FOR_INTERRUPTS();
}

/* Length of the record at buf + start, line end included; 0: the file is at its end. */
static size_t
record_next(RecordReader *read)
{
	bool csv = strcmp(read->format, "csv") == 0;

	read->resume = 0;
	read->csv = CSV_FIELD_START;
	for (;;)
	{
		const char *at = read->buf + read->start;
		size_t len = read->filled - read->start, found;

		if (csv)
			found = csv_record_length(read->decoder, at, len, read->at_end, &read->resume, &read->csv);
		else
		{
			const char *end = len > read->resume ? memchr(at + read->resume, '\n', len - read->resume) : NULL;

			read->resume = len;
			found = end ? (size_t) (end - at) + 1 : read->at_end ? len : 0;
		}
		if (found > 0 || read->at_end)
			return found;
		buffer_fill(read);
	}
}

static int64
lines_in(const char *record, size_t length)
{
	int64 n = 0;

	for (const char *p = record; (p = memchr(p, '\n', record + length - p)) != NULL; p++)
		n++;
	return Max(n, 1);
}

static void
file_close(RecordReader *read)
{
	MemoryContextReset(read->file_context);
	read->bytes = NULL;
}

static void
file_header(RecordReader *read)
{
	size_t length = record_next(read);

	if (length == 0)
		return;
	csv_by_header(read->decoder, read->buf + read->start, length);
	read->line += lines_in(read->buf + read->start, length);
	read->start += length;
}

void
file_read_start(RecordReader *read, FileEntry *entry)
{
	SourceDef *def = read->scan->reader->def;
	bool counts = read->scan->observer && read->scan->letter == NULL;
	MemoryContext old;

	file_close(read);
	read->entry = entry;
	decoder_choose(read, file_format(def, entry->path));
	old = MemoryContextSwitchTo(read->file_context);
	read->bytes = file_bytes_open(def, entry, counts ? &read->scan->batch->bytes : NULL);
	MemoryContextSwitchTo(old);
	read->start = read->filled = 0;
	read->at_end = false;
	read->line = 1;
	while (read->filled < 3 && !read->at_end)
		buffer_fill(read);
	if (read->filled >= 3 && memcmp(read->buf, "\xEF\xBB\xBF", 3) == 0)
		read->start = 3;
	if (strcmp(read->format, "csv") == 0 && ((FileOptions *) def->options)->header)
		file_header(read);
}

/* ---- rows ---- */

static void
bad_record(RecordReader *read, const char *record, size_t length, int64 line, DecodeError *error)
{
	JsonBuild b = {NULL, NULL};

	json_object_begin(&b, NULL);
	json_add_text(&b, "file", read->entry->path);
	json_add_int(&b, "line", line);
	json_object_end(&b);
	source_bad_row(read->scan, json_result(&b), record, length, error->sqlstate, error->message);
}

static void
fill_metadata(RecordReader *read, TupleTableSlot *slot, int64 line)
{
	int *m = read->metadata;
	Datum values[FILE_COLUMNS];

	for (int i = 0; i < FILE_COLUMNS; i++)
		if (m[i] >= 0)
			slot->tts_isnull[m[i]] = false;
	if (m[FILE_COLUMN_PATH] >= 0)
		values[FILE_COLUMN_PATH] = PointerGetDatum(cstring_to_text(read->entry->path));
	values[FILE_COLUMN_MODIFIED] = TimestampTzGetDatum(read->entry->modified);
	values[FILE_COLUMN_LINE] = Int64GetDatum(line);
	if (m[FILE_COLUMN_LINE] >= 0 && TupleDescAttr(slot->tts_tupleDescriptor, m[FILE_COLUMN_LINE])->atttypid == INT4OID)
		values[FILE_COLUMN_LINE] = Int32GetDatum((int32) line);
	for (int i = 0; i < FILE_COLUMNS; i++)
		if (m[i] >= 0)
			slot->tts_values[m[i]] = values[i];
}

static size_t
without_line_end(const char *record, size_t length)
{
	if (length > 0 && record[length - 1] == '\n')
		length--;
	if (length > 0 && record[length - 1] == '\r')
		length--;
	return length;
}

/* An empty line is no document, nor are blanks for JSON. */
static bool
record_is_blank(RecordReader *read, const char *record, size_t length)
{
	if (length == 0 || (strcmp(read->format, "json") != 0 && strcmp(read->format, "debezium") != 0))
		return length == 0;
	for (size_t i = 0; i < length; i++)
		if (record[i] != ' ' && record[i] != '\t')
			return false;
	return true;
}

bool
file_read_next(RecordReader *read, TupleTableSlot *slot)
{
	bool text = strcmp(read->format, "text") == 0;
	size_t length;

	while ((length = record_next(read)) > 0)
	{
		const char *record = read->buf + read->start;
		size_t content = without_line_end(record, length);
		int64 line = read->line;
		DecodeError error;

		read->start += length;
		read->line += lines_in(record, length);
		if (!text && record_is_blank(read, record, content))
			continue;
		memset(slot->tts_isnull, true, slot->tts_tupleDescriptor->natts * sizeof(bool));
		if (!read->decoder->ops->decode(read->decoder, record, content, slot->tts_values, slot->tts_isnull, &error))
		{
			bad_record(read, record, content, line, &error);
			continue;
		}
		fill_metadata(read, slot, line);
		return true;
	}
	return false;
}

/* ---- again ---- */

/* The file's header says which column is which. False: there is no such file any more. */
static bool
header_read(RecordReader *read, const char *path)
{
	ListCell *lc;

	if (read->entry && read->decoder && strcmp(read->entry->path, path) == 0)
		return true;
	foreach (lc, file_list(read->scan->reader->def, NULL))
	{
		FileEntry *entry = lfirst(lc);

		if (strcmp(entry->path, path) != 0)
			continue;
		file_read_start(read, entry);
		file_close(read);
		return true;
	}
	return false;
}

bool
file_read_again(RecordReader *read, const SourceLetter *letter, TupleTableSlot *slot)
{
	SourceDef *def = read->scan->reader->def;
	char *path = letter->position ? jsonb_get_text(letter->position, "file") : NULL;
	char *line = letter->position ? jsonb_get_text(letter->position, "line") : NULL;
	FileEntry gone = {.path = path ? path : ""};
	const char *raw = letter->raw ? letter->raw : "", *format = file_format(def, gone.path);
	DecodeError error = {.sqlstate = ERRCODE_UNDEFINED_FILE, .message = "its file is gone, and with it the header that names the columns"};
	MemoryContext old = MemoryContextSwitchTo(read->context);
	bool known = true, fine;

	if (strcmp(format, "csv") == 0 && ((FileOptions *) def->options)->header)
		known = header_read(read, gone.path);
	else
		decoder_choose(read, format);
	MemoryContextSwitchTo(old);
	fine = known && read->decoder->ops->decode(read->decoder, raw, without_line_end(raw, letter->raw_len), slot->tts_values, slot->tts_isnull, &error);
	if (!fine)
	{
		source_bad_row(read->scan, letter->position, letter->raw, letter->raw_len, error.sqlstate, error.message);
		return false;
	}
	if (!read->entry || strcmp(read->entry->path, gone.path) != 0)
		read->entry = &gone;
	fill_metadata(read, slot, line ? pg_strtoint64(line) : 0);
	if (read->entry == &gone)
	{
		read->entry = NULL;
		if (read->metadata[FILE_COLUMN_MODIFIED] >= 0)
			slot->tts_isnull[read->metadata[FILE_COLUMN_MODIFIED]] = true;
	}
	return true;
}
