/*
 * file_clean.c: files that have been read: deleted, or moved into the archive.
 * Danger: nothing may be lost: not what has come under a file's name since, and not a file of that name in the archive.
 */
#include "source/file.h"

#include <fcntl.h>
#include <unistd.h>

/* rename() would replace what is there. link() does not, but Linux refuses it for files of others, and old file systems have no renameat2(). */
static int
move_beside(const char *path, const char *target)
{
#ifdef RENAME_NOREPLACE
	if (renameat2(AT_FDCWD, path, AT_FDCWD, target, RENAME_NOREPLACE) == 0)
		return 0;
	if (errno != EINVAL && errno != ENOSYS)
		return -1;
#endif
	return link(path, target) == 0 ? unlink(path) : -1;
}

/* Never over a file that is there: the second of a name gets a number. */
static int
archive_move(const char *path, const char *directory)
{
	const char *name = strrchr(path, '/');

	for (int i = 0; i < 10000; i++)
	{
		char target[MAXPGPATH];

		if (snprintf(target, sizeof(target), i == 0 ? "%s%s" : "%s%s.%d", directory, name, i) >= (int) sizeof(target))
		{
			errno = ENAMETOOLONG;
			return -1;
		}
		if (move_beside(path, target) == 0)
			return 0;
		if (errno != EEXIST)
			return -1;
	}
	return -1;
}

/* Not what came under its name since, which nobody has read. */
void
file_clean(SourceDef *def, FileEntry *entry)
{
	FileOptions *options = def->options;
	bool gone = strcmp(options->clean_source, "delete") == 0;

	if (!file_is_same(entry))
		return;
	if ((gone ? unlink(entry->path) : archive_move(entry->path, options->archive_dir)) != 0 && errno != ENOENT)
		ereport(LOG, (errcode_for_file_access(), errmsg("could not %s file \"%s\" of source %s: %m", gone ? "delete" : "archive", entry->path,
														def->name)));
}
