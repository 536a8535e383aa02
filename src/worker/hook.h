/* hook.h: statements that cannot work while workers are connected to a database, or that no trigger sees. */
#ifndef STREAM_WORKER_HOOK_H
#define STREAM_WORKER_HOOK_H

#include "postgres.h"

extern void hook_install(void);

#endif
