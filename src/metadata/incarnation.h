/* incarnation.h: which database this is, for everything that means something in one database only. */
#ifndef STREAM_METADATA_INCARNATION_H
#define STREAM_METADATA_INCARNATION_H

#include "postgres.h"

/* A uuid as text: the same over restarts, failovers and pg_upgrade; another one after a dump was restored. */
extern char *incarnation_read(void);

#endif
