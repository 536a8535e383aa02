/* notify.h: NOTIFY, whose queue has room or not. */
#ifndef STREAM_UTIL_NOTIFY_H
#define STREAM_UTIL_NOTIFY_H

#include "postgres.h"

/* Nearly: a session that LISTENs in a long transaction keeps all since then. A transaction that NOTIFYs then fails at its end. */
extern bool notify_queue_is_full(void);

#endif
