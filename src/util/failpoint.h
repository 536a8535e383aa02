/*
 * failpoint.h: crash points of test builds (-DSTREAM_FAILPOINTS).
 * Setting stream_ext.failpoints = 'step:n:{kill9,error,sleep}[,…]': at the n-th pass of step, do that.
 */
#ifndef STREAM_UTIL_FAILPOINT_H
#define STREAM_UTIL_FAILPOINT_H

#ifdef STREAM_FAILPOINTS
extern void failpoint_reached(const char *step);
extern void failpoint_define_settings(void);
#define FAILPOINT(step) failpoint_reached(step)
#else
#define FAILPOINT(step) ((void) 0)
#endif

#endif
