/*
 * file.c: files of a directory as a stream. A position is a number: {"n": 12} means the first 12 files of the query's list in stream.seen_file.
 * Files enter the list in the transaction that plans the batch, oldest first, and never twice: a changed file is not read again.
 */
#include "source/file.h"

#include <fnmatch.h>
#include <limits.h>
#include <sys/stat.h>

#include "catalog/pg_attribute.h"
#include "catalog/pg_foreign_table.h"
#include "catalog/pg_type.h"
#include "commands/defrem.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "util/clock.h"
#include "util/heap.h"
#include "util/json_build.h"
#include "util/options.h"
#include "util/server_path.h"
#include "utils/builtins.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#define LOOK_AGAIN_MS 1000
#define CLEAN_AGAIN 10000 /* files before the first batch of a process: the one before may have ended between a batch and its cleaning */

typedef struct FileReader
{
	SourceReader base;
	MemoryContext seen_context;
	bool seen_known;	 /* seen is what the table says, unless a transaction was rolled back since */
	int64 nseen;
	int64 allocated;
	FileEntry *seen;	 /* in order: seen[n - 1] */
	HTAB *by_path;
	TimestampTz newest;
	int64 cleaned_upto;	 /* number of files; -1: where this process began is not known yet */
} FileReader;

static const OptionDef file_option_defs[] = {
	{"path", OPTION_TEXT, offsetof(FileOptions, path), 0, 0, NULL},
	{"header", OPTION_BOOL, offsetof(FileOptions, header), 0, 0, NULL},
	{"delimiter", OPTION_TEXT, offsetof(FileOptions, delimiter), 0, 0, NULL},
	{"null", OPTION_TEXT, offsetof(FileOptions, null_text), 0, 0, NULL},
	{"max_files_per_batch", OPTION_INT64, offsetof(FileOptions, max_files_per_batch), 1, PG_INT64_MAX, NULL},
	{"latest_first", OPTION_BOOL, offsetof(FileOptions, latest_first), 0, 0, NULL},
	{"max_file_age", OPTION_INTERVAL, offsetof(FileOptions, max_file_age), 0, PG_INT64_MAX, NULL},
	{"settle_time", OPTION_INTERVAL, offsetof(FileOptions, settle_time), 0, PG_INT64_MAX, NULL},
	{"clean_source", OPTION_ENUM, offsetof(FileOptions, clean_source), 0, 0, "off|delete|archive"},
	{"archive_dir", OPTION_TEXT, offsetof(FileOptions, archive_dir), 0, 0, NULL},
	{NULL, 0, 0, 0, 0, NULL}};

/* ---- options ---- */

/* Archived files must not be found again, under a path that was not read yet. */
static void
check_archive(SourceDef *def, FileOptions *options)
{
	char real[PATH_MAX], archive[PATH_MAX];
	char *directory = pstrdup(options->path);
	struct stat st;

	if (options->archive_dir == NULL)
		return;
	if (stat(directory, &st) != 0 || !S_ISDIR(st.st_mode))
		get_parent_directory(directory);
	if (fnmatch(directory, options->archive_dir, FNM_PATHNAME) == 0 ||
		(realpath(directory, real) && realpath(options->archive_dir, archive) && strcmp(real, archive) == 0))
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("archive_dir \"%s\" of source %s is among the directories it reads", options->archive_dir, def->name),
						errdetail("Archived files would be read again."), errhint("Choose a directory that \"%s\" does not cover.", options->path)));
}

static void
file_parse(SourceDef *def)
{
	FileOptions *options = palloc0(sizeof(FileOptions));

	options->max_file_age = -1;
	options->clean_source = "off";
	source_parse_options(def, options, &options->format, &options->timestamp_unit);
	if (options->path == NULL)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("source %s needs option \"path\"", def->name),
						errhint("A directory or a glob on the server, such as /data/in/*.json.")));
	server_path_check(options->path, psprintf("option \"path\" of source %s", def->name));
	if (options->delimiter && (strlen(options->delimiter) != 1 || strchr("\"\r\n", options->delimiter[0])))
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("option \"delimiter\" of source %s must be one byte, neither a quote nor a line end", def->name)));
	if (strcmp(options->clean_source, "archive") == 0 && options->archive_dir == NULL)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("option \"clean_source\" archive of source %s needs option \"archive_dir\"", def->name)));
	if (options->archive_dir)
		server_path_check(options->archive_dir, psprintf("option \"archive_dir\" of source %s", def->name));
	file_check_access(def);
	check_archive(def, options);
	file_read_check(def, options->format);
}

/* ---- the list of files seen ---- */

/* Paths are keys as they are: two of them are one file only if they are spelled alike. */
typedef struct SeenPath
{
	char *path;
} SeenPath;

static uint32
path_hash(const void *key, Size size)
{
	const char *path = *(char *const *) key;

	return hash_bytes((const unsigned char *) path, strlen(path));
}

static int
path_compare(const void *a, const void *b, Size size)
{
	return strcmp(*(char *const *) a, *(char *const *) b);
}

static void
seen_remember(FileReader *reader, const char *path, TimestampTz modified, int64 size)
{
	MemoryContext old = MemoryContextSwitchTo(reader->seen_context);
	FileEntry *entry;
	bool found;

	if (reader->nseen == reader->allocated)
	{
		reader->allocated = Max(64, reader->allocated * 2);
		reader->seen = reader->seen ? repalloc_huge(reader->seen, reader->allocated * sizeof(FileEntry)) : palloc(reader->allocated * sizeof(FileEntry));
	}
	entry = &reader->seen[reader->nseen++];
	entry->path = pstrdup(path);
	entry->modified = modified;
	entry->size = size;
	reader->newest = Max(reader->newest, modified);
	hash_search(reader->by_path, &entry->path, HASH_ENTER, &found);
	MemoryContextSwitchTo(old);
}

static void
seen_reset(FileReader *reader)
{
	HASHCTL ctl = {.keysize = sizeof(char *), .entrysize = sizeof(SeenPath), .hash = path_hash, .match = path_compare};

	MemoryContextReset(reader->seen_context);
	ctl.hcxt = reader->seen_context;
	reader->by_path = hash_create("stream_ext seen files", 256, &ctl, HASH_ELEM | HASH_FUNCTION | HASH_COMPARE | HASH_CONTEXT);
	reader->seen = NULL;
	reader->nseen = reader->allocated = 0;
	reader->newest = DT_NOBEGIN;
}

enum
{
	SEEN_QUERY, SEEN_SOURCE, SEEN_N, SEEN_PATH, SEEN_MODIFIED, SEEN_SIZE, SEEN_COLUMNS
};

static HeapScan *
seen_scan(FileReader *reader, bool backward)
{
	Datum keys[] = {Int64GetDatum(reader->base.query_id), CStringGetTextDatum(reader->base.def->name)};

	return heap_scan_begin("seen_file", "seen_file_pkey", 2, keys, backward);
}

/* What the table says; kept in memory, and read again when a rolled back transaction took entries away. */
static void
seen_load(FileReader *reader)
{
	HeapScan *scan = seen_scan(reader, true);
	Datum v[SEEN_COLUMNS];
	bool n[SEEN_COLUMNS];
	int64 last = heap_scan_next(scan, v, n) ? DatumGetInt64(v[SEEN_N]) : 0;

	heap_scan_end(scan);
	if (reader->seen_known && last == reader->nseen)
		return;
	seen_reset(reader);
	scan = seen_scan(reader, false);
	while (heap_scan_next(scan, v, n))
		seen_remember(reader, TextDatumGetCString(v[SEEN_PATH]), DatumGetTimestampTz(v[SEEN_MODIFIED]), DatumGetInt64(v[SEEN_SIZE]));
	heap_scan_end(scan);
	reader->seen_known = true;
}

static void
seen_add(FileReader *reader, FileEntry *entry)
{
	Datum v[SEEN_COLUMNS];
	bool n[SEEN_COLUMNS] = {false};

	seen_remember(reader, entry->path, entry->modified, entry->size);
	v[SEEN_QUERY] = Int64GetDatum(reader->base.query_id);
	v[SEEN_SOURCE] = CStringGetTextDatum(reader->base.def->name);
	v[SEEN_N] = Int64GetDatum(reader->nseen);
	v[SEEN_PATH] = CStringGetTextDatum(entry->path);
	v[SEEN_MODIFIED] = TimestampTzGetDatum(entry->modified);
	v[SEEN_SIZE] = Int64GetDatum(entry->size);
	heap_insert_row("seen_file", v, n);
}

/* ---- new files ---- */

static int
oldest_first(const ListCell *a, const ListCell *b)
{
	const FileEntry *x = lfirst(a), *y = lfirst(b);

	if (x->modified != y->modified)
		return x->modified < y->modified ? -1 : 1;
	return strcmp(x->path, y->path);
}

static int
newest_first(const ListCell *a, const ListCell *b)
{
	return oldest_first(b, a);
}

/*
 * Files not seen before, in the order they will be read. The age limit is relative to the newest file seen, so that a backlog read oldest first is read
 * whole; it spares the very first batch.
 */
static List *
files_new(FileReader *reader, bool limited)
{
	FileOptions *options = reader->base.def->options;
	bool aged = options->max_file_age >= 0 && reader->nseen > 0 && !(options->latest_first && limited);
	TimestampTz settled = clock_now() - options->settle_time;
	List *fresh = NIL;
	ListCell *lc;

	foreach (lc, file_list(reader->base.def, reader->by_path))
	{
		FileEntry *entry = lfirst(lc);

		if (aged && entry->modified < reader->newest - options->max_file_age)
			continue;
		if (options->settle_time > 0 && entry->modified > settled)
			continue;
		fresh = lappend(fresh, entry);
	}
	list_sort(fresh, options->latest_first ? newest_first : oldest_first);
	return fresh;
}

/* May one more file go into a batch of so many files and bytes? The first always may. */
static bool
fits(FileReader *reader, const ReadLimit *limit, int64 files, int64 bytes, int64 size)
{
	FileOptions *options = reader->base.def->options;

	if (files == 0)
		return true;
	if (options->max_files_per_batch > 0 && files >= options->max_files_per_batch && !limit->everything)
		return false;
	return limit->max_bytes == 0 || bytes + size <= limit->max_bytes;
}

static SourceAdvance
file_advance(SourceReader *base, Position *from, Position *ceiling, const ReadLimit *limit)
{
	FileReader *reader = (FileReader *) base;
	SourceAdvance advance = {.rows = -1, .rows_waiting = -1};
	int64 start = source_position_n(from), n = start, bytes = 0, last;
	List *fresh;
	ListCell *lc;

	file_check_access(base->def);
	seen_load(reader);
	last = ceiling ? Min(source_position_n(ceiling), reader->nseen) : reader->nseen;
	/* Files on the list that no batch has read yet come first. */
	while (n < last && fits(reader, limit, n - start, bytes, reader->seen[n].size))
		bytes += reader->seen[n++].size;
	advance.more = n < last;
	if (!advance.more && ceiling == NULL)
	{
		fresh = files_new(reader, limit->max_rows > 0 || ((FileOptions *) base->def->options)->max_files_per_batch > 0);
		foreach (lc, fresh)
		{
			FileEntry *entry = lfirst(lc);

			if (!fits(reader, limit, n - start, bytes, entry->size))
			{
				advance.more = true;
				break;
			}
			seen_add(reader, entry);
			bytes += entry->size;
			n++;
		}
	}
	if (n > start)
		advance.end = source_position_of(n);
	advance.bytes = bytes;
	return advance;
}

static Position *
file_latest(SourceReader *base)
{
	FileReader *reader = (FileReader *) base;
	ListCell *lc;

	seen_load(reader);
	foreach (lc, files_new(reader, false))
		seen_add(reader, lfirst(lc));
	return source_position_of(reader->nseen);
}

static Position *
file_initial(SourceReader *reader)
{
	return NULL;
}

static SourceReader *
file_open(SourceDef *def)
{
	FileReader *reader = palloc0(sizeof(FileReader));

	reader->base.ops = &file_source;
	reader->base.def = def;
	reader->base.context = CurrentMemoryContext;
	reader->cleaned_upto = -1;
	reader->seen_context = AllocSetContextCreate(CurrentMemoryContext, "stream_ext seen files", ALLOCSET_DEFAULT_SIZES);
	file_check_access(def);
	return &reader->base;
}

/* ---- scans ---- */

typedef struct FileScan
{
	List *files; /* FileEntry */
	int next;
	RecordReader *read;
	bool in_file;
} FileScan;

static void
file_scan_begin(SourceScan *scan)
{
	FileReader *reader = (FileReader *) scan->reader;
	FileScan *state = palloc0(sizeof(FileScan));
	int64 upto;

	scan->state = state;
	state->read = file_read_open(scan);
	if (scan->batch == NULL)
	{
		file_check_access(reader->base.def);
		state->files = file_list(reader->base.def, NULL);
		list_sort(state->files, oldest_first);
		return;
	}
	seen_load(reader);
	upto = source_position_n(scan->to);
	if (upto > reader->nseen)
		ereport(ERROR, (errcode(ERRCODE_DATA_CORRUPTED), errmsg("list of files of source %s ends before the batch does", reader->base.def->name),
						errdetail("The batch reads up to file " INT64_FORMAT " of the query's list, stream.seen_file has " INT64_FORMAT ".", upto, reader->nseen),
						errhint("Start afresh with stream.reset_query.")));
	if (reader->cleaned_upto < 0)
		reader->cleaned_upto = Max(source_position_n(scan->from) - CLEAN_AGAIN, 0);
	for (int64 n = source_position_n(scan->from); n < upto; n++)
		state->files = lappend(state->files, &reader->seen[n]);
}

static bool
file_scan_next(SourceScan *scan, TupleTableSlot *slot)
{
	FileScan *state = scan->state;

	for (;;)
	{
		if (state->in_file && file_read_next(state->read, slot))
			return true;
		if (state->next >= list_length(state->files))
			return false;
		file_read_start(state->read, list_nth(state->files, state->next++));
		state->in_file = true;
	}
}

static void
file_scan_rewind(SourceScan *scan)
{
	FileScan *state = scan->state;

	state->next = 0;
	state->in_file = false;
}

static bool
file_scan_again(SourceScan *scan, const SourceLetter *letter, TupleTableSlot *slot)
{
	if (scan->again == NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(scan->context);

		scan->again = file_read_open(scan);
		MemoryContextSwitchTo(old);
	}
	return file_read_again(scan->again, letter, slot);
}

static void
file_scan_end(SourceScan *scan)
{
}

/* ---- afterwards ---- */

/* The batch is committed: files may go. A crash before this leaves them, for the next process; they are not read again all the same. */
static void
file_acknowledge(SourceReader *base, Position *upto)
{
	FileReader *reader = (FileReader *) base;
	int64 n = source_position_n(upto);

	if (strcmp(((FileOptions *) base->def->options)->clean_source, "off") != 0)
		for (int64 i = Max(reader->cleaned_upto, 0); i < n && i < reader->nseen; i++)
		{
			CHECK_FOR_INTERRUPTS();
			file_clean(base->def, &reader->seen[i]);
		}
	reader->cleaned_upto = n;
}

static int
file_look_again_ms(SourceReader *reader)
{
	return LOOK_AGAIN_MS;
}

static void
file_close(SourceReader *reader)
{
}

const SourceOps file_source = {
	.kind = "file",
	.server = "stream_file",
	.options = file_option_defs,
	.options_size = sizeof(FileOptions),
	.parse = file_parse,
	.open = file_open,
	.initial = file_initial,
	.latest = file_latest,
	.advance = file_advance,
	.scan_begin = file_scan_begin,
	.scan_next = file_scan_next,
	.scan_rewind = file_scan_rewind,
	.scan_end = file_scan_end,
	.scan_again = file_scan_again,
	.acknowledge = file_acknowledge,
	.look_again_ms = file_look_again_ms,
	.close = file_close,
};
