/*
 * table.c: the table source: rows of an append-only table of this database, exactly once, whatever order transactions commit in.
 * A batch is what the new snapshot sees and the old one does not; a limit may split it, and the place in it is exact across restarts and rewrites of the
 * table. Rows that are updated or deleted before their batch reads them are read as they are then; afterwards queries do not see such changes.
 */
#include "source/table.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "access/heapam.h"
#include "access/tableam.h"
#include "access/transam.h"
#include "catalog/pg_class.h"
#include "catalog/pg_foreign_table.h"
#include "miscadmin.h"
#include "metadata/incarnation.h"
#include "nodes/value.h"
#include "util/compat.h"
#include "util/heap.h"
#include "util/options.h"
#include "util/wakeup.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/ruleutils.h"
#include "utils/syscache.h"
#include "utils/uuid.h"

/* ---- options ---- */

static const OptionDef option_defs[] = {{"table", OPTION_TEXT, offsetof(TableOptions, table), 0, 0, NULL},
										{"strict_append", OPTION_BOOL, offsetof(TableOptions, strict_append), 0, 0, NULL},
										{NULL, 0, 0, 0, 0, NULL}};

/* The columns of the base table, without the stamps. */
char *
table_columns(Oid relid)
{
	Relation rel = table_open(relid, AccessShareLock);
	TupleDesc desc = RelationGetDescr(rel);
	StringInfoData buf;

	initStringInfo(&buf);
	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);
		const char *name = NameStr(att->attname);

		if (att->attisdropped || strcmp(name, STAMP_XID) == 0 || strcmp(name, STAMP_SEQ) == 0)
			continue;
		appendStringInfo(&buf, "%s%s %s", buf.len ? ", " : "", quote_identifier(name),
						 format_type_extended(att->atttypid, att->atttypmod, FORMAT_TYPE_TYPEMOD_GIVEN | FORMAT_TYPE_FORCE_QUALIFY));
		if (OidIsValid(att->attcollation) && att->attcollation != get_typcollation(att->atttypid))
			appendStringInfo(&buf, " COLLATE %s", generate_collation_name(att->attcollation));
	}
	table_close(rel, NoLock);
	return buf.data;
}

/* The table that option "table" names; from now on by its full name. The current user may read it. */
Oid
table_named(const char *name, List *options)
{
	char *table = option_list_get(options, "table");
	Oid relid;
	ListCell *lc;

	if (table == NULL)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("source \"%s\" needs the option \"table\"", name),
						errhint("Name the table whose rows are the stream: '{\"table\": \"orders\"}'.")));
	relid = table_by_name(table, false);
	if (pg_class_aclcheck(relid, GetUserId(), ACL_SELECT) != ACLCHECK_OK &&
		pg_attribute_aclcheck_all(relid, GetUserId(), ACL_SELECT, ACLMASK_ANY) != ACLCHECK_OK)
		aclcheck_error(ACLCHECK_NO_PRIV, get_relkind_objtype(get_rel_relkind(relid)), get_rel_name(relid));
	foreach (lc, options)
	{
		DefElem *def = lfirst_node(DefElem, lc);

		if (strcmp(def->defname, "table") == 0)
			def->arg = (Node *) makeString(table_full_name(relid));
	}
	return relid;
}

static char *
table_prepare(const char *name, List *options, const char *columns)
{
	Oid relid = table_named(name, options);

	table_add_stamps(relid);
	return columns ? pstrdup(columns) : table_columns(relid);
}

void
table_check_column(SourceDef *def, Oid relid, Form_pg_attribute att)
{
	AttrNumber base = get_attnum(relid, NameStr(att->attname));

	if (base <= 0)
		ereport(ERROR, (errcode(ERRCODE_UNDEFINED_COLUMN),
						errmsg("column \"%s\" of source %s is not in its table %s", NameStr(att->attname), def->name, table_full_name(relid)),
						errhint("Drop it from the source: ALTER FOREIGN TABLE %s DROP COLUMN %s;", def->name, quote_identifier(NameStr(att->attname)))));
	if (get_atttype(relid, base) != att->atttypid)
		ereport(ERROR, (errcode(ERRCODE_DATATYPE_MISMATCH),
						errmsg("column \"%s\" of source %s is of type %s, but %s in its table", NameStr(att->attname), def->name,
							   format_type_be(att->atttypid), format_type_be(get_atttype(relid, base)))));
}

/* The table that source def reads, by option "table". */
Oid
table_of_def(SourceDef *def)
{
	char *table = option_list_get(def->table_options, "table");

	if (table == NULL)
		ereport(ERROR, (errcode(ERRCODE_FDW_OPTION_NAME_NOT_FOUND), errmsg("source %s needs the option \"table\"", def->name)));
	return table_of_source(def->relid, table);
}

static void
table_parse(SourceDef *def)
{
	TableOptions *options = palloc0(sizeof(TableOptions));

	source_parse_options(def, options, NULL, NULL);
	options->relid = table_of_def(def);
	for (int i = 0; i < def->desc->natts; i++)
		if (!TupleDescAttr(def->desc, i)->attisdropped)
			table_check_column(def, options->relid, TupleDescAttr(def->desc, i));
	if (options->strict_append && !pg_class_ownercheck(options->relid, def->owner))
		ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE), errmsg("permission denied for option \"strict_append\" of source %s", def->name),
						errdetail("It refuses changes to table %s, which is for the table's owner to say.", table_full_name(options->relid))));
}

/* ---- open ---- */

static Oid
base_relid(SourceReader *reader)
{
	return ((TableOptions *) reader->def->options)->relid;
}

static SourceReader *
table_source_open(SourceDef *def)
{
	TableReader *reader = palloc0(sizeof(TableReader));

	reader->base.ops = &table_source;
	reader->base.def = def;
	reader->base.context = CurrentMemoryContext;
	reader->incarnation = incarnation_read();
	table_reader_watch(reader);
	if (IsBackgroundWorker)
		(void) wakeup_subscribe(base_relid(&reader->base));
	return &reader->base;
}

static void
table_source_close(SourceReader *reader)
{
}

/* The table may have been dropped and made again, where nobody recorded that the source depends on it. */
static void
reader_check_table(TableReader *reader)
{
	SourceDef *def = reader->base.def;
	TableOptions *options = def->options;

	if (SearchSysCacheExists1(RELOID, ObjectIdGetDatum(options->relid)))
		return;
	options->relid = table_of_source(def->relid, options->table);
	reader->prepared = false;
	reader->stale = true;
	if (IsBackgroundWorker)
		(void) wakeup_subscribe(options->relid);
}

static void
reader_check_prepared(TableReader *reader)
{
	Oid relid;

	reader_check_table(reader);
	relid = base_relid(&reader->base);
	if (!reader->prepared && !table_is_stamped(relid))
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("table %s of source %s is not prepared to be read as a stream", table_full_name(relid), reader->base.def->name),
						errhint("As its owner: SELECT stream.prepare_table(%s);", quote_literal_cstr(table_full_name(relid)))));
	reader->prepared = true;
}

/* ---- positions ---- */

static Position *
table_initial(SourceReader *reader)
{
	return NULL;
}

static Position *
table_latest(SourceReader *base)
{
	TableReader *reader = (TableReader *) base;

	reader_check_prepared(reader);
	return position_make(reader, horizon_now(), NULL, NULL);
}

/* Rows of the pieces, counted until a limit is reached (one row at least); *last: stamp of the last one counted, *full: there was a limit to stop at. */
static int64
pieces_count(TableReader *reader, List *pieces, const ReadLimit *limit, Stamp *last, bool *full)
{
	TableScan *scan = table_scan_begin(reader, pieces, NULL, limit->max_bytes > 0 ? TABLE_SIZES : TABLE_STAMPS);
	int64 n = 0, total = 0, bytes;
	Stamp stamp;

	*full = false;
	while (!*full && table_scan_stamp(scan, &stamp, &bytes))
	{
		total += bytes;
		if (n > 0 && limit->max_bytes > 0 && total > limit->max_bytes)
			*full = true;
		else
		{
			*last = stamp;
			*full = ++n == limit->max_rows;
		}
	}
	table_scan_end(scan);
	return n;
}

static bool
pieces_have_rows(TableReader *reader, List *pieces)
{
	ReadLimit one = {.max_rows = 1};
	Stamp last;
	bool full;

	return pieces_count(reader, pieces, &one, &last, &full) > 0;
}

static int64
rows_waiting(TableReader *reader, List *pieces, int64 enough)
{
	ReadLimit limit = {.max_rows = enough};
	Stamp last;
	bool full;

	return pieces_count(reader, pieces, &limit, &last, &full);
}

/* A new query reads everything: rows of a restored dump may carry transaction ids this cluster has not reached, and would never become visible. */
static void
stamps_check_past(TableReader *reader)
{
	uint64 next = U64FromFullTransactionId(ReadNextFullTransactionId());
	Horizon reached = {next, 0, NULL, ""}, any = {PG_UINT64_MAX, 0, NULL, ""};
	TablePiece future = {&reached, &any, STAMP_FIRST, STAMP_LAST};

	if (pieces_have_rows(reader, list_make1(&future)))
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("rows of table %s carry stamps of another database cluster", table_full_name(base_relid(&reader->base))),
						errdetail("The table was restored from a dump."),
						errhint("As its owner: SELECT stream.prepare_table(%s);", quote_literal_cstr(table_full_name(base_relid(&reader->base))))));
}

/* With a limit: the next rows of the first piece that has any. */
static void
advance_within_limit(TableReader *reader, TablePosition start, Horizon *now, const ReadLimit *limit, SourceAdvance *result)
{
	TablePosition end = {now, NULL, {0, 0}};
	List *pieces = position_pieces(start, end);
	ListCell *lc;

	foreach (lc, pieces)
	{
		TablePiece *piece = lfirst(lc);
		List *rest = list_copy_tail(pieces, foreach_current_index(lc) + 1);
		Stamp last;
		bool full;
		int64 n = pieces_count(reader, list_make1(piece), limit, &last, &full);

		if (n == 0)
			continue;
		result->rows = n;
		if (full)
		{
			TablePiece behind = *piece;

			behind.after = last;
			if (pieces_have_rows(reader, list_make1(&behind)))
			{
				result->end = position_make(reader, piece->low, piece->high, &last);
				result->more = true;
				return;
			}
		}
		result->end = position_make(reader, piece->high, NULL, NULL);
		result->more = pieces_have_rows(reader, rest);
		return;
	}
}

static SourceAdvance
table_advance(SourceReader *base, Position *from, Position *ceiling, const ReadLimit *limit)
{
	TableReader *reader = (TableReader *) base;
	SourceAdvance result = {.rows = -1, .rows_waiting = -1};
	TablePosition start = position_read(reader, from);
	Horizon *now = ceiling ? position_read(reader, ceiling).read : horizon_now();
	TablePosition end = {now, NULL, {0, 0}};

	reader_check_prepared(reader);
	if (from == NULL)
		stamps_check_past(reader);
	if (limit && limit->min_rows > 0)
		result.rows_waiting = rows_waiting(reader, position_pieces(start, end), limit->min_rows);
	if (limit && (limit->max_rows > 0 || limit->max_bytes > 0))
		advance_within_limit(reader, start, now, limit, &result);
	else if (pieces_have_rows(reader, position_pieces(start, end)))
		result.end = position_make(reader, now, NULL, NULL);
	return result;
}

/* ---- scans ---- */

static void
table_source_scan_begin(SourceScan *scan)
{
	TableReader *reader = (TableReader *) scan->reader;

	if (scan->batch == NULL && scan->to == NULL)
	{
		reader_check_table(reader);
		scan->state = table_scan_begin_all(reader, scan->needed);
		return;
	}
	reader_check_prepared(reader);
	scan->state = table_scan_begin(reader, position_pieces(position_read(reader, scan->from), position_read(reader, scan->to)), scan->needed, TABLE_COLUMNS);
}

/* Of a shared range all rows are read, in their order; those of others are passed over. */
static bool
table_source_scan_next(SourceScan *scan, TupleTableSlot *slot)
{
	SourceBatch *batch = scan->batch;

	while (table_scan_row(scan->state, slot))
	{
		if (batch == NULL || batch->shares == 0)
			return true;
		scan->order = table_scan_rows(scan->state) / batch->share_rows;
		if (scan->order % batch->shares == batch->share)
			return true;
	}
	return false;
}

static void
table_source_scan_rewind(SourceScan *scan)
{
	table_scan_rewind(scan->state);
}

static void
table_source_scan_end(SourceScan *scan)
{
	table_scan_end(scan->state);
}

static Oid
table_base_relation(SourceDef *def)
{
	return ((TableOptions *) def->options)->relid;
}

const SourceOps table_source = {
	.kind = "table",
	.server = "stream_table",
	.shares = true,
	.options = option_defs,
	.options_size = sizeof(TableOptions),
	.prepare = table_prepare,
	.parse = table_parse,
	.open = table_source_open,
	.initial = table_initial,
	.latest = table_latest,
	.advance = table_advance,
	.scan_begin = table_source_scan_begin,
	.scan_next = table_source_scan_next,
	.scan_rewind = table_source_scan_rewind,
	.scan_end = table_source_scan_end,
	.base_relation = table_base_relation,
	.close = table_source_close,
};
