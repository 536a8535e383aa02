/*
 * dependent.c: a query's SELECT is kept as view stream.query_<id> (api/view.c), and whoever drops what it reads is told of that view.
 * Statement → names of the queries → error → its detail with them. Danger: runs for everybody's DROP; nothing may be looked up once an error is there.
 */
#include "worker/dependent.h"

#include <ctype.h>

#include "lib/stringinfo.h"
#include "metadata/query.h"
#include "nodes/parsenodes.h"
#include "util/extension.h"

#define VIEW "stream.query_"

List *
dependent_queries(Node *stmt)
{
	char *version;

	if (!IsA(stmt, DropStmt) && !IsA(stmt, AlterTableStmt) && !IsA(stmt, DropOwnedStmt) && !IsA(stmt, DropRoleStmt))
		return NIL;
	version = extension_version();
	return version && strcmp(version, STREAM_VERSION) == 0 ? query_names() : NIL;
}

static const char *
name_of(List *queries, int64 id)
{
	ListCell *lc;

	foreach (lc, queries)
		if (((QueryName *) lfirst(lc))->id == id)
			return ((QueryName *) lfirst(lc))->name;
	return NULL;
}

static char *
text_with_names(const char *text, List *queries)
{
	StringInfoData out;
	const char *found;

	if (text == NULL || strstr(text, VIEW) == NULL)
		return unconstify(char *, text);
	initStringInfo(&out);
	while ((found = strstr(text, VIEW)) != NULL)
	{
		char *end;
		int64 id = strtoi64(found + strlen(VIEW), &end, 10);
		const char *name = isalnum((unsigned char) *end) || *end == '_' || *end == '"' ? NULL : name_of(queries, id);

		appendBinaryStringInfo(&out, text, end - text);
		if (name)
			appendStringInfo(&out, " (streaming query \"%s\")", name);
		text = end;
	}
	appendStringInfoString(&out, text);
	return out.data;
}

void
dependent_rethrow(List *queries, MemoryContext context)
{
	ErrorData *error;

	MemoryContextSwitchTo(context);
	error = CopyErrorData();
	FlushErrorState();
	error->detail = text_with_names(error->detail, queries);
	error->detail_log = text_with_names(error->detail_log, queries);
	ReThrowError(error);
}
