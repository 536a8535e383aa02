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

typedef enum OnCommit
{
	ON_COMMIT_REMOVE,
	ON_COMMIT_RENAME,
	ON_COMMIT_KEEP
} OnCommit;

/* What happens to a file when the transaction ends. */
typedef struct Outcome
{
	dlist_node node;
	OnCommit on_commit;
	bool on_abort_remove;
	struct Outcome *after; /* removed only if that has been renamed; NULL: in any case */
	bool done;
	char hidden[MAXPGPATH];
	char visible[MAXPGPATH];
} Outcome;

static dlist_head outcomes = DLIST_STATIC_INIT(outcomes);
static bool rename_failed = false;

/* ---- names ---- */

static char *
series_prefix(const FileSeries *series)
{
	return psprintf("stream-%.8s-" INT64_FORMAT "-%d-", incarnation_outside(), series->query_id, series->incarnation);
}

#define PART ".part-"
#define NEW ".new-"

typedef enum FileKind
{
	FILE_VISIBLE,
	FILE_HIDDEN, /* its batch decides */
	FILE_PART,
	FILE_NEW	 /* of no use: an attempt that died */
} FileKind;

typedef struct FoundFile
{
	char *path;
	char *visible; /* of a hidden one: the name it waits for */
	int64 first, last; /* batches */
	FileKind kind;
} FoundFile;

static FileKind
name_kind(const char **name)
{
	static const struct
	{
		const char *mark;
		FileKind kind;
	} marks[] = {{PART, FILE_PART}, {NEW, FILE_NEW}, {".", FILE_HIDDEN}};

	for (int i = 0; i < lengthof(marks); i++)
		if (strncmp(*name, marks[i].mark, strlen(marks[i].mark)) == 0)
		{
			*name += strlen(marks[i].mark);
			return marks[i].kind;
		}
	return FILE_VISIBLE;
}

/* Is this a file of the series? Then which batches, and where is it on its way. */
static bool
name_read(const char *name, const char *prefix, FoundFile *file)
{
	char *end;

	file->kind = name_kind(&name);
	if (strncmp(name, prefix, strlen(prefix)) != 0)
		return false;
	name += strlen(prefix);
	file->first = file->last = strtoll(name, &end, 10);
	if (end != name && *end == '-')
		file->last = strtoll(end + 1, &end, 10);
	return end != name && (*end == '.' || (*end == '\0' && file->kind == FILE_PART));
}

/* ---- the end of a transaction ---- */

static void
file_remove(const char *path)
{
	if (unlink(path) != 0 && errno != ENOENT)
		ereport(LOG, (errcode_for_file_access(), errmsg("could not remove file \"%s\": %m", path)));
}

/* Bare system calls: Postgres's own may raise errors, which after a commit nobody can take. The file itself is durable already. */
static bool
file_appear(const char *hidden, const char *visible)
{
	char directory[MAXPGPATH];
	int fd;

	if (rename(hidden, visible) != 0)
	{
		rename_failed = true;
		ereport(LOG, (errcode_for_file_access(), errmsg("could not rename file \"%s\" to \"%s\": %m", hidden, visible),
					  errdetail("The batch is committed. It is tried again with the next batch, or when the query starts again.")));
		return false;
	}
	strlcpy(directory, visible, sizeof(directory));
	get_parent_directory(directory);
	fd = open(directory, O_RDONLY | PG_BINARY);
	if (fd < 0 || pg_fsync(fd) != 0)
		ereport(LOG, (errcode_for_file_access(), errmsg("could not fsync directory \"%s\": %m", directory)));
	if (fd >= 0)
		close(fd);
	return true;
}

static void
outcome_settle(Outcome *outcome, bool commit)
{
	if (commit && outcome->on_commit == ON_COMMIT_RENAME)
	{
		FAILPOINT("renaming");
		outcome->done = file_appear(outcome->hidden, outcome->visible);
	}
	else if (commit ? outcome->on_commit == ON_COMMIT_REMOVE && (outcome->after == NULL || outcome->after->done) : outcome->on_abort_remove)
		file_remove(outcome->hidden);
}

static void
outcomes_settle(XactEvent event, void *arg)
{
	dlist_mutable_iter iter;

	if (event != XACT_EVENT_COMMIT && event != XACT_EVENT_ABORT)
		return;
	dlist_foreach_modify(iter, &outcomes)
		outcome_settle(dlist_container(Outcome, node, iter.cur), event == XACT_EVENT_COMMIT);
	dlist_foreach_modify(iter, &outcomes)
	{
		dlist_delete(iter.cur);
		pfree(dlist_container(Outcome, node, iter.cur));
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

/* A file to be written in this transaction, that goes if it aborts. visible: what it is called afterwards, NULL: the same. */
static Outcome *
file_begin(const FileSeries *series, const char *hidden, const char *visible)
{
	Outcome *outcome;

	if (strlen(series->directory) + strlen(hidden) + 1 >= MAXPGPATH)
		ereport(ERROR, (errcode(ERRCODE_NAME_TOO_LONG), errmsg("file name \"%s/%s\" is too long", series->directory, hidden)));
	outcome = outcome_add(psprintf("%s/%s", series->directory, hidden));
	file_remove(outcome->hidden); /* of an attempt that died */
	outcome->on_commit = visible ? ON_COMMIT_RENAME : ON_COMMIT_KEEP;
	outcome->on_abort_remove = true;
	if (visible)
		snprintf(outcome->visible, MAXPGPATH, "%s/%s", series->directory, visible);
	return outcome;
}

char *
file_publish_prepare(const FileSeries *series, int64 batch_id, const char *extension)
{
	char *name = psprintf("%s%012lld.%s", series_prefix(series), (long long) batch_id, extension);

	return pstrdup(file_begin(series, psprintf(".%s", name), name)->hidden);
}

char *
file_publish_prepare_part(const FileSeries *series, int64 batch_id)
{
	return pstrdup(file_begin(series, psprintf(PART "%s%012lld", series_prefix(series), (long long) batch_id), NULL)->hidden);
}

char *
file_publish_prepare_whole(const FileSeries *series, int64 first, int64 last, const char *extension, List *parts)
{
	char *name = psprintf("%s%012lld-%012lld.%s", series_prefix(series), (long long) first, (long long) last, extension);
	Outcome *whole = file_begin(series, psprintf(NEW "%s", name), name);
	ListCell *lc;

	foreach (lc, parts)
		outcome_add(lfirst(lc))->after = whole;
	return pstrdup(whole->hidden);
}

void
file_publish_ready(const FileSeries *series)
{
	fsync_fname(series->directory, true);
}

/* ---- what was left ---- */

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

		if (!name_read(entry->d_name, prefix, file))
			continue;
		file->path = psprintf("%s/%s", series->directory, entry->d_name);
		if (file->kind == FILE_HIDDEN)
			file->visible = psprintf("%s/%s", series->directory, entry->d_name + 1);
		files = lappend(files, file);
	}
	FreeDir(dir);
	return files;
}

/* Has the file that took this part appeared? Then a crash kept the part from going. */
static bool
part_is_in(List *files, FoundFile *part)
{
	ListCell *lc;

	foreach (lc, files)
	{
		FoundFile *file = lfirst(lc);

		if (file->kind == FILE_VISIBLE && file->first <= part->first && part->first <= file->last)
			return true;
	}
	return false;
}

void
file_publish_recover(const FileSeries *series, int64 last_batch)
{
	List *files = series_files(series);
	ListCell *lc;

	rename_failed = false;
	foreach (lc, files)
	{
		FoundFile *file = lfirst(lc);

		if (file->last > last_batch || file->kind == FILE_NEW || (file->kind == FILE_PART && part_is_in(files, file)))
			file_remove(file->path);
		else if (file->kind == FILE_HIDDEN)
			(void) file_appear(file->path, file->visible);
	}
}

static int
by_batch(const ListCell *a, const ListCell *b)
{
	const FoundFile *x = lfirst(a), *y = lfirst(b);

	return x->first < y->first ? -1 : 1;
}

List *
file_publish_parts(const FileSeries *series, int64 last_batch, int64 *first, int64 *last)
{
	List *files = series_files(series), *paths = NIL;
	ListCell *lc;

	list_sort(files, by_batch);
	foreach (lc, files)
	{
		FoundFile *file = lfirst(lc);

		if (file->kind != FILE_PART || file->last > last_batch)
			continue;
		if (paths == NIL)
			*first = file->first;
		*last = file->last;
		paths = lappend(paths, file->path);
	}
	return paths;
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

		if (file->last < first_batch || file->first > last_batch || (file->kind == FILE_VISIBLE && !visible))
			continue;
		if (file->first < first_batch || file->last > last_batch)
			ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
							errmsg("batch " INT64_FORMAT " shares file \"%s\" with others", Max(first_batch, file->first), file->path),
							errdetail("It holds batches " INT64_FORMAT " to " INT64_FORMAT ".", file->first, file->last),
							errhint("Go back to batch " INT64_FORMAT " or " INT64_FORMAT ".", file->first - 1, file->last)));
		(void) outcome_add(file->path);
	}
}
