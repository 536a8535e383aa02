/*
 * change_op.h: what a change did to a row, as a word in a column: change data of every origin says it alike.
 * Sources write the short words; sinks read all of them, in any case: what others call the same.
 */
#ifndef STREAM_UTIL_CHANGE_OP_H
#define STREAM_UTIL_CHANGE_OP_H

#include "postgres.h"

typedef enum ChangeOp
{
	CHANGE_UNKNOWN,
	CHANGE_UPSERT,	 /* c, r, u: the row is there now, with these values; also i, create, insert, read, update */
	CHANGE_DELETE,	 /* d: the row of this key is gone; also delete */
	CHANGE_TRUNCATE	 /* t: all rows that came before are gone; also truncate */
} ChangeOp;

extern ChangeOp change_op_read(const char *word, size_t len);

#endif
