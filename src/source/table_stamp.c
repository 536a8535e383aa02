/*
 * table_stamp.c: the two columns a table source rests on, and the triggers that keep them true.
 * stream_xid says which transaction brought a row, stream_seq its place in that transaction. A wrong stamp is a lost or a doubled row, so they are forced:
 * explicit values are replaced, updates leave them alone, a row that moves to another partition takes its own along.
 */
#include "source/table.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/transam.h"
#include "access/xact.h"
#include "catalog/dependency.h"
#include "catalog/namespace.h"
#include "catalog/partition.h"
#include "catalog/pg_class.h"
#include "catalog/pg_depend.h"
#include "catalog/pg_foreign_table.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "executor/spi.h"
#include "foreign/foreign.h"
#include "miscadmin.h"
#include "parser/parse_func.h"
#include "util/compat.h"
#include "util/options.h"
#include "util/wakeup.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"
#include "utils/varlena.h"
#include "utils/xid8.h"

PG_FUNCTION_INFO_V1(stream_next_arrival);
PG_FUNCTION_INFO_V1(stream_stamp_row);
PG_FUNCTION_INFO_V1(stream_keep_stamp);
PG_FUNCTION_INFO_V1(stream_refuse_change);
PG_FUNCTION_INFO_V1(stream_prepare_table);

static int64 arrivals = 0;			  /* last number given in this process; grows over its whole life, so it never repeats in a transaction */
static int64 arrivals_taken = 0;	  /* last number that a row has */
static Stamp moving = {0, 0};		  /* of the row last seen by an UPDATE: on its way to another partition, perhaps */
static LocalTransactionId moving_in;  /* in this transaction: a later one that brings the stamp copies it */

/* ---- numbers ---- */

/* Default of stream_seq. */
Datum
stream_next_arrival(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64(++arrivals);
}

/* The stamps are the last columns as a rule. Their types are looked at, too: anybody may put the triggers on a table of his own. */
static AttrNumber
stamp_column(Relation rel, const char *name, Oid type)
{
	TupleDesc desc = RelationGetDescr(rel);

	for (int i = desc->natts; i > 0; i--)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i - 1);

		if (!att->attisdropped && att->atttypid == type && namestrcmp(&att->attname, name) == 0)
			return i;
	}
	ereport(ERROR, (errcode(ERRCODE_UNDEFINED_COLUMN),
					errmsg("table \"%s\" is read as a stream but has no column \"%s\" of type %s", RelationGetRelationName(rel), name, format_type_be(type)),
					errhint("SELECT stream.prepare_table(%s);", quote_literal_cstr(table_full_name(RelationGetRelid(rel))))));
	return InvalidAttrNumber;
}

static void
stamp_columns(Relation rel, int *columns)
{
	columns[0] = stamp_column(rel, STAMP_XID, XID8OID);
	columns[1] = stamp_column(rel, STAMP_SEQ, INT8OID);
}

#define BEFORE_ROW (TRIGGER_EVENT_BEFORE | TRIGGER_EVENT_ROW)

/* Was it called for such an event, as far as the mask goes? */
static TriggerData *
trigger_check(FunctionCallInfo fcinfo, TriggerEvent mask, TriggerEvent event)
{
	TriggerData *trigger = (TriggerData *) fcinfo->context;

	if (!CALLED_AS_TRIGGER(fcinfo) || (trigger->tg_event & mask) != event)
		ereport(ERROR, (errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED), errmsg("function is a trigger of stream_ext, and not for such events"),
						errhint("Triggers are made by stream.create_source() and stream.prepare_table().")));
	return trigger;
}

/* Those who read the table or one of its parents learn of the row at commit. */
static void
readers_wake(Relation rel)
{
	static FullTransactionId last_xid;
	static Oid last_relid = InvalidOid;
	FullTransactionId xid = GetTopFullTransactionId();
	ListCell *lc;

	wakeup_at_commit(RelationGetRelid(rel));
	if (!rel->rd_rel->relispartition || (last_relid == RelationGetRelid(rel) && FullTransactionIdEquals(last_xid, xid)))
		return;
	foreach (lc, get_partition_ancestors(RelationGetRelid(rel)))
		wakeup_at_commit(lfirst_oid(lc));
	last_xid = xid;
	last_relid = RelationGetRelid(rel);
}

/* Is the stamp the one the columns' defaults have just made? Then nothing needs to be copied. */
static bool
stamp_is_fresh(Stamp stamp)
{
	if (stamp.xid != U64FromFullTransactionId(GetTopFullTransactionId()) || stamp.seq != arrivals || stamp.seq == arrivals_taken)
		return false;
	arrivals_taken = arrivals;
	return true;
}

static bool
stamp_is_moving(Stamp stamp)
{
	bool same = moving.xid != 0 && moving.xid == stamp.xid && moving.seq == stamp.seq && moving_in == MY_LOCAL_XID;

	moving.xid = 0;
	return same;
}

/* BEFORE INSERT FOR EACH ROW */
Datum
stream_stamp_row(PG_FUNCTION_ARGS)
{
	TriggerData *trigger = trigger_check(fcinfo, BEFORE_ROW | TRIGGER_EVENT_INSTEAD | TRIGGER_EVENT_OPMASK, BEFORE_ROW | TRIGGER_EVENT_INSERT);
	Relation rel = trigger->tg_relation;
	HeapTuple tuple = trigger->tg_trigtuple;
	int columns[2];
	Datum values[2];
	bool nulls[2];

	stamp_columns(rel, columns);
	readers_wake(rel);
	for (int i = 0; i < 2; i++)
		values[i] = heap_getattr(tuple, columns[i], RelationGetDescr(rel), &nulls[i]);
	if (!nulls[0] && !nulls[1])
	{
		Stamp stamp = {U64FromFullTransactionId(DatumGetFullTransactionId(values[0])), DatumGetInt64(values[1])};

		if (stamp_is_fresh(stamp) || stamp_is_moving(stamp))
			return PointerGetDatum(tuple);
	}
	values[0] = FullTransactionIdGetDatum(GetTopFullTransactionId());
	values[1] = Int64GetDatum(arrivals_taken = ++arrivals);
	nulls[0] = nulls[1] = false;
	return PointerGetDatum(heap_modify_tuple_by_cols(tuple, RelationGetDescr(rel), 2, columns, values, nulls));
}

/* BEFORE UPDATE FOR EACH ROW */
Datum
stream_keep_stamp(PG_FUNCTION_ARGS)
{
	TriggerData *trigger = trigger_check(fcinfo, BEFORE_ROW | TRIGGER_EVENT_INSTEAD | TRIGGER_EVENT_OPMASK, BEFORE_ROW | TRIGGER_EVENT_UPDATE);
	TupleDesc desc = RelationGetDescr(trigger->tg_relation);
	int columns[2];
	Datum old[2], new[2];
	bool nulls[2];
	bool isnull;

	stamp_columns(trigger->tg_relation, columns);
	for (int i = 0; i < 2; i++)
	{
		old[i] = heap_getattr(trigger->tg_trigtuple, columns[i], desc, &nulls[i]);
		new[i] = heap_getattr(trigger->tg_newtuple, columns[i], desc, &isnull);
		if (isnull)
			new[i] = ~old[i];
	}
	moving = (Stamp){U64FromFullTransactionId(DatumGetFullTransactionId(old[0])), DatumGetInt64(old[1])};
	moving_in = MY_LOCAL_XID;
	if (old[0] == new[0] && old[1] == new[1])
		return PointerGetDatum(trigger->tg_newtuple);
	return PointerGetDatum(heap_modify_tuple_by_cols(trigger->tg_newtuple, desc, 2, columns, old, nulls));
}

/* ---- the table of a source ---- */

char *
table_full_name(Oid relid)
{
	char *name = get_rel_name(relid);

	if (name == NULL)
		ereport(ERROR, (errcode(ERRCODE_UNDEFINED_TABLE), errmsg("relation with OID %u does not exist", relid)));
	return quote_qualified_identifier(get_namespace_name(get_rel_namespace(relid)), name);
}

Oid
table_by_name(const char *name, bool missing_ok)
{
	RangeVar *range = makeRangeVarFromNameList(textToQualifiedNameList(cstring_to_text(name)));
	Oid schema = range->schemaname ? get_namespace_oid(range->schemaname, true) : InvalidOid;
	Oid relid = OidIsValid(schema) ? get_relname_relid(range->relname, schema) : range->schemaname ? InvalidOid : RelnameGetRelid(range->relname);

	if (!OidIsValid(relid) && !missing_ok)
		ereport(ERROR, (errcode(ERRCODE_UNDEFINED_TABLE), errmsg("table %s of a source does not exist", name),
						errhint("After a rename, name it anew: SELECT stream.alter_source('source', '{\"table\": \"new_name\"}').")));
	return relid;
}

/* The one relation the source depends on; it keeps its identity through renames. */
static Oid
table_by_dependency(Oid source)
{
	Relation catalog = table_open(DependRelationId, AccessShareLock);
	ScanKeyData keys[2];
	SysScanDesc scan;
	HeapTuple tuple;
	Oid found = InvalidOid;

	ScanKeyInit(&keys[0], Anum_pg_depend_classid, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(RelationRelationId));
	ScanKeyInit(&keys[1], Anum_pg_depend_objid, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(source));
	scan = systable_beginscan(catalog, DependDependerIndexId, true, NULL, 2, keys);
	while ((tuple = systable_getnext(scan)) != NULL)
	{
		Form_pg_depend depend = (Form_pg_depend) GETSTRUCT(tuple);

		if (depend->refclassid == RelationRelationId && depend->deptype == DEPENDENCY_NORMAL)
			found = depend->refobjid;
	}
	systable_endscan(scan);
	table_close(catalog, AccessShareLock);
	return found;
}

static Oid
table_find(Oid source, const char *name)
{
	Oid relid = table_by_name(name, true);

	return OidIsValid(relid) ? relid : table_by_dependency(source);
}

Oid
table_of_source(Oid source, const char *name)
{
	Oid relid = table_find(source, name);

	return OidIsValid(relid) ? relid : table_by_name(name, false);
}

/* By the source's owner. */
static bool
table_is_owned(Oid relid, Oid source)
{
	HeapTuple tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(source));
	Oid owner = HeapTupleIsValid(tuple) ? ((Form_pg_class) GETSTRUCT(tuple))->relowner : InvalidOid;

	if (HeapTupleIsValid(tuple))
		ReleaseSysCache(tuple);
	return OidIsValid(owner) && pg_class_ownercheck(relid, owner);
}

/* ---- strict_append ---- */

static bool
is_strict_source_of(Oid foreign, Oid relid)
{
	ForeignTable *table = GetForeignTable(foreign);
	char *name = option_list_get(table->options, "table");
	char *strict = option_list_get(table->options, "strict_append");
	Oid base;
	bool on;

	if (name == NULL || strict == NULL || !parse_bool(strict, &on) || !on)
		return false;
	if (strcmp(GetForeignDataWrapper(GetForeignServer(table->serverid)->fdwid)->fdwname, "stream_table") != 0)
		return false;
	base = table_find(foreign, name);
	return (base == relid || list_member_oid(get_partition_ancestors(relid), base)) && table_is_owned(base, foreign);
}

static Oid
strict_source_of(Oid relid)
{
	Relation catalog = table_open(ForeignTableRelationId, AccessShareLock);
	SysScanDesc scan = systable_beginscan(catalog, InvalidOid, false, NULL, 0, NULL);
	Oid found = InvalidOid;
	HeapTuple tuple;

	while (!OidIsValid(found) && (tuple = systable_getnext(scan)) != NULL)
	{
		Oid foreign = ((Form_pg_foreign_table) GETSTRUCT(tuple))->ftrelid;

		if (is_strict_source_of(foreign, relid))
			found = foreign;
	}
	systable_endscan(scan);
	table_close(catalog, AccessShareLock);
	return found;
}

/* BEFORE UPDATE OR DELETE OR TRUNCATE FOR EACH STATEMENT: a source may ask that its table only grows. */
Datum
stream_refuse_change(PG_FUNCTION_ARGS)
{
	TriggerData *trigger = trigger_check(fcinfo, TRIGGER_EVENT_ROW, 0);
	Oid source = strict_source_of(RelationGetRelid(trigger->tg_relation));

	if (OidIsValid(source))
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("cannot %s rows of table \"%s\"",
							   TRIGGER_FIRED_BY_UPDATE(trigger->tg_event)	? "update"
							   : TRIGGER_FIRED_BY_DELETE(trigger->tg_event) ? "delete"
																			: "truncate",
							   RelationGetRelationName(trigger->tg_relation)),
						errdetail("Source \"%s\" reads them as a stream and has the option strict_append.", get_rel_name(source)),
						errhint("Without the option such changes are allowed, and queries do not see them.")));
	return PointerGetDatum(NULL);
}

/* ---- preparing a table ---- */

static bool
has_stamp_columns(Oid relid)
{
	AttrNumber xid = get_attnum(relid, STAMP_XID), seq = get_attnum(relid, STAMP_SEQ);

	return xid > 0 && seq > 0 && get_atttype(relid, xid) == XID8OID && get_atttype(relid, seq) == INT8OID;
}

bool
table_is_stamped(Oid relid)
{
	Relation rel = table_open(relid, AccessShareLock);
	Oid function = LookupFuncName(list_make2(makeString("stream"), makeString("stamp_row")), 0, NULL, false);
	bool found = false;

	for (int i = 0; rel->trigdesc && i < rel->trigdesc->numtriggers; i++)
		if (rel->trigdesc->triggers[i].tgfoid == function)
			found = true;
	table_close(rel, NoLock);
	return found && has_stamp_columns(relid);
}

static void
table_check_kind(Oid relid)
{
	char kind = get_rel_relkind(relid);
	const char *name = table_full_name(relid);

	if (kind != RELKIND_RELATION && kind != RELKIND_PARTITIONED_TABLE)
		ereport(ERROR, (errcode(ERRCODE_WRONG_OBJECT_TYPE), errmsg("a table source cannot read %s", name),
						errdetail("It must be a table or a partitioned table of this database.")));
	if (get_rel_namespace(relid) == get_namespace_oid("stream", true))
		ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE), errmsg("a table source cannot read catalog table %s", name)));
	if (get_rel_persistence(relid) == RELPERSISTENCE_TEMP)
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED), errmsg("a table source cannot read temporary table \"%s\"", get_rel_name(relid)),
						errdetail("The background worker that runs a query does not see temporary tables of your session.")));
	if (kind == RELKIND_RELATION && (has_subclass(relid) || has_superclass(relid)) && !get_rel_relispartition(relid))
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED), errmsg("a table source cannot read %s", name),
						errdetail("The table takes part in inheritance; its triggers do not see the rows of its relatives."),
						errhint("Use a partitioned table, or one source for each table and UNION ALL.")));
}

static void
table_refuse_own_columns(Oid relid)
{
	static const char *const names[] = {STAMP_XID, STAMP_SEQ};

	for (int i = 0; i < lengthof(names); i++)
		if (get_attnum(relid, names[i]) > 0)
			ereport(ERROR, (errcode(ERRCODE_DUPLICATE_COLUMN), errmsg("table %s has a column \"%s\" of its own", table_full_name(relid), names[i]),
							errdetail("The name is taken by the stream's bookkeeping."), errhint("Rename the column.")));
}

static void
ddl(const char *format, const char *table)
{
	if (SPI_execute(psprintf(format, table), false, 0) < 0)
		ereport(ERROR, (errcode(ERRCODE_INTERNAL_ERROR), errmsg("could not prepare table %s", table)));
}

/* stream_seq's default goes with the extension, and the table must take rows without it: no NOT NULL. */
static void
add_columns(const char *table)
{
	ddl("ALTER TABLE %s ADD COLUMN " STAMP_XID " pg_catalog.xid8 NOT NULL DEFAULT pg_catalog.pg_current_xact_id(),"
		" ADD COLUMN " STAMP_SEQ " pg_catalog.int8 DEFAULT stream.next_arrival()",
		table);
	ddl("CREATE INDEX ON %s (" STAMP_XID ", " STAMP_SEQ ")", table);
}

/* New stamps for all rows: those of a dump come from transactions of another cluster. */
static void
renew_columns(const char *table)
{
	ddl("ALTER TABLE %s ALTER COLUMN " STAMP_XID " TYPE pg_catalog.xid8 USING pg_catalog.pg_current_xact_id(),"
		" ALTER COLUMN " STAMP_SEQ " TYPE pg_catalog.int8 USING stream.next_arrival()",
		table);
	/* They go with the extension, the columns stay. */
	ddl("ALTER TABLE %s ALTER COLUMN " STAMP_XID " SET DEFAULT pg_catalog.pg_current_xact_id(),"
		" ALTER COLUMN " STAMP_SEQ " SET DEFAULT stream.next_arrival()",
		table);
}

static void
add_triggers(const char *table, bool rows_move)
{
	ddl("CREATE OR REPLACE TRIGGER stream_stamp BEFORE INSERT ON %s FOR EACH ROW EXECUTE FUNCTION stream.stamp_row()", table);
	/* In a partitioned table every update may move its row to another partition, which is an insert there. */
	ddl(rows_move ? "CREATE OR REPLACE TRIGGER stream_keep BEFORE UPDATE ON %s FOR EACH ROW EXECUTE FUNCTION stream.keep_stamp()"
				  : "CREATE OR REPLACE TRIGGER stream_keep BEFORE UPDATE OF " STAMP_XID ", " STAMP_SEQ " ON %s FOR EACH ROW EXECUTE FUNCTION stream.keep_stamp()",
		table);
	ddl("CREATE OR REPLACE TRIGGER stream_strict BEFORE UPDATE OR DELETE OR TRUNCATE ON %s FOR EACH STATEMENT EXECUTE FUNCTION stream.refuse_change()", table);
	/* Also under session_replication_role = replica: rows that logical replication brings are rows. */
	ddl("ALTER TABLE %s ENABLE ALWAYS TRIGGER stream_stamp", table);
	ddl("ALTER TABLE %s ENABLE ALWAYS TRIGGER stream_keep", table);
}

/*
 * As the current user, who must own the table. Rows that are there already are numbered as they lie: they are the stream's first rows.
 * renew: new stamps even where there are some.
 */
static void
table_stamp(Oid relid, bool renew)
{
	const char *name = table_full_name(relid);
	bool rows_move = get_rel_relkind(relid) == RELKIND_PARTITIONED_TABLE || get_rel_relispartition(relid);

	table_check_kind(relid);
	if (table_is_stamped(relid) && !renew)
		return;
	if (SPI_connect() != SPI_OK_CONNECT)
		ereport(ERROR, (errcode(ERRCODE_INTERNAL_ERROR), errmsg("could not prepare table %s", name)));
	if (OidIsValid(get_trigger_oid(relid, "stream_keep", true)))
		ddl("DROP TRIGGER stream_keep ON %s", name); /* it names the columns */
	if (has_stamp_columns(relid))
		renew_columns(name);
	else
	{
		table_refuse_own_columns(relid);
		add_columns(name);
	}
	add_triggers(name, rows_move);
	SPI_finish();
}

void
table_add_stamps(Oid relid)
{
	table_stamp(relid, false);
}

/* stream.prepare_table(regclass) */
Datum
stream_prepare_table(PG_FUNCTION_ARGS)
{
	Oid relid = PG_GETARG_OID(0);
	const char *name = table_full_name(relid);

	if (!pg_class_ownercheck(relid, GetUserId()))
		aclcheck_error(ACLCHECK_NOT_OWNER, get_relkind_objtype(get_rel_relkind(relid)), name);
	table_stamp(relid, true);
	PG_RETURN_VOID();
}
