/*
 * copy.c: CREATE DATABASE ... TEMPLATE copies queries that run, and go on in the database they were copied from.
 * First look of a process at this database → is it a copy that nobody has noticed? → its queries are stopped, until somebody starts them.
 * Danger: two databases that both write to the same topic or directory.
 */
#include "worker/copy.h"

#include "access/xact.h"
#include "commands/dbcommands.h"
#include "metadata/attempt.h"
#include "metadata/incarnation.h"
#include "metadata/query.h"
#include "miscadmin.h"

static void
run_stop(int64 query_id)
{
	QueryRun run;

	query_run_load(query_id, &run);
	query_run_end(&run, "stopped");
	query_run_store(query_id, &run);
	attempt_end(query_id, "stopped", NULL, NULL);
}

void
copy_settle(void)
{
	static bool settled = false;
	List *runs;
	ListCell *cell;

	if (settled || (settled = !incarnation_settle()))
		return;
	runs = query_runs(true);
	foreach (cell, runs)
		run_stop(((RunEntry *) lfirst(cell))->query_id);
	CommandCounterIncrement();
	if (runs != NIL)
		ereport(LOG, (errmsg("database \"%s\" is a copy: its streaming queries are stopped", get_database_name(MyDatabaseId)),
					  errdetail("They go on in the database it was copied from: %d.", list_length(runs)),
					  errhint("Start those that should run here as well with stream.start_query().")));
}
