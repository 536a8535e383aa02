/*
 * failpoint.h: crash points of test builds (-DSTREAM_FAILPOINTS).
 * Setting stream_ext.failpoints = 'step:n:{kill9,error,sleep,wait}[,…]': at the n-th pass of step, do that.
 */
#ifndef STREAM_UTIL_FAILPOINT_H
#define STREAM_UTIL_FAILPOINT_H

#ifdef STREAM_FAILPOINTS
extern void failpoint_reached(const char *step);
extern void failpoint_set_at_commit(const char *step);
extern void failpoint_define_settings(void);
#define FAILPOINT(step) failpoint_reached(step)
#define FAILPOINT_AT_COMMIT(step) failpoint_set_at_commit(step) /* when everything else of the coming commit is done, other servers' included */
#else
#define FAILPOINT(step) ((void) 0)
#define FAILPOINT_AT_COMMIT(step) ((void) 0)
#endif

#endif
