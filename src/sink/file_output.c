/*
 * file_output.c: rows → text in UTF-8 → gzip → a file. CSV as COPY writes it: NULL is nothing, an empty string "".
 */
#include "sink/file_output.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "fmgr.h"
#include "lib/stringinfo.h"
#include "mb/pg_wchar.h"
#include "sink/row_json.h"
#include "storage/fd.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/wait_event.h"

#define CHUNK 65536
#define GZIP_WINDOW (15 + 16) /* zlib's way to say: with a gzip header */

struct FileOutput
{
	char *path;
	FileFormat format;
	int fd;
	RowJson *json;
	FmgrInfo *out; /* csv: per column */
	StringInfoData text;
	MemoryContext row_context;
	z_stream gzip;
	bool compressing;
	MemoryContextCallback release;
};

/* ---- bytes ---- */

static void
write_bytes(FileOutput *output, const char *bytes, size_t size)
{
	while (size > 0)
	{
		ssize_t n;

		errno = 0;
		n = write(output->fd, bytes, size);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
		{
			if (errno == 0)
				errno = ENOSPC;
			ereport(ERROR, (errcode_for_file_access(), errmsg("could not write to file \"%s\": %m", output->path)));
		}
		bytes += n;
		size -= n;
	}
}

static void
deflate_text(FileOutput *output, int flush)
{
	char chunk[CHUNK];
	int rc;

	output->gzip.next_in = (Bytef *) output->text.data;
	output->gzip.avail_in = output->text.len;
	do
	{
		output->gzip.next_out = (Bytef *) chunk;
		output->gzip.avail_out = CHUNK;
		rc = deflate(&output->gzip, flush);
		if (rc == Z_STREAM_ERROR)
			ereport(ERROR, (errcode(ERRCODE_INTERNAL_ERROR), errmsg("could not compress file \"%s\"", output->path)));
		write_bytes(output, chunk, CHUNK - output->gzip.avail_out);
	} while (output->gzip.avail_out == 0);
}

static void
text_write(FileOutput *output, bool last)
{
	if (output->compressing)
		deflate_text(output, last ? Z_FINISH : Z_NO_FLUSH);
	else
		write_bytes(output, output->text.data, output->text.len);
	resetStringInfo(&output->text);
}

static void
output_release(void *arg)
{
	FileOutput *output = arg;

	if (output->compressing)
		deflateEnd(&output->gzip);
	output->compressing = false;
}

/* ---- rows ---- */

static bool
needs_quotes(const char *text, char delimiter)
{
	if (*text == '\0' || strcmp(text, "\\.") == 0)
		return true;
	for (const char *p = text; *p; p++)
		if (*p == delimiter || *p == '"' || *p == '\n' || *p == '\r')
			return true;
	return false;
}

static void
csv_field(FileOutput *output, const char *text)
{
	if (!needs_quotes(text, output->format.delimiter))
	{
		appendStringInfoString(&output->text, text);
		return;
	}
	appendStringInfoCharMacro(&output->text, '"');
	for (const char *p = text; *p; p++)
	{
		if (*p == '"')
			appendStringInfoCharMacro(&output->text, '"');
		appendStringInfoCharMacro(&output->text, *p);
	}
	appendStringInfoCharMacro(&output->text, '"');
}

static void
csv_header(FileOutput *output, TupleDesc desc)
{
	for (int i = 0; i < desc->natts; i++)
	{
		char *name = NameStr(TupleDescAttr(desc, i)->attname);

		if (i > 0)
			appendStringInfoCharMacro(&output->text, output->format.delimiter);
		csv_field(output, pg_server_to_any(name, strlen(name), PG_UTF8));
	}
	appendStringInfoCharMacro(&output->text, '\n');
}

static void
csv_row(FileOutput *output, TupleTableSlot *slot)
{
	int natts = slot->tts_tupleDescriptor->natts;

	slot_getallattrs(slot);
	for (int i = 0; i < natts; i++)
	{
		char *text;

		if (i > 0)
			appendStringInfoCharMacro(&output->text, output->format.delimiter);
		if (slot->tts_isnull[i])
			continue;
		text = OutputFunctionCall(&output->out[i], slot->tts_values[i]);
		csv_field(output, pg_server_to_any(text, strlen(text), PG_UTF8));
	}
	appendStringInfoCharMacro(&output->text, '\n');
}

static void
json_row(FileOutput *output, TupleTableSlot *slot)
{
	text *json = DatumGetTextPP(row_json_text(output->json, slot));
	int length = VARSIZE_ANY_EXHDR(json);
	char *utf8 = pg_server_to_any(VARDATA_ANY(json), length, PG_UTF8);

	if (utf8 != VARDATA_ANY(json))
		length = strlen(utf8);
	appendBinaryStringInfo(&output->text, utf8, length);
	appendStringInfoCharMacro(&output->text, '\n');
}

void
file_output_row(FileOutput *output, TupleTableSlot *slot)
{
	MemoryContext old;

	MemoryContextReset(output->row_context);
	old = MemoryContextSwitchTo(output->row_context);
	if (output->format.csv)
		csv_row(output, slot);
	else
		json_row(output, slot);
	MemoryContextSwitchTo(old);
	if (output->text.len >= CHUNK)
		text_write(output, false);
}

void
file_output_copy(FileOutput *output, const char *path)
{
	char chunk[CHUNK];
	int fd = OpenTransientFile(path, O_RDONLY | O_NOFOLLOW | PG_BINARY);
	ssize_t n = 0;

	while (fd >= 0 && (n = read(fd, chunk, CHUNK)) > 0)
	{
		appendBinaryStringInfo(&output->text, chunk, n);
		text_write(output, false);
	}
	if (fd < 0 || n < 0)
		ereport(ERROR, (errcode_for_file_access(), errmsg("could not read file \"%s\": %m", path)));
	CloseTransientFile(fd);
}

/* ---- open and close ---- */

/* Others may read it, as files written by COPY. */
static int
create_file(const char *path)
{
	int fd = OpenTransientFile(path, O_CREAT | O_EXCL | O_WRONLY | O_NOFOLLOW | PG_BINARY);

	if (fd < 0 || fchmod(fd, S_IRUSR | S_IWUSR | S_IRGRP | S_IROTH) != 0)
		ereport(ERROR, (errcode_for_file_access(), errmsg("could not create file \"%s\": %m", path)));
	return fd;
}

static void
format_prepare(FileOutput *output, TupleDesc desc)
{
	if (!output->format.csv)
	{
		output->json = row_json_make(desc);
		return;
	}
	output->out = palloc(sizeof(FmgrInfo) * Max(desc->natts, 1));
	for (int i = 0; i < desc->natts; i++)
	{
		Oid function;
		bool varlena;

		getTypeOutputInfo(TupleDescAttr(desc, i)->atttypid, &function, &varlena);
		fmgr_info(function, &output->out[i]);
	}
	if (output->format.header)
		csv_header(output, desc);
}

FileOutput *
file_output_open(const char *path, const FileFormat *format, TupleDesc desc)
{
	FileOutput *output = palloc0(sizeof(FileOutput));

	output->path = pstrdup(path);
	output->format = *format;
	initStringInfo(&output->text);
	output->row_context = AllocSetContextCreate(CurrentMemoryContext, "stream_ext file row", ALLOCSET_DEFAULT_SIZES);
	format_prepare(output, desc);
	output->release.func = output_release;
	output->release.arg = output;
	MemoryContextRegisterResetCallback(CurrentMemoryContext, &output->release);
	if (format->gzip)
	{
		if (deflateInit2(&output->gzip, Z_DEFAULT_COMPRESSION, Z_DEFLATED, GZIP_WINDOW, 8, Z_DEFAULT_STRATEGY) != Z_OK)
			ereport(ERROR, (errcode(ERRCODE_OUT_OF_MEMORY), errmsg("out of memory"), errdetail("Compression of file \"%s\" could not be started.", path)));
		output->compressing = true;
	}
	output->fd = create_file(path);
	return output;
}

void
file_output_close(FileOutput *output)
{
	text_write(output, true);
	output_release(output);
	if (pg_fsync(output->fd) != 0)
		ereport(ERROR, (errcode_for_file_access(), errmsg("could not fsync file \"%s\": %m", output->path)));
	if (CloseTransientFile(output->fd) != 0)
		ereport(ERROR, (errcode_for_file_access(), errmsg("could not close file \"%s\": %m", output->path)));
}
