/* user_mapping.h: the options of a user mapping, where secrets live. */
#ifndef STREAM_UTIL_USER_MAPPING_H
#define STREAM_UTIL_USER_MAPPING_H

#include "postgres.h"
#include "nodes/pg_list.h"

/* Options of the mapping of the current user for that server, else PUBLIC's, else none: list of DefElem. */
extern List *user_mapping_options(Oid server);

#endif
