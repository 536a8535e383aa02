/*
 * change_start.c: a query begins to read changes: its replication slot, then the rows that are there, with nothing missing or doubled between them.
 *
 * The slot stands at a point of the log. Transactions running then are waited for; a snapshot taken afterwards sees every commit before that point, so
 * what it does not see, and that alone, comes as a change. Its rows are kept in stream.change_row until they are read: a snapshot does not survive a crash.
 */
#include "source/change.h"

#include "access/table.h"
#include "access/transam.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/catalog.h"
#include "catalog/pg_class.h"
#include "catalog/pg_index.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "storage/proc.h"
#include "util/compat.h"
#include "util/json_build.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/rls.h"
#include "utils/snapmgr.h"

/* ---- what must hold ---- */

void
change_check_server(SourceDef *def)
{
	if (wal_level < WAL_LEVEL_LOGICAL)
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE), errmsg("source %s cannot read changes: wal_level is too low", def->name),
						errdetail("The log says what happened to rows only with wal_level = logical."),
						errhint("Set wal_level = logical in postgresql.conf and restart the server.")));
}

static bool
has_identity(Relation rel)
{
	switch (rel->rd_rel->relreplident)
	{
		case REPLICA_IDENTITY_FULL:
			return true;
		case REPLICA_IDENTITY_NOTHING:
			return false;
		default:
			return OidIsValid(RelationGetReplicaIndex(rel)) || (rel->rd_rel->relkind == RELKIND_PARTITIONED_TABLE && OidIsValid(RelationGetPrimaryKeyIndex(rel)));
	}
}

void
change_check_readable(SourceDef *def)
{
	ChangeOptions *options = def->options;
	Oid relid = options->table.relid;
	bool whole = pg_class_aclcheck(relid, def->owner, ACL_SELECT) == ACLCHECK_OK;

	for (int i = 0; !whole && i < def->desc->natts; i++)
	{
		char *column = NameStr(TupleDescAttr(def->desc, i)->attname);

		if (options->columns[i] == CHANGE_TABLE_COLUMN && !TupleDescAttr(def->desc, i)->attisdropped &&
			pg_attribute_aclcheck(relid, get_attnum(relid, column), def->owner, ACL_SELECT) != ACLCHECK_OK)
			aclcheck_error_col(ACLCHECK_NO_PRIV, get_relkind_objtype(get_rel_relkind(relid)), get_rel_name(relid), column);
	}
	if (check_enable_rls(relid, def->owner, true) == RLS_ENABLED)
		ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE), errmsg("source %s cannot read changes of %s", def->name, table_full_name(relid)),
						errdetail("Row security is enabled for the source's owner, and the log knows nothing of policies."),
						errhint("Let a role that bypasses row security own the source.")));
}

void
change_check_table(SourceDef *def)
{
	ChangeOptions *options = def->options;
	Relation rel = table_open(options->table.relid, AccessShareLock);
	char *table = table_full_name(options->table.relid);

	if ((rel->rd_rel->relkind != RELKIND_RELATION && rel->rd_rel->relkind != RELKIND_PARTITIONED_TABLE) || IsCatalogRelation(rel))
		ereport(ERROR, (errcode(ERRCODE_WRONG_OBJECT_TYPE), errmsg("source %s cannot read changes of %s", def->name, table),
						errdetail("It must be a table or a partitioned table of this database.")));
	if (rel->rd_rel->relpersistence != RELPERSISTENCE_PERMANENT)
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED), errmsg("source %s cannot read changes of %s", def->name, table),
						errdetail("What happens to a temporary or unlogged table is not in the log."), errhint("ALTER TABLE %s SET LOGGED;", table)));
	change_check_readable(def);
	if (!has_identity(rel))
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE), errmsg("source %s cannot read changes of %s: it has no replica identity", def->name, table),
						errdetail("The log would not say which rows are updated or deleted."),
						errhint("Add a primary key, or ALTER TABLE %s REPLICA IDENTITY FULL; for a table that only grows use a source of kind table.", table)));
	table_close(rel, NoLock);
}

static void
check_role(SourceDef *def)
{
	if (!superuser() && !has_rolreplication(GetUserId()))
		ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE), errmsg("permission denied to read changes by source %s", def->name),
						errdetail("A query over it keeps a replication slot, which holds back WAL of the whole server."),
						errhint("ALTER ROLE %s REPLICATION;", GetUserNameFromId(GetUserId(), false))));
}

/* ---- the slot ---- */

/* One of this name is left over from a start that was rolled back. */
void
change_arrive(SourceReader *base)
{
	ChangeReader *reader = (ChangeReader *) base;
	MemoryContext old;
	ChangeSlot *slot;

	change_check_server(base->def);
	change_check_table(base->def);
	check_role(base->def);
	old = MemoryContextSwitchTo(base->context);
	slot = palloc0(sizeof(ChangeSlot));
	slot->query_id = base->query_id;
	slot->source = base->def->name;
	slot->slot = change_slot_name(base->query_id, base->def->relid);
	MemoryContextSwitchTo(old);
	change_slot_drop(slot->slot);
	slot->start = change_slot_create(slot->slot);
	reader->slot = slot;
}

/* ---- the rows ---- */

/* Whoever was running at the slot's start may have written its commit before it, and yet not be visible. */
static void
wait_for_running(void)
{
	Horizon *now;

	PushActiveSnapshot(GetLatestSnapshot());
	now = horizon_now();
	PopActiveSnapshot();
	for (int i = 0; i < now->nxip; i++)
		if (!TransactionIdIsCurrentTransactionId((TransactionId) now->xip[i]))
			XactLockTableWait((TransactionId) now->xip[i], NULL, NULL, XLTW_None);
}

static Jsonb *
row_json(SourceDef *def, TupleTableSlot *slot, FmgrInfo *output, Bitmapset *columns)
{
	JsonBuild b = {NULL, NULL};
	int i = -1;

	json_object_begin(&b, NULL);
	while ((i = bms_next_member(columns, i)) >= 0)
		if (i > 0)
			json_add_text(&b, NameStr(TupleDescAttr(def->desc, i - 1)->attname),
						  slot->tts_isnull[i - 1] ? NULL : OutputFunctionCall(&output[i - 1], slot->tts_values[i - 1]));
	json_object_end(&b);
	return json_result(&b);
}

/* 0 among them: and no others. */
static Bitmapset *
columns_of_table(SourceDef *def, FmgrInfo *output)
{
	Bitmapset *columns = bms_make_singleton(0);

	for (int i = 0; i < def->desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(def->desc, i);
		Oid function;
		bool varlena;

		if (att->attisdropped || ((ChangeOptions *) def->options)->columns[i] != CHANGE_TABLE_COLUMN)
			continue;
		getTypeOutputInfo(att->atttypid, &function, &varlena);
		fmgr_info(function, &output[i]);
		columns = bms_add_member(columns, i + 1);
	}
	return columns;
}

/* As text that says all of a value, whatever the query's settings; AtEOXact_GUC, or an abort, takes it back. */
static int
settings_of_text(void)
{
	static const char *const settings[][2] = {{"DateStyle", "ISO"}, {"IntervalStyle", "postgres"}, {"extra_float_digits", "3"}};
	int level = NewGUCNestLevel();

	for (int i = 0; i < lengthof(settings); i++)
		(void) set_config_option(settings[i][0], settings[i][1], PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
	return level;
}

static void
rows_keep(ChangeReader *reader)
{
	SourceDef *def = reader->table.base.def;
	int level = settings_of_text();
	FmgrInfo *output = palloc0(sizeof(FmgrInfo) * def->desc->natts);
	Bitmapset *columns = columns_of_table(def, output);
	TableScan *scan = table_scan_begin_all(&reader->table, columns);
	TupleTableSlot *slot = MakeSingleTupleTableSlot(def->desc, &TTSOpsVirtual);
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "stream_ext row", ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);

	while (table_scan_row(scan, slot))
	{
		change_row_add(reader->slot, ++reader->slot->rows, row_json(def, slot, output, columns));
		MemoryContextReset(context);
		CHECK_FOR_INTERRUPTS();
	}
	MemoryContextSwitchTo(old);
	table_scan_end(scan);
	ExecDropSingleTupleTableSlot(slot);
	MemoryContextDelete(context);
	AtEOXact_GUC(true, level);
}

/* Under one snapshot, which says what is no change later on. */
static void
rows_read(ChangeReader *reader)
{
	MemoryContext old;
	Horizon *seen;

	wait_for_running();
	PushActiveSnapshot(GetLatestSnapshot());
	old = MemoryContextSwitchTo(reader->table.base.context);
	seen = horizon_now();
	MemoryContextSwitchTo(old);
	rows_keep(reader);
	PopActiveSnapshot();
	reader->seen = seen;
	reader->slot->seen = seen->text;
	reader->slot->seen_until = GetXLogInsertRecPtr();
}

Position *
change_initial(SourceReader *base)
{
	ChangeReader *reader = (ChangeReader *) base;
	ChangeOptions *options = base->def->options;

	if (strcmp(options->snapshot, "initial") == 0)
		rows_read(reader);
	change_slot_add(reader->slot);
	return change_position_make(reader->slot->rows > 0 ? (ChangePosition){InvalidXLogRecPtr, 0} : (ChangePosition){reader->slot->start, CHANGE_ALL});
}
