/*
 * user_function.h: functions users name as sinks, kept as signature text: found anew and checked at each opening and in each batch.
 */
#ifndef STREAM_SINK_USER_FUNCTION_H
#define STREAM_SINK_USER_FUNCTION_H

#include "sink/sink.h"

/* 42883 when it is gone. */
extern Oid user_function_find(SinkDef *def);
/* A plain function, not returning a set, with the right to call it (the current user's): fmgr does not look. */
extern void user_function_check(SinkDef *def, Oid function, int nargs);
extern Oid user_function_argument(Oid function, int i);

#endif
