/*
 * dead_letter.c: replay_dead_letters: rows that could not be read come again, after the sender's or the source's fault is mended.
 * Only asked for here: a batch of the query takes them (stream.replay_entry → offset log → batch), so that they are exactly once like all other rows.
 */
#include "api/query.h"

#include "catalog/pg_type.h"
#include "metadata/dead_letter.h"
#include "metadata/replay.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "worker/worker.h"

PG_FUNCTION_INFO_V1(stream_replay_dead_letters);

static SourceDef *
letter_source(StreamPlan *plan, DeadLetter *letter)
{
	ListCell *lc;

	foreach (lc, plan->sources)
	{
		SourceDef *source = lfirst(lc);

		if (letter->source && strcmp(source->name, letter->source) == 0)
			return source;
	}
	return NULL;
}

static bool
letter_may_replay(StreamPlan *plan, DeadLetter *letter)
{
	SourceDef *source = letter_source(plan, letter);

	return strcmp(letter->reason, "malformed") == 0 && source && source->ops->scan_again;
}

static void
letter_refuse(StreamQuery *query, StreamPlan *plan, DeadLetter *letter)
{
	if (strcmp(letter->reason, "late") == 0)
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED), errmsg("dead letter " INT64_FORMAT " is a late row: it would be late again", letter->id),
						errdetail("The windows it belongs to are closed."),
						errhint("Its columns are the JSON in raw: correct the target with them. A larger watermark_delay makes fewer rows late.")));
	if (strcmp(letter->reason, "malformed") != 0)
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						errmsg("dead letter " INT64_FORMAT " (%s) is not a row that could not be read: it cannot come again", letter->id, letter->reason)));
	if (letter_source(plan, letter) == NULL)
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("source %s of dead letter " INT64_FORMAT " is not a source of streaming query \"%s\" any more", letter->source, letter->id, query->name)));
	ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED), errmsg("rows of source %s cannot come again", letter->source)));
}

/* The letters the user names, all of which must be fit for it. */
static int64
replay_named(StreamQuery *query, StreamPlan *plan, ArrayType *array)
{
	Datum *ids;
	bool *nulls;
	int n;
	int64 asked = 0;

	deconstruct_array(array, INT8OID, sizeof(int64), FLOAT8PASSBYVAL, TYPALIGN_DOUBLE, &ids, &nulls, &n);
	for (int i = 0; i < n; i++)
	{
		DeadLetter *letter = nulls[i] ? NULL : dead_letter_get(DatumGetInt64(ids[i]));

		if (nulls[i])
			continue;
		if (letter == NULL || letter->query_id != query->id)
			ereport(ERROR, (errcode(ERRCODE_UNDEFINED_OBJECT),
							errmsg("streaming query \"%s\" has no dead letter " INT64_FORMAT, query->name, DatumGetInt64(ids[i])),
							errhint("See stream.dead_letters.")));
		if (!letter_may_replay(plan, letter))
			letter_refuse(query, plan, letter);
		asked += replay_add(query->id, letter->id);
	}
	return asked;
}

/* All that are fit for it. */
static int64
replay_all(StreamQuery *query, StreamPlan *plan)
{
	int64 asked = 0;
	ListCell *lc;

	foreach (lc, dead_letters_of(query->id))
	{
		DeadLetter *letter = lfirst(lc);

		if (letter_may_replay(plan, letter))
			asked += replay_add(query->id, letter->id);
	}
	return asked;
}

/* replay_dead_letters(query, ids) → how many will come again */
Datum
stream_replay_dead_letters(PG_FUNCTION_ARGS)
{
	StreamQuery *query = query_argument(fcinfo, 0);
	OwnerScope scope;
	StreamPlan *plan;
	int64 asked;

	query_owner_begin(query, &scope);
	plan = plan_compile(query, query_view_tree(query));
	query_owner_end(&scope);
	asked = PG_ARGISNULL(1) ? replay_all(query, plan) : replay_named(query, plan, PG_GETARG_ARRAYTYPE_P(1));
	if (asked > 0)
		worker_wake_at_commit(query->id);
	PG_RETURN_INT64(asked);
}
