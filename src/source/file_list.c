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

static List *
list_add(List *files, const char *path, const char *directory)
{
	const char *name = strrchr(path, '/');
	char real[PATH_MAX];
	FileEntry *entry;
	struct stat st;

	name = name ? name + 1 : path;
	if (name[0] == '.' || name[0] == '_')
		return files;
	if (realpath(path, real) == NULL || !server_path_below(real, directory) || !server_path_permitted(real))
		return files;
	if (stat(real, &st) != 0 || !S_ISREG(st.st_mode))
		return files;
	entry = palloc(sizeof(FileEntry));
	entry->path = pstrdup(path);
	entry->modified = time_t_to_timestamptz(st.st_mtim.tv_sec) + st.st_mtim.tv_nsec / 1000;
	entry->size = st.st_size;
	return lappend(files, entry);
}

List *
file_list(SourceDef *def)
{
	FileOptions *options = def->options;
	char directory[PATH_MAX];
	List *files = NIL;
	struct stat st;

	if (realpath(fixed_directory(options->path), directory) == NULL)
		return NIL; /* not there yet */
	if (stat(options->path, &st) == 0 && S_ISDIR(st.st_mode))
	{
		DIR *dir = opendir(options->path);
		struct dirent *de;

		if (dir == NULL)
			ereport(ERROR, (errcode_for_file_access(), errmsg("could not open directory \"%s\" of source %s: %m", options->path, def->name)));
		while ((de = readdir(dir)) != NULL)
			files = list_add(files, psprintf("%s/%s", options->path, de->d_name), directory);
		closedir(dir);
	}
	else
	{
		glob_t found;
		int rc = glob(options->path, GLOB_NOSORT, NULL, &found);

		if (rc == GLOB_NOSPACE || rc == GLOB_ABORTED)
			ereport(ERROR, (errcode(ERRCODE_IO_ERROR), errmsg("could not look for files \"%s\" of source %s", options->path, def->name)));
		for (size_t i = 0; rc == 0 && i < found.gl_pathc; i++)
			files = list_add(files, found.gl_pathv[i], directory);
		if (rc == 0)
			globfree(&found);
	}
	return files;
}
