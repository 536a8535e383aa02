/* server_path.h: which files of the server users may name. */
#ifndef STREAM_UTIL_SERVER_PATH_H
#define STREAM_UTIL_SERVER_PATH_H

#include "postgres.h"

extern char *stream_file_roots; /* setting stream_ext.file_roots */

/* 22023 unless it is absolute and has no ".." in it. what: names it in the error, 'option "path" of source s'. */
extern void server_path_check(const char *path, const char *what);
/* Both as realpath() gives them: decided on names, a link would make them lie. */
extern bool server_path_below(const char *path, const char *directory);
extern bool server_path_permitted(const char *real); /* below one of the configured roots, if there are any */

#endif
