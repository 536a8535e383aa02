/* copy.h: a database made by copying another, whose queries go on there. */
#ifndef STREAM_WORKER_COPY_H
#define STREAM_WORKER_COPY_H

#include "postgres.h"

/* In a transaction, before anything is started here for the first time: what ran in the other database is stopped in this one. */
extern void copy_settle(void);

#endif
