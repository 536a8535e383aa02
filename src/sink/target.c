/*
 * target.c: the table a table sink writes to. Columns are matched by name; Postgres checks types and privileges, as the query's owner.
 * Upserts rest on one unique index over the key, with NULLs equal; without it a NULL group would be added again in every batch.
 */
#include "sink/target.h"

#include "access/table.h"
#include "catalog/catalog.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "commands/defrem.h"
#include "executor/spi.h"
#include "foreign/fdwapi.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "nodes/value.h"
#include "util/closest.h"
#include "util/compat.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/ruleutils.h"
#include "utils/typcache.h"
#include "utils/varlena.h"

#define DEFAULT_BATCH_ID "batch_id"

/* ---- options ---- */

static const char *const all_options = "key, batch_id_column, on_bad_row, op_column, unchanged_column";

static void
option_error(SinkDef *def, const char *name, const char *expected)
{
	ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					errmsg("invalid value for option \"%s\" of the table sink of query \"%s\"", name, def->query_name),
					errdetail("Expected %s.", expected)));
}

static List *
option_names(SinkDef *def, const char *name, JsonbValue *value)
{
	List *names = NIL;
	JsonbIterator *it;
	JsonbValue element;
	JsonbIteratorToken token;

	if (value->type == jbvString)
		return list_make1(makeString(pnstrdup(value->val.string.val, value->val.string.len)));
	if (value->type != jbvBinary || !JsonContainerIsArray(value->val.binary.data))
		option_error(def, name, "a list of the query's columns");
	it = JsonbIteratorInit(value->val.binary.data);
	while ((token = JsonbIteratorNext(&it, &element, true)) != WJB_DONE)
	{
		if (token != WJB_ELEM)
			continue;
		if (element.type != jbvString)
			option_error(def, name, "a list of the query's columns");
		names = lappend(names, makeString(pnstrdup(element.val.string.val, element.val.string.len)));
	}
	if (names == NIL)
		option_error(def, name, "at least one of the query's columns");
	return names;
}

static bool
option_diverts(SinkDef *def, const char *name, JsonbValue *value)
{
	char *policy = value->type == jbvString ? pnstrdup(value->val.string.val, value->val.string.len) : "";

	if (value->type == jbvNull || strcmp(policy, "fail") == 0)
		return false;
	if (strcmp(policy, "dead_letter") != 0)
		option_error(def, name, "one of fail, dead_letter");
	return true;
}

static char *
option_column(SinkDef *def, const char *name, JsonbValue *value, const char *expected)
{
	if (value->type == jbvNull)
		return NULL;
	if (value->type != jbvString)
		option_error(def, name, expected);
	return pnstrdup(value->val.string.val, value->val.string.len);
}

/* {"key": ["a", "b"], "batch_id_column": "batch", "on_bad_row": "dead_letter"}; a JSON null for the column means: there is none. */
static void
options_read(SinkDef *def, Target *target, List **key)
{
	JsonbIterator *it;
	JsonbValue v;
	JsonbIteratorToken token;

	*key = NIL;
	target->batch_id = pstrdup(DEFAULT_BATCH_ID);
	if (def->options == NULL)
		return;
	if (!JB_ROOT_IS_OBJECT(def->options))
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("options of the table sink of query \"%s\" must be a JSON object", def->query_name)));
	it = JsonbIteratorInit(&def->options->root);
	while ((token = JsonbIteratorNext(&it, &v, true)) != WJB_DONE)
	{
		char *name;

		if (token != WJB_KEY)
			continue;
		name = pnstrdup(v.val.string.val, v.val.string.len);
		JsonbIteratorNext(&it, &v, true);
		if (strcmp(name, "key") == 0)
			*key = v.type == jbvNull ? NIL : option_names(def, name, &v);
		else if (strcmp(name, "batch_id_column") == 0)
		{
			target->batch_id_required = true;
			target->batch_id = option_column(def, name, &v, "a column name, or null for none");
		}
		else if (strcmp(name, "op_column") == 0)
			target->op = option_column(def, name, &v, "one of the query's columns");
		else if (strcmp(name, "unchanged_column") == 0)
			target->unchanged = option_column(def, name, &v, "one of the query's columns");
		else if (strcmp(name, "on_bad_row") == 0)
			target->divert = option_diverts(def, name, &v);
		else
			ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
							errmsg("unknown option \"%s\" of the table sink of query \"%s\"", name, def->query_name),
							errdetail("Valid options are: %s.", all_options), closest_hint(name, all_options)));
	}
}

static List *
shape_columns(SinkShape *shape)
{
	List *columns = NIL;

	for (int i = 0; i < shape->desc->natts; i++)
		columns = lappend(columns, makeString(pstrdup(NameStr(TupleDescAttr(shape->desc, i)->attname))));
	return columns;
}

static void
key_from_option(Target *target, SinkDef *def, SinkShape *shape, List *key)
{
	ListCell *lc;

	if (shape->mode == OUTPUT_COMPLETE)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("option \"key\" has no meaning in complete mode"),
						errdetail("Every batch of query \"%s\" replaces the contents of its target.", def->query_name),
						errhint("Leave the option out, or use update mode.")));
	foreach (lc, key)
		if (!list_member(target->columns, lfirst(lc)))
			ereport(ERROR, (errcode(ERRCODE_UNDEFINED_COLUMN),
							errmsg("key column \"%s\" is not a column of query \"%s\"", strVal(lfirst(lc)), def->query_name)));
	target->upsert = true;
	target->key = key;
}

/* Is every column of the target's key one of the query's own? Another key than that says nothing of a row whose values are gone. */
static bool
key_is_told(Target *target, SinkShape *shape, bool *same)
{
	int told = 0;

	for (int i = 1; i <= shape->desc->natts; i++)
		if (bms_is_member(i, shape->key) && list_member(target->key, list_nth(target->columns, i - 1)))
			told++;
	*same = told == list_length(target->key) && told == bms_num_members(shape->key);
	return told == list_length(target->key);
}

static List *
columns_of(Target *target, Bitmapset *members)
{
	List *columns = NIL;
	int i = -1;

	while ((i = bms_next_member(members, i)) >= 0)
		columns = lappend(columns, list_nth(target->columns, i - 1));
	return columns;
}

/* HAVING alone takes rows back only where one key is one group; the rest has to. */
static void
decide_retraction(Target *target, SinkDef *def, SinkShape *shape)
{
	bool same = false, told;

	if (shape->replaces && (!key_is_told(target, shape, &same) || !same))
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED), errmsg("%s cannot be told apart by key (%s)", shape->leaving, target_column_list(target->key)),
						errdetail("In the target of query \"%s\" a better row takes the place of the one it pushes out.", def->query_name),
						errhint("Leave out the table sink's option \"key\".")));
	if (!shape->retracts)
		return;
	told = !target->upsert || shape->whole_rows || key_is_told(target, shape, &same);
	target->retracts = shape->leaving || same;
	if (!told && shape->leaving)
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						errmsg("%s cannot take rows back by key (%s)", shape->leaving, target_column_list(target->key)),
						errdetail("The key of query \"%s\" holds results, which are not known of a row that leaves.", def->query_name),
						errhint("Leave out the table sink's option \"key\", or name only columns that say which row it is.")));
}

Target *
target_describe(SinkDef *def, SinkShape *shape)
{
	Target *target = palloc0(sizeof(Target));
	List *key;

	options_read(def, target, &key);
	target->columns = shape_columns(shape);
	if (target->batch_id && list_member(target->columns, makeString(target->batch_id)))
		ereport(ERROR, (errcode(ERRCODE_DUPLICATE_COLUMN),
						errmsg("column \"%s\" of query \"%s\" has the name of the column that takes the batch id", target->batch_id, def->query_name),
						errhint("Rename it in the query, or set the table sink's option batch_id_column to another name, or to null for none.")));
	if (key != NIL)
		key_from_option(target, def, shape, key);
	else if (shape->mode == OUTPUT_UPDATE && shape->aggregated)
	{
		if (shape->expanded)
			ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED), errmsg("a set-returning function of aggregates cannot be upserted into a table"),
							errdetail("The rows that column \"%s\" of query \"%s\" makes of a group would replace each other.", shape->expanded, def->query_name),
							errhint("Use output mode complete, name columns that tell them apart in the table sink's option \"key\", or call the function when you read the target.")));
		target->upsert = target->key_is_shape_key = true;
		/* whole groups are found by the first columns of the index */
		target->key = list_concat(columns_of(target, bms_intersect(shape->key, shape->groups)), columns_of(target, bms_difference(shape->key, shape->groups)));
	}
	decide_retraction(target, def, shape);
	return target;
}

/* ---- the relation ---- */

static RangeVar *
target_range_var(SinkDef *def)
{
	return makeRangeVarFromNameList(textToQualifiedNameList(cstring_to_text(def->target)));
}

static void
relation_check_foreign(Relation rel, Target *target, SinkDef *def, SinkShape *shape)
{
	FdwRoutine *fdw = GetFdwRoutineForRelation(rel, false);
	bool clears = shape->mode == OUTPUT_COMPLETE;

	if (fdw->ExecForeignInsert == NULL || (clears && fdw->ExecForeignDelete == NULL))
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED), errmsg("query \"%s\" cannot write to foreign table %s", def->query_name, target->name),
						errdetail("Its foreign-data wrapper does not support %s.", fdw->ExecForeignInsert == NULL ? "INSERT" : "DELETE")));
	if (target->upsert || target->retracts)
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED), errmsg("query \"%s\" cannot upsert into foreign table %s", def->query_name, target->name),
						errdetail("Postgres has no ON CONFLICT DO UPDATE on foreign tables."), errhint("Use append mode, or an ordinary table.")));
}

static void
relation_check_kind(Relation rel, Target *target, SinkDef *def, SinkShape *shape)
{
	char kind = rel->rd_rel->relkind;

	if (kind != RELKIND_RELATION && kind != RELKIND_PARTITIONED_TABLE && kind != RELKIND_FOREIGN_TABLE)
		ereport(ERROR, (errcode(ERRCODE_WRONG_OBJECT_TYPE), errmsg("query \"%s\" cannot write to %s", def->query_name, target->name),
						errdetail("It is not a table."), errhint("Name a table, a partitioned table or a foreign table; a missing table is created.")));
	if (IsSystemRelation(rel) || RelationGetNamespace(rel) == get_namespace_oid("stream", true))
		ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE), errmsg("query \"%s\" cannot write to catalog table %s", def->query_name, target->name)));
	if (rel->rd_rel->relpersistence == RELPERSISTENCE_TEMP)
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED), errmsg("query \"%s\" cannot write to temporary table \"%s\"", def->query_name, RelationGetRelationName(rel)),
						errdetail("The background worker that runs the query does not see temporary tables of your session.")));
	if (rel->rd_rules != NULL)
		ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED), errmsg("query \"%s\" cannot write to %s", def->query_name, target->name),
						errdetail("The table has rewrite rules."), errhint("Use triggers instead of rules.")));
	if (kind == RELKIND_FOREIGN_TABLE)
		relation_check_foreign(rel, target, def, shape);
}

/* The executor checks again, column by column; here it is said before anything else about the table is. */
static void
relation_check_rights(Relation rel, Target *target)
{
	if (pg_class_aclcheck(target->relid, GetUserId(), ACL_INSERT) != ACLCHECK_OK &&
		pg_attribute_aclcheck_all(target->relid, GetUserId(), ACL_INSERT, ACLMASK_ANY) != ACLCHECK_OK)
		aclcheck_error(ACLCHECK_NO_PRIV, get_relkind_objtype(rel->rd_rel->relkind), RelationGetRelationName(rel));
}

static bool
relation_is_outside(Relation rel)
{
	ListCell *lc;

	if (rel->rd_rel->relkind != RELKIND_PARTITIONED_TABLE)
		return rel->rd_rel->relkind == RELKIND_FOREIGN_TABLE;
	foreach (lc, find_all_inheritors(RelationGetRelid(rel), AccessShareLock, NULL))
		if (get_rel_relkind(lfirst_oid(lc)) == RELKIND_FOREIGN_TABLE)
			return true;
	return false;
}

bool
target_find(Target *target, SinkDef *def, SinkShape *shape, bool missing_ok)
{
	RangeVar *name = target_range_var(def);
	Relation rel;

	target->relid = RangeVarGetRelid(name, AccessShareLock, true);
	if (!OidIsValid(target->relid))
	{
		if (!missing_ok)
			ereport(ERROR, (errcode(ERRCODE_UNDEFINED_TABLE), errmsg("target table %s of query \"%s\" does not exist", def->target, def->query_name),
							errhint("Create it again, or give the query another sink with stream.alter_query().")));
		return false;
	}
	rel = table_open(target->relid, NoLock);
	target->name = quote_qualified_identifier(get_namespace_name(RelationGetNamespace(rel)), RelationGetRelationName(rel));
	relation_check_kind(rel, target, def, shape);
	relation_check_rights(rel, target);
	target->outside = relation_is_outside(rel);
	if (target->batch_id && !target->batch_id_required && get_attnum(target->relid, target->batch_id) == InvalidAttrNumber)
		target->batch_id = NULL; /* the user's own table, without such a column */
	table_close(rel, NoLock);
	return true;
}

bool
target_is_written(Target *target, const char *column)
{
	return !(target->op && strcmp(column, target->op) == 0) && !(target->unchanged && strcmp(column, target->unchanged) == 0);
}

void
target_check_delete(Target *target, SinkShape *shape)
{
	if ((shape->mode == OUTPUT_COMPLETE || target->retracts || target->op) && pg_class_aclcheck(target->relid, GetUserId(), ACL_DELETE) != ACLCHECK_OK)
		aclcheck_error(ACLCHECK_NO_PRIV, OBJECT_TABLE, target->name);
}

char *
target_column_list(List *columns)
{
	StringInfoData buf;
	ListCell *lc;

	initStringInfo(&buf);
	foreach (lc, columns)
		appendStringInfo(&buf, "%s%s", buf.len ? ", " : "", quote_identifier(strVal(lfirst(lc))));
	return buf.data;
}

/* As the unique index compares; a type that has no equality is compared as text. */
void
target_append_equality(StringInfo sql, Target *target, const char *column, const char *value)
{
	Oid type;
	int32 typmod;
	Oid collation, operator;
	char *left = psprintf("t.%s", quote_identifier(column)), *right;

	get_atttypetypmodcoll(target->relid, get_attnum(target->relid, column), &type, &typmod, &collation);
	right = psprintf("CAST(%s AS %s)", value, format_type_extended(type, typmod, FORMAT_TYPE_TYPEMOD_GIVEN | FORMAT_TYPE_FORCE_QUALIFY));
	operator = lookup_type_cache(type, TYPECACHE_EQ_OPR)->eq_opr;
	if (OidIsValid(operator))
		generate_operator_clause(sql, left, type, operator, right, type);
	else
		appendStringInfo(sql, "%s::pg_catalog.text OPERATOR(pg_catalog.=) %s::pg_catalog.text", left, right);
}

/* ---- making ---- */

void
target_execute(const char *sql)
{
	if (SPI_connect() != SPI_OK_CONNECT || SPI_execute(sql, false, 0) < 0 || SPI_finish() != SPI_OK_FINISH)
		ereport(ERROR, (errcode(ERRCODE_INTERNAL_ERROR), errmsg("could not execute \"%s\"", sql)));
}

static char *
column_definition(Form_pg_attribute att)
{
	StringInfoData buf;

	initStringInfo(&buf);
	appendStringInfo(&buf, "%s %s", quote_identifier(NameStr(att->attname)),
					 format_type_extended(att->atttypid, att->atttypmod, FORMAT_TYPE_TYPEMOD_GIVEN | FORMAT_TYPE_FORCE_QUALIFY));
	if (OidIsValid(att->attcollation) && att->attcollation != get_typcollation(att->atttypid))
		appendStringInfo(&buf, " COLLATE %s", generate_collation_name(att->attcollation));
	return buf.data;
}

/* Rows that leave without a key are looked for in every batch. */
static void
make_lookup_index(Target *target, SinkShape *shape)
{
	List *columns = NIL;
	int i = -1;

	while ((i = bms_next_member(shape->lookup, i)) >= 0)
		if (OidIsValid(lookup_type_cache(TupleDescAttr(shape->desc, i - 1)->atttypid, TYPECACHE_BTREE_OPFAMILY)->btree_opf))
			columns = lappend(columns, list_nth(target->columns, i - 1));
	if (!target->upsert && columns != NIL)
		target_execute(psprintf("CREATE INDEX ON %s (%s)", target->name, target_column_list(columns)));
}

void
target_make(Target *target, SinkDef *def, SinkShape *shape)
{
	RangeVar *name = target_range_var(def);
	StringInfoData sql;
	int any = 0;

	initStringInfo(&sql);
	appendStringInfo(&sql, "CREATE TABLE %s (", name->schemaname ? quote_qualified_identifier(name->schemaname, name->relname)
																: quote_identifier(name->relname));
	for (int i = 0; i < shape->desc->natts; i++)
		if (target_is_written(target, NameStr(TupleDescAttr(shape->desc, i)->attname)))
			appendStringInfo(&sql, "%s%s", any++ ? ", " : "", column_definition(TupleDescAttr(shape->desc, i)));
	if (target->batch_id)
		appendStringInfo(&sql, "%s%s pg_catalog.int8", any ? ", " : "", quote_identifier(target->batch_id));
	if (target->upsert && target->key != NIL)
		appendStringInfo(&sql, ", UNIQUE NULLS NOT DISTINCT (%s)", target_column_list(target->key));
	appendStringInfoChar(&sql, ')');
	target_execute(sql.data);
	target_find(target, def, shape, false);
	make_lookup_index(target, shape);
}

/* ---- emptying ---- */

void
target_clear(Target *target)
{
	if (SPI_connect() != SPI_OK_CONNECT)
		ereport(ERROR, (errcode(ERRCODE_INTERNAL_ERROR), errmsg("could not clear target %s", target->name)));
	if (target->clear == NULL)
	{
		SPIPlanPtr plan = SPI_prepare(psprintf("DELETE FROM %s", target->name), 0, NULL);

		if (plan == NULL || SPI_keepplan(plan) != 0)
			ereport(ERROR, (errcode(ERRCODE_INTERNAL_ERROR), errmsg("could not clear target %s", target->name)));
		target->clear = plan;
	}
	if (SPI_execute_plan(target->clear, NULL, NULL, false, 0) != SPI_OK_DELETE)
		ereport(ERROR, (errcode(ERRCODE_INTERNAL_ERROR), errmsg("could not clear target %s", target->name)));
	SPI_finish();
}

/*
 * The other server commits just before ours; if ours then does not, the batch comes again and its rows are there. The batch id says which they are. Rows of
 * another query may have the same number.
 */
void
target_take_back(Target *target, SinkDef *def, const BatchInfo *batch)
{
	Oid types[] = {INT8OID};
	Datum args[] = {Int64GetDatum(batch->batch_id)};
	char *other;

	if (!target->outside || target->batch_id == NULL || !batch->again || batch->output_mode == OUTPUT_COMPLETE)
		return;
	other = sink_shared_by(batch->query_id, def);
	if (other)
	{
		ereport(WARNING, (errmsg("rows of batch " INT64_FORMAT " of query \"%s\" may come twice into %s", batch->batch_id, def->query_name, target->name),
						  errdetail("Query \"%s\" writes there as well, and whose rows are there already cannot be told.", other)));
		return;
	}
	if (SPI_connect() != SPI_OK_CONNECT ||
		SPI_execute_with_args(psprintf("DELETE FROM %s WHERE %s OPERATOR(pg_catalog.=) $1", target->name, quote_identifier(target->batch_id)), 1, types, args, NULL,
							  false, 0) < 0 ||
		SPI_finish() != SPI_OK_FINISH)
		ereport(ERROR, (errcode(ERRCODE_INTERNAL_ERROR), errmsg("could not delete rows of %s", target->name)));
}

void
target_release(Target *target)
{
	if (target->clear)
		SPI_freeplan(target->clear);
	target->clear = NULL;
}
