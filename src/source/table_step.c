/*
 * table_step.c: from snapshots to index conditions: which transactions a range covers, wholly or in part.
 * Order matters: transactions that were running at the old snapshot are older than all that began after it.
 */
#include "source/table_step.h"

#include "access/transam.h"
#include "catalog/pg_type.h"
#include "utils/array.h"
#include "utils/xid8.h"

const Oid step_param_types[PARAM_COUNT] = {XID8OID, XID8OID, INT8OID, INT8OID, XID8ARRAYOID, XID8ARRAYOID};

static bool
xid_is_among(uint64 xid, const uint64 *xids, int n)
{
	for (int i = 0; i < n; i++)
		if (xids[i] == xid)
			return true;
	return false;
}

Step *
step_add(List **steps, StepKind kind)
{
	Step *step = palloc0(sizeof(Step));

	step->kind = kind;
	*steps = lappend(*steps, step);
	return step;
}

/* The part of one transaction that lies within the piece. */
static void
step_add_one(List **steps, TablePiece *piece, uint64 xid)
{
	Step *step;

	if (xid >= piece->high->xmax || xid_is_among(xid, piece->high->xip, piece->high->nxip))
		return;
	step = step_add(steps, STEP_ONE);
	step->xid_from = xid;
	step->seq_after = xid == piece->after.xid ? piece->after.seq : PG_INT64_MIN;
	step->seq_upto = xid == piece->upto.xid ? piece->upto.seq : PG_INT64_MAX;
}

/* Transactions that were running at the old snapshot and have ended by the new one. Those at the ends of a split are read in part. */
static void
steps_add_running(List **steps, TablePiece *piece)
{
	Horizon *low = piece->low, *high = piece->high;
	Step *step = NULL;

	for (int i = 0; low && i < low->nxip; i++)
	{
		uint64 xid = low->xip[i];

		if (xid < piece->after.xid || xid > piece->upto.xid || xid_is_among(xid, high->xip, high->nxip))
			continue;
		if (xid == piece->after.xid || xid == piece->upto.xid)
			step_add_one(steps, piece, xid);
		else
		{
			if (step == NULL)
			{
				step = step_add(steps, STEP_ANY);
				step->xids = palloc(sizeof(uint64) * low->nxip);
			}
			step->xids[step->nxids++] = xid;
		}
	}
}

/* Transactions that began after the old snapshot. */
static void
steps_add_new(List **steps, TablePiece *piece)
{
	uint64 from = piece->low ? piece->low->xmax : FirstNormalTransactionId;
	uint64 to = Min(piece->high->xmax, piece->upto.xid);

	if (piece->upto.seq == PG_INT64_MAX)
		to = piece->high->xmax;
	if (piece->after.xid >= from)
	{
		step_add_one(steps, piece, piece->after.xid);
		from = piece->after.xid + 1;
	}
	if (from < to)
	{
		Step *step = step_add(steps, STEP_RANGE);

		step->xid_from = from;
		step->xid_to = to;
		step->xids = piece->high->xip;
		step->nxids = piece->high->nxip;
	}
	if (piece->upto.seq != PG_INT64_MAX && piece->upto.xid >= from)
		step_add_one(steps, piece, piece->upto.xid);
}

List *
steps_of_pieces(List *pieces)
{
	List *steps = NIL;
	ListCell *lc;

	foreach (lc, pieces)
	{
		steps_add_running(&steps, lfirst(lc));
		steps_add_new(&steps, lfirst(lc));
	}
	return steps;
}

static Datum
xid_array(const uint64 *xids, int n)
{
	Datum *values = palloc(sizeof(Datum) * (n + 1));

	for (int i = 0; i < n; i++)
		values[i] = FullTransactionIdGetDatum(FullTransactionIdFromU64(xids[i]));
	return PointerGetDatum(construct_array(values, n, XID8OID, sizeof(FullTransactionId), FLOAT8PASSBYVAL, TYPALIGN_DOUBLE));
}

ParamListInfo
step_params(Step *step)
{
	ParamListInfo params = makeParamList(PARAM_COUNT);
	Datum values[PARAM_COUNT];

	values[PARAM_XID_FROM] = FullTransactionIdGetDatum(FullTransactionIdFromU64(step->xid_from));
	values[PARAM_XID_TO] = FullTransactionIdGetDatum(FullTransactionIdFromU64(step->xid_to));
	values[PARAM_SEQ_AFTER] = Int64GetDatum(step->seq_after);
	values[PARAM_SEQ_UPTO] = Int64GetDatum(step->seq_upto);
	values[PARAM_XIDS] = values[PARAM_HIDDEN] = xid_array(step->xids, step->nxids);
	for (int i = 0; i < PARAM_COUNT; i++)
		params->params[i] = (ParamExternData){values[i], false, PARAM_FLAG_CONST, step_param_types[i]};
	return params;
}
