/*
 * file.c: the file sink: one file a batch, JSON lines or CSV, in a directory of the server, or one of several batches. Exactly once for readers that look at names not beginning with a
 * dot: a file is there once its batch has committed, whole, and never again under another name.
 * Danger: it writes as the server's operating system user; role and directory are checked again in every batch.
 */
#include "sink/sink.h"

#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include "catalog/pg_authid.h"
#include "miscadmin.h"
#include "sink/file_output.h"
#include "sink/file_publish.h"
#include "util/options.h"
#include "util/server_path.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/memutils.h"

typedef struct FileSinkOptions
{
	char *format, *delimiter, *compression;
	bool header;
	int64 compact_every;
} FileSinkOptions;

typedef struct FileSink
{
	Sink base;
	FileFormat format;
	const char *extension;
	int64 compact_every;   /* batches that share a file, 1: none do */
	bool left_over;		   /* parts may be there whose time has come */
	MemoryContext context; /* of one batch */
	FileSeries series;
	FileOutput *output; /* NULL: no row yet */
} FileSink;

static const OptionDef option_defs[] = {{"format", OPTION_ENUM, offsetof(FileSinkOptions, format), 0, 0, "json|csv"},
										{"header", OPTION_BOOL, offsetof(FileSinkOptions, header), 0, 0, NULL},
										{"delimiter", OPTION_TEXT, offsetof(FileSinkOptions, delimiter), 0, 0, NULL},
										{"compression", OPTION_ENUM, offsetof(FileSinkOptions, compression), 0, 0, "none|gzip"},
										{"compact_every", OPTION_INT64, offsetof(FileSinkOptions, compact_every), 1, 1000000, NULL},
										{NULL, 0, 0, 0, 0, NULL}};

/* ---- options ---- */

static void
option_of_csv(SinkDef *def, const char *name, bool given, bool csv)
{
	if (given && !csv)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("option \"%s\" of the file sink of query \"%s\" is for format csv", name, def->query_name)));
}

static FileFormat
format_read(SinkDef *def, int64 *compact_every)
{
	FileSinkOptions options = {.format = "json", .compression = "none", .compact_every = 1};
	FileFormat format = {.delimiter = ','};

	options_parse_jsonb(option_defs, def->options, &options, psprintf("the file sink of query \"%s\"", def->query_name));
	*compact_every = options.compact_every;
	format.csv = strcmp(options.format, "csv") == 0;
	format.gzip = strcmp(options.compression, "gzip") == 0;
	format.header = options.header;
	option_of_csv(def, "header", options.header, format.csv);
	option_of_csv(def, "delimiter", options.delimiter != NULL, format.csv);
	if (options.delimiter == NULL)
		return format;
	if (strlen(options.delimiter) != 1 || strchr("\"\n\r", options.delimiter[0]))
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("invalid value for option \"delimiter\" of the file sink of query \"%s\": \"%s\"", def->query_name, options.delimiter),
						errdetail("Expected one byte that is neither a quote nor a line end.")));
	format.delimiter = options.delimiter[0];
	return format;
}

static const char *
format_extension(const FileFormat *format)
{
	return psprintf("%s%s", format->csv ? "csv" : "json", format->gzip ? ".gz" : "");
}

/* ---- the directory ---- */

/* The directory's real path; make: it is made when its parent is there. */
static char *
directory_resolve(SinkDef *def, bool make)
{
	char real[PATH_MAX];
	struct stat st;

	if (!has_privs_of_role(GetUserId(), ROLE_PG_WRITE_SERVER_FILES))
		ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE), errmsg("permission denied to write files of query \"%s\"", def->query_name),
						errdetail("Role \"%s\" is not a member of pg_write_server_files.", GetUserNameFromId(GetUserId(), true))));
	server_path_check(def->target, psprintf("path of the file sink of query \"%s\"", def->query_name));
	if (realpath(def->target, real) == NULL && errno == ENOENT && make)
	{
		char *parent = pstrdup(def->target);

		get_parent_directory(parent);
		if (realpath(parent, real) && server_path_permitted(real) && mkdir(def->target, S_IRWXU | S_IRGRP | S_IXGRP | S_IROTH | S_IXOTH) == 0)
			(void) chmod(def->target, S_IRWXU | S_IRGRP | S_IXGRP | S_IROTH | S_IXOTH);
	}
	if (realpath(def->target, real) == NULL || stat(real, &st) != 0)
		ereport(ERROR, (errcode_for_file_access(), errmsg("could not find directory \"%s\" of query \"%s\": %m", def->target, def->query_name)));
	if (!server_path_permitted(real))
		ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE), errmsg("directory \"%s\" of query \"%s\" is outside the permitted ones", def->target, def->query_name),
						errdetail("Setting stream_ext.file_roots lists them.")));
	if (!S_ISDIR(st.st_mode))
		ereport(ERROR, (errcode(ERRCODE_WRONG_OBJECT_TYPE), errmsg("\"%s\" is no directory", def->target),
						errdetail("The file sink of query \"%s\" writes one file a batch into a directory.", def->query_name)));
	if (access(real, W_OK | X_OK) != 0)
		ereport(ERROR, (errcode_for_file_access(), errmsg("could not write to directory \"%s\" of query \"%s\": %m", def->target, def->query_name)));
	return pstrdup(real);
}

static FileSeries
series_of(SinkDef *def)
{
	return (FileSeries){directory_resolve(def, false), def->query_id, def->incarnation};
}

/* ---- callbacks ---- */

static void
to_file_create(SinkDef *def, SinkShape *shape)
{
	int64 compact_every;
	FileFormat format = format_read(def, &compact_every);

	if (shape->mode != OUTPUT_APPEND)
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED), errmsg("file sink of query \"%s\" does not support output mode %s", def->query_name, output_mode_name(shape->mode)),
						errdetail("Rows once in a file cannot be replaced."), errhint("Use output mode append, or a table sink.")));
	if (shape->desc->natts == 0 && format.csv)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("query \"%s\" has no columns to write", def->query_name)));
	(void) directory_resolve(def, true);
}

static Sink *
to_file_open(SinkDef *def, SinkShape *shape)
{
	FileSink *sink = (FileSink *) sink_make(sizeof(FileSink), &file_sink, def, shape);

	sink->format = format_read(def, &sink->compact_every);
	sink->left_over = true;
	sink->extension = format_extension(&sink->format);
	sink->context = AllocSetContextCreate(CurrentMemoryContext, "stream_ext file sink", ALLOCSET_DEFAULT_SIZES);
	return &sink->base;
}

static void
to_file_start(Sink *base, int64 last_batch)
{
	FileSeries series = series_of(base->def);

	file_publish_recover(&series, last_batch);
}

static void
to_file_begin(Sink *base, const BatchInfo *batch)
{
	FileSink *sink = (FileSink *) base;
	MemoryContext old;

	sink->output = NULL;
	MemoryContextReset(sink->context);
	old = MemoryContextSwitchTo(sink->context);
	sink->series = series_of(base->def);
	if (file_publish_is_behind())
	{
		file_publish_recover(&sink->series, batch->batch_id - 1);
		sink->left_over = true;
	}
	MemoryContextSwitchTo(old);
}

/* ---- several batches in one file ---- */

/* As text without a header: it is compressed with the others. */
static FileOutput *
part_open(FileSink *sink, int64 batch_id)
{
	FileFormat format = {.csv = sink->format.csv, .delimiter = sink->format.delimiter};

	return file_output_open(file_publish_prepare_part(&sink->series, batch_id), &format, sink->base.shape->desc);
}

/* The parts of batches up to last_batch become one file. */
static void
parts_join(FileSink *sink, int64 last_batch)
{
	int64 first, last;
	List *parts = file_publish_parts(&sink->series, last_batch, &first, &last);
	FileOutput *output;
	ListCell *lc;

	if (parts == NIL)
		return;
	output = file_output_open(file_publish_prepare_whole(&sink->series, first, last, sink->extension, parts), &sink->format, sink->base.shape->desc);
	foreach (lc, parts)
		file_output_copy(output, lfirst(lc));
	file_output_close(output);
	file_publish_ready(&sink->series);
}

static void
to_file_leave(Sink *base, int64 last_batch)
{
	FileSink *sink = (FileSink *) base;
	MemoryContext old;

	MemoryContextReset(sink->context);
	old = MemoryContextSwitchTo(sink->context);
	sink->series = series_of(base->def);
	parts_join(sink, last_batch);
	MemoryContextSwitchTo(old);
}

/* ---- rows ---- */

static FileOutput *
output_open(FileSink *sink, int64 batch_id)
{
	if (sink->compact_every > 1)
		return part_open(sink, batch_id);
	return file_output_open(file_publish_prepare(&sink->series, batch_id, sink->extension), &sink->format, sink->base.shape->desc);
}

static void
to_file_receive(Sink *base, TupleTableSlot *slot)
{
	FileSink *sink = (FileSink *) base;

	if (sink->output == NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(sink->context);

		sink->output = output_open(sink, base->batch->batch_id);
		MemoryContextSwitchTo(old);
	}
	file_output_row(sink->output, slot);
	base->rows++;
}

/* A batch without rows has no file. */
static void
to_file_finish(Sink *base)
{
	FileSink *sink = (FileSink *) base;
	int64 behind = base->batch->batch_id + 1;
	MemoryContext old = MemoryContextSwitchTo(sink->context);

	if (sink->output != NULL)
	{
		file_output_close(sink->output);
		file_publish_ready(&sink->series);
		sink->output = NULL;
	}
	if (sink->left_over || (sink->compact_every > 1 && behind % sink->compact_every == 0))
		parts_join(sink, behind - behind % sink->compact_every - 1);
	sink->left_over = false;
	MemoryContextSwitchTo(old);
}

static void
to_file_rewind(SinkDef *def, SinkShape *shape, int64 batch_id)
{
	FileSeries series = series_of(def);

	file_publish_remove(&series, batch_id + 1, PG_INT64_MAX, true);
}

static void
to_file_skip(SinkDef *def, int64 batch_id)
{
	FileSeries series = series_of(def);

	file_publish_remove(&series, batch_id, batch_id, true);
}

static char *
to_file_describe(SinkDef *def)
{
	return psprintf("files in %s", def->target);
}

const SinkOps file_sink = {
	.kind = "file",
	.needs_target = true,
	.in_database = false,
	.create = to_file_create,
	.open = to_file_open,
	.start = to_file_start,
	.begin = to_file_begin,
	.receive = to_file_receive,
	.finish = to_file_finish,
	.leave = to_file_leave,
	.rewind = to_file_rewind,
	.skip = to_file_skip,
	.describe = to_file_describe,
};
