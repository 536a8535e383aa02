/*
 * table_position.c: positions of the table source: snapshots as text, and the ranges between them.
 * Transaction ids mean something in one cluster only: each position names the incarnation of the database it was taken in, and another refuses it.
 */
#include "source/table.h"

#include "access/tableam.h"
#include "access/table.h"
#include "fmgr.h"
#include "util/options.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"

const Stamp STAMP_FIRST = {0, -1};
const Stamp STAMP_LAST = {PG_UINT64_MAX, PG_INT64_MAX};

/* "xmin:xmax:xip,xip,…" as pg_snapshot_out writes it; pg_snapshot_in has checked it. */
static Horizon *
horizon_parse(const char *text)
{
	Horizon *horizon = palloc0(sizeof(Horizon));
	char *p;

	horizon->text = pstrdup(text);
	(void) strtou64(text, &p, 10); /* xmin says nothing that the others do not */
	horizon->xmax = strtou64(p + 1, &p, 10);
	horizon->xip = palloc(sizeof(uint64) * (strlen(p) / 2 + 1));
	while (*p && p[1])
		horizon->xip[horizon->nxip++] = strtou64(p + 1, &p, 10);
	return horizon;
}

Horizon *
horizon_from_text(const char *text)
{
	(void) DirectFunctionCall1(pg_snapshot_in, CStringGetDatum(text));
	return horizon_parse(text);
}

Horizon *
horizon_now(void)
{
	return horizon_parse(DatumGetCString(DirectFunctionCall1(pg_snapshot_out, OidFunctionCall0(F_PG_CURRENT_SNAPSHOT))));
}

TablePosition
position_read(TableReader *reader, Position *position)
{
	TablePosition result = {NULL, NULL, {0, 0}};
	const char *source = reader->base.def->name;
	char *incarnation, *read, *until;

	if (position == NULL)
		return result;
	incarnation = jsonb_get_text(position, "incarnation");
	if (incarnation == NULL || strcmp(incarnation, reader->incarnation) != 0)
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE), errmsg("position of source %s is of another database", source),
						errdetail("It names transactions of the database that was dumped; here they are other transactions."),
						errhint("Start the query afresh with stream.reset_query().")));
	read = jsonb_get_text(position, "snapshot");
	until = jsonb_get_text(position, "until");
	if (read)
		result.read = horizon_from_text(read);
	if (until)
	{
		result.until = horizon_from_text(until);
		result.last.xid = strtou64(jsonb_get_text(position, "xid"), NULL, 10);
		result.last.seq = strtoi64(jsonb_get_text(position, "seq"), NULL, 10);
	}
	return result;
}

static void
push_text(JsonbParseState **state, const char *key, const char *value)
{
	JsonbValue v;

	v.type = jbvString;
	v.val.string.val = unconstify(char *, key);
	v.val.string.len = strlen(key);
	pushJsonbValue(state, WJB_KEY, &v);
	v.val.string.val = unconstify(char *, value);
	v.val.string.len = strlen(value);
	pushJsonbValue(state, WJB_VALUE, &v);
}

Position *
position_make(TableReader *reader, Horizon *read, Horizon *until, const Stamp *last)
{
	JsonbParseState *state = NULL;

	pushJsonbValue(&state, WJB_BEGIN_OBJECT, NULL);
	push_text(&state, "incarnation", reader->incarnation);
	if (read)
		push_text(&state, "snapshot", read->text);
	if (until)
	{
		push_text(&state, "until", until->text);
		push_text(&state, "xid", psprintf(UINT64_FORMAT, last->xid));
		push_text(&state, "seq", psprintf(INT64_FORMAT, last->seq));
	}
	return JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_OBJECT, NULL));
}

static TablePiece *
piece_make(Horizon *low, Horizon *high, Stamp after, Stamp upto)
{
	TablePiece *piece = palloc(sizeof(TablePiece));

	*piece = (TablePiece){low, high, after, upto};
	return piece;
}

List *
position_pieces(TablePosition from, TablePosition to)
{
	List *pieces = NIL;
	Horizon *low = from.read;

	if (from.until)
	{
		/* Both inside one split range? advance() never goes from one into the middle of another. */
		if (to.until && strcmp(to.until->text, from.until->text) == 0)
			return list_make1(piece_make(low, to.until, from.last, to.last));
		pieces = list_make1(piece_make(low, from.until, from.last, STAMP_LAST));
		low = from.until;
	}
	if (to.until)
		return lappend(pieces, piece_make(low, to.until, STAMP_FIRST, to.last));
	if (low == NULL || strcmp(low->text, to.read->text) != 0)
		pieces = lappend(pieces, piece_make(low, to.read, STAMP_FIRST, STAMP_LAST));
	return pieces;
}
