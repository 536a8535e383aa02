/*
 * server_path.c: which files of the server users may name: absolute paths below the directories of setting stream_ext.file_roots.
 * Danger: names alone prove nothing; callers ask about what realpath() says, and open nothing that is a link.
 */
#include "util/server_path.h"

#include <limits.h>

#include "nodes/pg_list.h"
#include "utils/varlena.h"

char *stream_file_roots = NULL;

void
server_path_check(const char *path, const char *what)
{
	size_t n = strlen(path);

	if (path[0] != '/')
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("%s must be an absolute path: \"%s\"", what, path)));
	if (strstr(path, "/../") || (n >= 3 && strcmp(path + n - 3, "/..") == 0))
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("%s must not contain \"..\": \"%s\"", what, path)));
}

bool
server_path_below(const char *path, const char *directory)
{
	size_t n = strlen(directory);

	while (n > 1 && directory[n - 1] == '/')
		n--;
	return strncmp(path, directory, n) == 0 && (path[n] == '/' || path[n] == '\0' || n == 1);
}

bool
server_path_permitted(const char *real)
{
	char *raw = pstrdup(stream_file_roots ? stream_file_roots : "");
	List *roots;
	ListCell *lc;

	if (raw[0] == '\0')
		return true;
	if (!SplitDirectoriesString(raw, ',', &roots))
		ereport(ERROR, (errcode(ERRCODE_CONFIG_FILE_ERROR), errmsg("invalid list of directories in setting stream_ext.file_roots")));
	foreach (lc, roots)
	{
		char root[PATH_MAX];

		if (realpath(lfirst(lc), root) && server_path_below(real, root))
			return true;
	}
	return false;
}
