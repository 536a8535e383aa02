/*
 * table_step.h: a range of rows as the statements that read it, in the order of the rows.
 */
#ifndef STREAM_SOURCE_TABLE_STEP_H
#define STREAM_SOURCE_TABLE_STEP_H

#include "source/table.h"

/* Which rows a statement reads. A btree stops early on each of these; on a comparison of (stream_xid, stream_seq) pairs it would not. */
typedef enum StepKind
{
	STEP_ALL,		/* no range: a read by hand */
	STEP_RANGE,		/* transactions from … to */
	STEP_ANY,		/* some transactions, by their ids */
	STEP_ONE		/* a part of one transaction */
} StepKind;

enum
{
	PARAM_XID_FROM, /* inclusive */
	PARAM_XID_TO,	/* exclusive */
	PARAM_SEQ_AFTER,
	PARAM_SEQ_UPTO,
	PARAM_XIDS,	  /* xid8[]: STEP_ANY */
	PARAM_HIDDEN, /* xid8[]: STEP_RANGE, still running at the new snapshot */
	PARAM_COUNT
};

/* One statement to run. A range is a list of them, in the order of the rows. */
typedef struct Step
{
	StepKind kind;
	uint64 xid_from, xid_to;
	int64 seq_after, seq_upto;
	uint64 *xids; /* STEP_ANY: wanted; STEP_RANGE: not wanted */
	int nxids;
} Step;

extern const Oid step_param_types[PARAM_COUNT];
extern List *steps_of_pieces(List *pieces);
extern ParamListInfo step_params(Step *step);
extern Step *step_add(List **steps, StepKind kind);

#endif
