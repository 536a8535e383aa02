/*
 * file_bytes.c: the bytes of one file, as far as it belonged to its batch, decompressed when they are gzip: any number of members, each to its end.
 * A file cut short, damaged, or with something behind its last member is an error, never a shorter file: half of it may have been decoded already.
 */
#include "source/file.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "miscadmin.h"
#include "storage/fd.h"
#include "util/server_path.h"
#include "utils/memutils.h"

#define CHUNK (64 * 1024)
#define GZIP_WINDOW (15 + 16) /* zlib's way to say: gzip headers only */

struct FileBytes
{
	SourceDef *def;
	FileEntry *entry;
	int fd;
	int64 left; /* bytes of the file not read yet */
	int64 *count;
	bool gzip;
	bool in_member;
	z_stream stream;
	unsigned char *chunk;
	MemoryContextCallback closing;
};

/* ---- open and close ---- */

static void
bytes_close(void *arg)
{
	FileBytes *bytes = arg;

	if (bytes->gzip)
		inflateEnd(&bytes->stream);
	if (bytes->fd >= 0)
	{
		close(bytes->fd);
		ReleaseExternalFD();
	}
	bytes->gzip = false;
	bytes->fd = -1;
}

static void
report_damaged(FileBytes *bytes, const char *why)
{
	ereport(ERROR, (errcode(ERRCODE_DATA_CORRUPTED), errmsg("file \"%s\" of source %s is damaged: %s", bytes->entry->path, bytes->def->name, why),
					errhint("Files must appear whole, by rename, and not change. stream.skip_batch gives up the batch.")));
}

/* The real path of an open file, whatever its name leads to by now; where no kernel tells, name stays. */
static void
opened_path(int fd, char *name)
{
	char path[PATH_MAX];
	ssize_t n = readlink(psprintf("/proc/self/fd/%d", fd), path, sizeof(path) - 1);

	if (n <= 0)
		return;
	path[n] = '\0';
	strcpy(name, path);
}

/* What was a regular file when it was listed may be a link by now, or lie behind one. */
static void
bytes_open(FileBytes *bytes)
{
	const char *path = bytes->entry->path;
	char real[PATH_MAX];
	struct stat st;

	if (!AcquireExternalFD())
		ereport(ERROR, (errcode_for_file_access(), errmsg("could not open file \"%s\" of source %s: %m", path, bytes->def->name)));
	if (realpath(path, real))
		bytes->fd = open(real, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | PG_BINARY);
	if (bytes->fd < 0)
	{
		ReleaseExternalFD();
		ereport(ERROR, (errcode_for_file_access(), errmsg("could not open file \"%s\" of source %s: %m", path, bytes->def->name),
						errhint("A file must stay until the batch that reads it is committed. stream.skip_batch gives up the batch.")));
	}
	opened_path(bytes->fd, real);
	if (fstat(bytes->fd, &st) != 0 || !S_ISREG(st.st_mode) || !file_is_permitted(bytes->def, real))
		ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE), errmsg("file \"%s\" of source %s is not what it was when it was found", path, bytes->def->name),
						errdetail("It is no regular file, or leads outside the permitted directories.")));
	if (st.st_size < bytes->entry->size)
		report_damaged(bytes, "it is shorter than when its batch was planned");
}

static size_t
file_read(FileBytes *bytes, void *buf, size_t size)
{
	size_t want = (size_t) Min((int64) size, bytes->left), done = 0;

	CHECK_FOR_INTERRUPTS(); /* a gzip file may be full of members that hold nothing */
	while (done < want)
	{
		ssize_t n = read(bytes->fd, (char *) buf + done, want - done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			ereport(ERROR, (errcode_for_file_access(), errmsg("could not read file \"%s\" of source %s: %m", bytes->entry->path, bytes->def->name)));
		if (n == 0)
			report_damaged(bytes, "it is shorter than when its batch was planned");
		done += n;
	}
	bytes->left -= done;
	if (bytes->count)
		*bytes->count += done;
	return done;
}

static bool
name_is_gzip(const char *path)
{
	size_t n = strlen(path);

	return n > 3 && strcmp(path + n - 3, ".gz") == 0;
}

/* Compressed or not is in the bytes; a name that promises gzip must keep its word. */
static void
gzip_detect(FileBytes *bytes)
{
	size_t n = file_read(bytes, bytes->chunk, CHUNK);

	bytes->stream.next_in = bytes->chunk;
	bytes->stream.avail_in = n;
	if (n >= 2 && bytes->chunk[0] == 0x1f && bytes->chunk[1] == 0x8b)
	{
		if (inflateInit2(&bytes->stream, GZIP_WINDOW) != Z_OK)
			ereport(ERROR, (errcode(ERRCODE_OUT_OF_MEMORY), errmsg("out of memory")));
		bytes->gzip = bytes->in_member = true;
	}
	else if (name_is_gzip(bytes->entry->path))
		report_damaged(bytes, n == 0 ? "it is empty, gzip is not" : "its name says gzip, its content does not");
}

FileBytes *
file_bytes_open(SourceDef *def, FileEntry *entry, int64 *count)
{
	FileBytes *bytes = palloc0(sizeof(FileBytes));

	bytes->def = def;
	bytes->entry = entry;
	bytes->fd = -1;
	bytes->left = entry->size;
	bytes->count = count;
	bytes->chunk = palloc(CHUNK);
	bytes->closing.func = bytes_close;
	bytes->closing.arg = bytes;
	MemoryContextRegisterResetCallback(CurrentMemoryContext, &bytes->closing);
	bytes_open(bytes);
	gzip_detect(bytes);
	return bytes;
}

/* ---- read ---- */

static size_t
plain_read(FileBytes *bytes, char *buf, size_t size)
{
	size_t n = Min((size_t) bytes->stream.avail_in, size);

	if (n == 0)
		return file_read(bytes, buf, size);
	memcpy(buf, bytes->stream.next_in, n);
	bytes->stream.next_in += n;
	bytes->stream.avail_in -= n;
	return n;
}

static bool
chunk_refill(FileBytes *bytes)
{
	if (bytes->stream.avail_in > 0)
		return true;
	bytes->stream.next_in = bytes->chunk;
	bytes->stream.avail_in = file_read(bytes, bytes->chunk, CHUNK);
	return bytes->stream.avail_in > 0;
}

/* Behind a member: zeros, which tapes and block devices leave, then the end or another member. False: the end. */
static bool
member_next(FileBytes *bytes)
{
	while (chunk_refill(bytes))
	{
		if (*bytes->stream.next_in != 0)
		{
			if (*bytes->stream.next_in != 0x1f)
				report_damaged(bytes, "something follows its compressed data");
			inflateReset(&bytes->stream);
			bytes->in_member = true;
			return true;
		}
		bytes->stream.next_in++;
		bytes->stream.avail_in--;
	}
	return false;
}

static size_t
gzip_read(FileBytes *bytes, char *buf, size_t size)
{
	bytes->stream.next_out = (unsigned char *) buf;
	bytes->stream.avail_out = size;
	while (bytes->stream.avail_out == size)
	{
		int rc;

		if (!bytes->in_member && !member_next(bytes))
			return 0;
		if (!chunk_refill(bytes))
			report_damaged(bytes, "it ends in the middle of its compressed data");
		rc = inflate(&bytes->stream, Z_NO_FLUSH);
		if (rc == Z_STREAM_END)
			bytes->in_member = false;
		else if (rc != Z_OK && rc != Z_BUF_ERROR)
			report_damaged(bytes, bytes->stream.msg ? bytes->stream.msg : "it cannot be decompressed");
	}
	return size - bytes->stream.avail_out;
}

size_t
file_bytes_read(FileBytes *bytes, char *buf, size_t size)
{
	return bytes->gzip ? gzip_read(bytes, buf, size) : plain_read(bytes, buf, size);
}
