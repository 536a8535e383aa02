/* incarnation.h: which database this is, for everything that means something in one database only. */
#ifndef STREAM_METADATA_INCARNATION_H
#define STREAM_METADATA_INCARNATION_H

#include "postgres.h"

/* A uuid as text: the same over restarts, failovers, pg_upgrade, and in a copy (whose transaction ids mean the same); another one after a dump was restored. */
extern char *incarnation_read(void);
/* By which other systems know our batches: as above, but a copy has its own. */
extern char *incarnation_outside(void);
/* The database is a copy of another, and nobody has noticed yet: from now on it is one of its own. */
extern bool incarnation_settle(void);

#endif
