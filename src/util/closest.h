/* closest.h: "Perhaps you meant": for names and values that are not among the valid ones. */
#ifndef STREAM_UTIL_CLOSEST_H
#define STREAM_UTIL_CLOSEST_H

#include "postgres.h"

/* The nearest of the words ("a, b; c|d": as error details list them), NULL: none is near. Case, blanks and the signs between words do not count. */
extern char *closest_find(const char *given, const char *words);

/* An errhint with it, or nothing: for use inside ereport. */
extern int closest_hint(const char *given, const char *words);

#endif
