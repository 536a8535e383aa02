/*
 * file_publish.c: when files of batches appear. Two phases, with Postgres's commit in between: the hidden file is durable before it, the rename follows it;
 * a crash between the two is made good when the query starts again, because commits/N says which batches are committed.
 * Danger: nothing at commit may raise an error any more; a rename that fails is tried again by the next batch or start.
 */
#include "sink/file_publish.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include "access/xact.h"
#include "lib/ilist.h"
#include "metadata/incarnation.h"
#include "storage/fd.h"
#include "util/failpoint.h"
#include "utils/memutils.h"

/* What happens to a file when the transaction ends. */
typedef struct Outcome
{
	dlist_node node;
	bool on_commit_rename; /* else: on commit it goes */
	bool on_abort_remove;
	char hidden[MAXPGPATH];
	char visible[MAXPGPATH];
} Outcome;

static dlist_head outcomes = DLIST_STATIC_INIT(outcomes);
static bool rename_failed = false;

/* ---- names ---- */

static char *
series_prefix(const FileSeries *series)
{
	return psprintf("stream-%.8s-" INT64_FORMAT "-%d-", incarnation_read(), series->query_id, series->incarnation);
}

/* Is this a file of the series? Then which batch, and is it hidden. */
static bool
name_read(const char *name, const char *prefix, int64 *batch_id, bool *hidden)
{
	char *end;

	*hidden = name[0] == '.';
	name += *hidden ? 1 : 0;
	if (strncmp(name, prefix, strlen(prefix)) != 0)
		return false;
	name += strlen(prefix);
	*batch_id = strtoll(name, &end, 10);
	return end != name && *end == '.';
}

/* ---- the end of a transaction ---- */

static void
file_remove(const char *path)
{
	if (unlink(path) != 0 && errno != ENOENT)
		ereport(LOG, (errcode_for_file_access(), errmsg("could not remove file \"%s\": %m", path)));
}

/* Bare system calls: Postgres's own may raise errors, which after a commit nobody can take. The file itself is durable already. */
static void
file_appear(const char *hidden, const char *visible)
{
	char directory[MAXPGPATH];
	int fd;

	if (rename(hidden, visible) != 0)
	{
		rename_failed = true;
		ereport(LOG, (errcode_for_file_access(), errmsg("could not rename file \"%s\" to \"%s\": %m", hidden, visible),
					  errdetail("The batch is committed. It is tried again with the next batch, or when the query starts again.")));
		return;
	}
	strlcpy(directory, visible, sizeof(directory));
	get_parent_directory(directory);
	fd = open(directory, O_RDONLY | PG_BINARY);
	if (fd < 0 || pg_fsync(fd) != 0)
		ereport(LOG, (errcode_for_file_access(), errmsg("could not fsync directory \"%s\": %m", directory)));
	if (fd >= 0)
		close(fd);
}

static void
outcomes_settle(XactEvent event, void *arg)
{
	dlist_mutable_iter iter;

	if (event != XACT_EVENT_COMMIT && event != XACT_EVENT_ABORT)
		return;
	dlist_foreach_modify(iter, &outcomes)
	{
		Outcome *outcome = dlist_container(Outcome, node, iter.cur);

		dlist_delete(&outcome->node);
		if (event == XACT_EVENT_COMMIT && outcome->on_commit_rename)
		{
			FAILPOINT("renaming");
			file_appear(outcome->hidden, outcome->visible);
		}
		else if (event == XACT_EVENT_COMMIT || outcome->on_abort_remove)
			file_remove(outcome->hidden);
		pfree(outcome);
	}
}

static Outcome *
outcome_add(const char *hidden)
{
	static bool registered = false;
	Outcome *outcome = MemoryContextAllocZero(TopMemoryContext, sizeof(Outcome));

	if (!registered)
		RegisterXactCallback(outcomes_settle, NULL);
	registered = true;
	strlcpy(outcome->hidden, hidden, MAXPGPATH);
	dlist_push_tail(&outcomes, &outcome->node);
	return outcome;
}

/* ---- writing ---- */

char *
file_publish_prepare(const FileSeries *series, int64 batch_id, const char *extension)
{
	char *name = psprintf("%s%012lld.%s", series_prefix(series), (long long) batch_id, extension);
	char *hidden = psprintf("%s/.%s", series->directory, name);
	Outcome *outcome;

	if (strlen(hidden) >= MAXPGPATH)
		ereport(ERROR, (errcode(ERRCODE_NAME_TOO_LONG), errmsg("file name \"%s\" is too long", hidden)));
	file_remove(hidden); /* of an attempt that died */
	outcome = outcome_add(hidden);
	outcome->on_commit_rename = outcome->on_abort_remove = true;
	snprintf(outcome->visible, MAXPGPATH, "%s/%s", series->directory, name);
	return hidden;
}

void
file_publish_ready(const FileSeries *series)
{
	fsync_fname(series->directory, true);
}

/* ---- what was left ---- */

typedef struct FoundFile
{
	char *path;
	char *visible; /* of a hidden one: the name it waits for */
	int64 batch_id;
	bool hidden;
} FoundFile;

static List *
series_files(const FileSeries *series)
{
	char *prefix = series_prefix(series);
	DIR *dir = AllocateDir(series->directory);
	struct dirent *entry;
	List *files = NIL;

	while ((entry = ReadDir(dir, series->directory)) != NULL)
	{
		FoundFile *file = palloc0(sizeof(FoundFile));

		if (!name_read(entry->d_name, prefix, &file->batch_id, &file->hidden))
			continue;
		file->path = psprintf("%s/%s", series->directory, entry->d_name);
		if (file->hidden)
			file->visible = psprintf("%s/%s", series->directory, entry->d_name + 1);
		files = lappend(files, file);
	}
	FreeDir(dir);
	return files;
}

void
file_publish_recover(const FileSeries *series, int64 last_batch)
{
	ListCell *lc;

	rename_failed = false;
	foreach (lc, series_files(series))
	{
		FoundFile *file = lfirst(lc);

		if (file->batch_id > last_batch)
			file_remove(file->path);
		else if (file->hidden)
			file_appear(file->path, file->visible);
	}
}

bool
file_publish_is_behind(void)
{
	return rename_failed;
}

void
file_publish_remove(const FileSeries *series, int64 first_batch, int64 last_batch, bool visible)
{
	ListCell *lc;

	foreach (lc, series_files(series))
	{
		FoundFile *file = lfirst(lc);

		if (file->batch_id >= first_batch && file->batch_id <= last_batch && (visible || file->hidden))
			(void) outcome_add(file->path);
	}
}
