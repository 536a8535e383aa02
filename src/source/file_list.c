/*
 * file_list.c: which files there are, and whether they may be read.
 * Everything is decided on real paths: a symbolic link that leaves its directory, or the configured roots, is not followed.
 */
#include "source/file.h"

#include <dirent.h>
#include <glob.h>
#include <limits.h>
#include <sys/stat.h>

#include "catalog/pg_authid.h"
#include "miscadmin.h"
#include "storage/fd.h"
#include "util/options.h"
#include "util/server_path.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

/* The directory part of a path or pattern, before the first wildcard. */
static char *
fixed_directory(const char *path)
{
	char *copy = pstrdup(path);
	char *wild = strpbrk(copy, "*?[");
	char *slash;
	struct stat st;

	if (wild == NULL && stat(copy, &st) == 0 && S_ISDIR(st.st_mode))
		return copy;
	if (wild)
		*wild = '\0';
	slash = strrchr(copy, '/');
	if (slash == copy)
		slash++;
	if (slash)
		*slash = '\0';
	return copy;
}

void
file_check_access(SourceDef *def)
{
	FileOptions *options = def->options;
	bool writes = strcmp(options->clean_source, "off") != 0;
	char real[PATH_MAX];
	char *directory;

	if (!has_privs_of_role(def->owner, ROLE_PG_READ_SERVER_FILES))
		ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE), errmsg("permission denied for files of source %s", def->name),
						errdetail("Role \"%s\" is not a member of pg_read_server_files.", GetUserNameFromId(def->owner, true))));
	if (writes && !has_privs_of_role(def->owner, ROLE_PG_WRITE_SERVER_FILES))
		ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE), errmsg("permission denied to clean files of source %s", def->name),
						errdetail("Role \"%s\" is not a member of pg_write_server_files.", GetUserNameFromId(def->owner, true))));
	directory = fixed_directory(options->path);
	if (realpath(directory, real) && !server_path_permitted(real))
		ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE), errmsg("path \"%s\" of source %s is outside the permitted directories", options->path, def->name),
						errdetail("Setting stream_ext.file_roots lists them.")));
	if (options->archive_dir == NULL)
		return;
	if (realpath(options->archive_dir, real) == NULL)
		ereport(ERROR, (errcode_for_file_access(), errmsg("could not find directory \"%s\" of option \"archive_dir\" of source %s: %m", options->archive_dir, def->name)));
	if (!server_path_permitted(real))
		ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE), errmsg("archive_dir \"%s\" of source %s is outside the permitted directories", options->archive_dir, def->name),
						errdetail("Setting stream_ext.file_roots lists them.")));
}

const char *
file_format(SourceDef *def, const char *path)
{
	FileOptions *options = def->options;
	char *name = pstrdup(path);
	size_t len = strlen(name);
	char *dot;

	if (options->format)
		return options->format;
	if (len > 3 && strcmp(name + len - 3, ".gz") == 0)
		name[len - 3] = '\0';
	dot = strrchr(name, '.');
	if (dot && (strcmp(dot, ".json") == 0 || strcmp(dot, ".jsonl") == 0 || strcmp(dot, ".ndjson") == 0))
		return "json";
	if (dot && strcmp(dot, ".csv") == 0)
		return "csv";
	if (dot && (strcmp(dot, ".txt") == 0 || strcmp(dot, ".log") == 0))
		return "text";
	ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("format of file \"%s\" of source %s is not known", path, def->name),
					errhint("Set option format of the source to csv, json or text.")));
}

bool
file_is_permitted(SourceDef *def, const char *real)
{
	char directory[PATH_MAX];

	return realpath(fixed_directory(((FileOptions *) def->options)->path), directory) && server_path_below(real, directory) &&
		   server_path_permitted(real);
}

static bool
ends_with(const char *name, const char *suffix)
{
	size_t n = strlen(name), m = strlen(suffix);

	return n >= m && strcmp(name + n - m, suffix) == 0;
}

/* Names programs give to what they have not finished; a pattern that asks for such names gets them. */
static bool
name_is_unfinished(const char *name, const char *pattern)
{
	static const char *const suffixes[] = {".tmp", ".temp", ".part", ".partial", "._COPYING_", ".swp", "~"};

	for (int i = 0; i < lengthof(suffixes); i++)
		if (ends_with(name, suffixes[i]))
			return !ends_with(pattern, suffixes[i]);
	return false;
}

static TimestampTz
modified_at(const struct stat *st)
{
	return time_t_to_timestamptz(st->st_mtim.tv_sec) + st->st_mtim.tv_nsec / 1000;
}

bool
file_is_same(FileEntry *entry)
{
	struct stat st;

	return stat(entry->path, &st) == 0 && modified_at(&st) == entry->modified && st.st_size == entry->size;
}

static List *
list_add(List *files, SourceDef *def, const char *path, HTAB *known)
{
	const char *name = strrchr(path, '/') + 1;
	char real[PATH_MAX];
	FileEntry *entry;
	struct stat st;

	if (name[0] == '.' || name[0] == '_' || name_is_unfinished(name, ((FileOptions *) def->options)->path))
		return files;
	if (known && hash_search(known, &path, HASH_FIND, NULL))
		return files;
	if (realpath(path, real) == NULL || stat(real, &st) != 0 || !S_ISREG(st.st_mode) || !file_is_permitted(def, real))
		return files;
	entry = palloc(sizeof(FileEntry));
	entry->path = pstrdup(path);
	entry->modified = modified_at(&st);
	entry->size = st.st_size;
	return lappend(files, entry);
}

static List *
list_directory(SourceDef *def, const char *path, HTAB *known)
{
	DIR *dir = AllocateDir(path);
	struct dirent *de;
	List *files = NIL;

	if (dir == NULL)
		ereport(ERROR, (errcode_for_file_access(), errmsg("could not open directory \"%s\" of source %s: %m", path, def->name)));
	while ((de = ReadDir(dir, path)) != NULL)
		files = list_add(files, def, psprintf("%s/%s", path, de->d_name), known);
	FreeDir(dir);
	return files;
}

static List *
list_pattern(SourceDef *def, const char *pattern, HTAB *known)
{
	glob_t found;
	int rc = glob(pattern, GLOB_NOSORT, NULL, &found);
	List *paths = NIL, *files = NIL;
	ListCell *lc;

	if (rc == GLOB_NOSPACE || rc == GLOB_ABORTED)
		ereport(ERROR, (errcode(ERRCODE_IO_ERROR), errmsg("could not look for files \"%s\" of source %s", pattern, def->name)));
	for (size_t i = 0; rc == 0 && i < found.gl_pathc; i++)
		paths = lappend(paths, pstrdup(found.gl_pathv[i]));
	if (rc == 0)
		globfree(&found);
	foreach (lc, paths)
		files = list_add(files, def, lfirst(lc), known);
	return files;
}

List *
file_list(SourceDef *def, HTAB *known)
{
	char *path = pstrdup(((FileOptions *) def->options)->path);
	struct stat st;

	if (stat(path, &st) != 0 || !S_ISDIR(st.st_mode))
		return list_pattern(def, path, known);
	while (strlen(path) > 1 && path[strlen(path) - 1] == '/')
		path[strlen(path) - 1] = '\0';
	return list_directory(def, path, known);
}
