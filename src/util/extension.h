/* extension.h: do the library and the SQL objects of this database belong together? */
#ifndef STREAM_UTIL_EXTENSION_H
#define STREAM_UTIL_EXTENSION_H

#include "postgres.h"

extern char *extension_version(void); /* of the SQL objects, NULL: not installed */
/* Error unless they are of the library's version: C code reads and writes rows of the tables as it knows them. */
extern void extension_check_version(void);

#endif
