/*
 * change_slot.c: rows of stream.change_slot and stream.change_row, and the end of the slots they name.
 * Forgotten row → name remembered → just before the commit: the slot is dropped, unless a savepoint brought the row back.
 */
#include "metadata/change_slot.h"

#include "access/xact.h"
#include "catalog/namespace.h"
#include "miscadmin.h"
#include "nodes/pg_list.h"
#include "nodes/value.h"
#include "replication/slot.h"
#include "util/heap.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/pg_lsn.h"

enum
{
	SLOT_QUERY, SLOT_SOURCE, SLOT_NAME, SLOT_START, SLOT_ROWS, SLOT_SEEN, SLOT_SEEN_UNTIL, SLOT_COLUMNS
};

static List *forgotten = NIL; /* names of slots, in TopTransactionContext */

static HeapScan *
slots_scan(int64 query_id, const char *source)
{
	Datum keys[] = {Int64GetDatum(query_id), source ? CStringGetTextDatum(source) : (Datum) 0};

	return heap_scan_begin("change_slot", "change_slot_pkey", query_id == 0 ? 0 : source ? 2 : 1, keys, false);
}

ChangeSlot *
change_slot_get(int64 query_id, const char *source)
{
	HeapScan *scan = slots_scan(query_id, source);
	ChangeSlot *slot = NULL;
	Datum v[SLOT_COLUMNS];
	bool n[SLOT_COLUMNS];

	if (heap_scan_next(scan, v, n))
	{
		slot = palloc0(sizeof(ChangeSlot));
		slot->query_id = query_id;
		slot->source = pstrdup(source);
		slot->slot = TextDatumGetCString(v[SLOT_NAME]);
		slot->start = DatumGetLSN(v[SLOT_START]);
		slot->rows = DatumGetInt64(v[SLOT_ROWS]);
		slot->seen = n[SLOT_SEEN] ? NULL : TextDatumGetCString(v[SLOT_SEEN]);
		slot->seen_until = DatumGetLSN(v[SLOT_SEEN_UNTIL]);
	}
	heap_scan_end(scan);
	return slot;
}

void
change_slot_add(const ChangeSlot *slot)
{
	Datum v[SLOT_COLUMNS];
	bool n[SLOT_COLUMNS] = {false};

	v[SLOT_QUERY] = Int64GetDatum(slot->query_id);
	v[SLOT_SOURCE] = CStringGetTextDatum(slot->source);
	v[SLOT_NAME] = CStringGetTextDatum(slot->slot);
	v[SLOT_START] = LSNGetDatum(slot->start);
	v[SLOT_ROWS] = Int64GetDatum(slot->rows);
	n[SLOT_SEEN] = slot->seen == NULL;
	v[SLOT_SEEN] = slot->seen ? CStringGetTextDatum(slot->seen) : (Datum) 0;
	v[SLOT_SEEN_UNTIL] = LSNGetDatum(slot->seen_until);
	heap_insert_row("change_slot", v, n);
}

struct ReplicationSlot *
change_slot_find(const char *name)
{
	ReplicationSlot *slot = SearchNamedReplicationSlot(name, true);

	return slot && slot->data.database == MyDatabaseId ? slot : NULL;
}

void
change_slot_drop(const char *slot)
{
	if (change_slot_find(slot) != NULL)
		ReplicationSlotDrop(slot, true);
}

/* Is there a row that names the slot? Not when the tables themselves are gone. */
static bool
slot_is_wanted(const char *name)
{
	Oid schema = get_namespace_oid("stream", true);
	HeapScan *scan;
	Datum v[SLOT_COLUMNS];
	bool n[SLOT_COLUMNS];
	bool found = false;

	if (!OidIsValid(schema) || !OidIsValid(get_relname_relid("change_slot", schema)))
		return false;
	scan = slots_scan(0, NULL);
	while (!found && heap_scan_next(scan, v, n))
		found = strcmp(TextDatumGetCString(v[SLOT_NAME]), name) == 0;
	heap_scan_end(scan);
	return found;
}

static void
forgotten_drop(XactEvent event, void *arg)
{
	List *names = forgotten;
	ListCell *lc;

	if (event == XACT_EVENT_PRE_PREPARE && names != NIL)
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED), errmsg("cannot prepare a transaction that drops or resets a query with a changes source"),
						errdetail("The query's replication slot goes with the commit."), errhint("Commit it in one phase.")));
	if (event == XACT_EVENT_PRE_COMMIT)
		foreach (lc, names)
			if (!slot_is_wanted(strVal(lfirst(lc))))
				change_slot_drop(strVal(lfirst(lc)));
	if (event == XACT_EVENT_PRE_COMMIT || event == XACT_EVENT_ABORT)
		forgotten = NIL;
}

static void
slot_forget(const char *name)
{
	static bool registered = false;
	MemoryContext old = MemoryContextSwitchTo(TopTransactionContext);

	if (!registered)
		RegisterXactCallback(forgotten_drop, NULL);
	registered = true;
	forgotten = lappend(forgotten, makeString(pstrdup(name)));
	MemoryContextSwitchTo(old);
}

/* Slots of a query (0: of all in this database), also such as no row tells of: their first transaction was rolled back, or the server died in it. */
static void
slots_forget_by_name(int64 query_id)
{
	char *prefix = query_id == 0 ? psprintf("stream_%u_", MyDatabaseId) : psprintf("stream_%u_" INT64_FORMAT "_", MyDatabaseId, query_id);
	NameData name;

	for (int i = 0; i < max_replication_slots; i++)
		if (ReplicationSlotName(i, &name) && strncmp(NameStr(name), prefix, strlen(prefix)) == 0)
			slot_forget(NameStr(name));
}

char *
change_slot_name(int64 query_id, Oid source)
{
	return psprintf("stream_%u_" INT64_FORMAT "_%u", MyDatabaseId, query_id, source);
}

void
change_slots_forget(int64 query_id)
{
	(void) change_slots_keep(query_id, NIL);
	slots_forget_by_name(query_id);
}

/* Is the source among those that stay? */
static bool
source_stays(List *sources, const char *source)
{
	ListCell *lc;

	foreach (lc, sources)
		if (strcmp(lfirst(lc), source) == 0)
			return true;
	return false;
}

List *
change_slots_keep(int64 query_id, List *sources)
{
	HeapScan *scan = slots_scan(query_id, NULL);
	List *gone = NIL;
	Datum v[SLOT_COLUMNS];
	bool n[SLOT_COLUMNS];
	HeapTuple tuple;

	while ((tuple = heap_scan_next(scan, v, n)) != NULL)
	{
		char *source = TextDatumGetCString(v[SLOT_SOURCE]);

		if (source_stays(sources, source))
			continue;
		slot_forget(TextDatumGetCString(v[SLOT_NAME]));
		heap_delete_row("change_slot", tuple);
		(void) change_rows_delete(query_id, source);
		gone = lappend(gone, source);
	}
	heap_scan_end(scan);
	return gone;
}

void
change_slots_gone(void)
{
	slots_forget_by_name(0);
}

void
change_row_add(const ChangeSlot *slot, int64 n, Jsonb *row)
{
	Datum v[ROW_COLUMNS];
	bool nulls[ROW_COLUMNS] = {false};

	v[ROW_QUERY] = Int64GetDatum(slot->query_id);
	v[ROW_SOURCE] = CStringGetTextDatum(slot->source);
	v[ROW_N] = Int64GetDatum(n);
	v[ROW_DATA] = JsonbPGetDatum(row);
	heap_insert_row("change_row", v, nulls);
}

int64
change_rows_delete(int64 query_id, const char *source)
{
	Datum keys[] = {Int64GetDatum(query_id), CStringGetTextDatum(source)};
	HeapScan *scan = heap_scan_begin("change_row", "change_row_pkey", 2, keys, false);
	HeapTuple tuple;
	int64 rows = 0;

	for (; (tuple = heap_scan_next(scan, NULL, NULL)) != NULL; rows++)
		heap_delete_row("change_row", tuple);
	heap_scan_end(scan);
	return rows;
}
