/*
 * rows_table.c: the table of a query's state in place, made with the query and dropped with its state, and the numbers its states have in it.
 * Danger: made as the superuser the extension belongs to, in its schema: nothing of the user's is run.
 */
#include "state/rows.h"

#include "catalog/dependency.h"
#include "catalog/namespace.h"
#include "catalog/pg_authid.h"
#include "executor/spi.h"
#include "state/changelog.h"
#include "state/codec.h"
#include "util/compat.h"
#include "util/heap.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"

/* ---- the table of a query ---- */

char *
rows_relation_name(int64 query_id)
{
	return psprintf("state_row_" INT64_FORMAT, query_id);
}

Oid
rows_relation(int64 query_id)
{
	Oid schema = get_namespace_oid("stream", true);

	return OidIsValid(schema) ? get_relname_relid(rows_relation_name(query_id), schema) : InvalidOid;
}

/* The schema is the extension's, and so is this table: users may not touch it. */
static void
execute_as_superuser(const char *sql)
{
	Oid user;
	int context, level = NewGUCNestLevel();

	GetUserIdAndSecContext(&user, &context);
	SetUserIdAndSecContext(BOOTSTRAP_SUPERUSERID, context | SECURITY_LOCAL_USERID_CHANGE | SECURITY_RESTRICTED_OPERATION);
	(void) set_config_option("default_tablespace", "", PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
	(void) set_config_option("default_table_access_method", "heap", PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
	if (SPI_connect() != SPI_OK_CONNECT || SPI_execute(sql, false, 0) < 0 || SPI_finish() != SPI_OK_FINISH)
		ereport(ERROR, (errcode(ERRCODE_INTERNAL_ERROR), errmsg("could not execute \"%s\"", sql)));
	AtEOXact_GUC(false, level);
	SetUserIdAndSecContext(user, context);
}

void
rows_create(int64 query_id)
{
	char *name = rows_relation_name(query_id);

	execute_as_superuser(psprintf(
		"CREATE TABLE stream.%s (bucket pg_catalog.int8 NOT NULL, batch_id pg_catalog.int8 NOT NULL, expires pg_catalog.timestamptz, "
		"state pg_catalog.int2 NOT NULL, key pg_catalog.bytea NOT NULL, value pg_catalog.bytea NOT NULL) "
		"WITH (fillfactor = 80, toast_tuple_target = 8160, autovacuum_vacuum_scale_factor = 0.1, autovacuum_vacuum_cost_delay = 0)",
		name));
	execute_as_superuser(psprintf("ALTER TABLE stream.%s ALTER COLUMN key SET STORAGE EXTERNAL, ALTER COLUMN value SET STORAGE EXTERNAL", name));
	execute_as_superuser(psprintf("CREATE INDEX %s_bucket ON stream.%s (bucket)", name, name));
	execute_as_superuser(psprintf("CREATE INDEX %s_expires ON stream.%s (state, expires) WHERE expires IS NOT NULL", name, name));
	execute_as_superuser(psprintf("COMMENT ON TABLE stream.%s IS 'state of a streaming query, one row per entry'", name));
}

/* The numbers of a query's states. */
static void
numbers_delete(int64 query_id)
{
	Datum key = Int64GetDatum(query_id);
	HeapScan *scan = heap_scan_begin("state_store", "state_store_pkey", 1, &key, false);
	HeapTuple tuple;

	while ((tuple = heap_scan_next(scan, NULL, NULL)) != NULL)
		heap_delete_row("state_store", tuple);
	heap_scan_end(scan);
}

void
rows_drop(int64 query_id)
{
	ObjectAddress address;
	Oid user;
	int context;

	numbers_delete(query_id);
	ObjectAddressSet(address, RelationRelationId, rows_relation(query_id));
	if (!OidIsValid(address.objectId))
		return;
	GetUserIdAndSecContext(&user, &context);
	SetUserIdAndSecContext(BOOTSTRAP_SUPERUSERID, context | SECURITY_LOCAL_USERID_CHANGE | SECURITY_RESTRICTED_OPERATION);
	performDeletion(&address, DROP_RESTRICT, 0);
	CommandCounterIncrement();
	SetUserIdAndSecContext(user, context);
}

/* ---- numbers of states ---- */

typedef struct NumberRow
{
	HeapScan *scan;
	HeapTuple tuple; /* NULL: the state has no number yet */
	Datum v[6];
	bool n[6];
} NumberRow;

static NumberRow
number_row_begin(int64 query_id, int operator_id, const char *state_name)
{
	Datum keys[] = {Int64GetDatum(query_id), Int32GetDatum(operator_id), CStringGetTextDatum(state_name)};
	NumberRow row;

	row.scan = heap_scan_begin("state_store", "state_store_pkey", lengthof(keys), keys, false);
	row.tuple = heap_scan_next(row.scan, row.v, row.n);
	return row;
}

int
state_number(int64 query_id, int operator_id, const char *state_name)
{
	NumberRow row = number_row_begin(query_id, operator_id, state_name);
	int number = -1;

	if (row.tuple != NULL)
	{
		codec_check_version(DatumGetInt32(row.v[4]), DatumGetInt32(row.v[5]));
		number = DatumGetInt32(row.v[3]);
	}
	heap_scan_end(row.scan);
	return number;
}

int
state_number_format(int64 query_id, int operator_id, const char *state_name)
{
	NumberRow row = number_row_begin(query_id, operator_id, state_name);
	int format = row.tuple != NULL ? DatumGetInt32(row.v[4]) : STATE_FORMAT;

	heap_scan_end(row.scan);
	return format;
}

void
state_number_renew(int64 query_id, int operator_id, const char *state_name)
{
	NumberRow row = number_row_begin(query_id, operator_id, state_name);

	row.v[4] = Int32GetDatum(STATE_FORMAT);
	heap_update_row("state_store", row.tuple, row.v, row.n);
	heap_scan_end(row.scan);
}

int
state_number_assign(int64 query_id, int operator_id, const char *state_name)
{
	Datum key = Int64GetDatum(query_id);
	HeapScan *scan = heap_scan_begin("state_store", "state_store_pkey", 1, &key, false);
	Datum v[6];
	bool n[6];
	int number = -1;

	while (heap_scan_next(scan, v, n) != NULL)
		number = Max(number, DatumGetInt32(v[3]));
	heap_scan_end(scan);
	if (++number > MAX_STATE_NUMBER)
		ereport(ERROR, (errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED), errmsg("a streaming query cannot have more than %d states in place", MAX_STATE_NUMBER + 1),
						errhint("Use the query option state_provider \"memory\".")));
	v[0] = Int64GetDatum(query_id);
	v[1] = Int32GetDatum(operator_id);
	v[2] = CStringGetTextDatum(state_name);
	v[3] = Int32GetDatum(number);
	v[4] = Int32GetDatum(STATE_FORMAT);
	v[5] = Int32GetDatum(PG_VERSION_NUM / 10000);
	memset(n, 0, sizeof(n));
	heap_insert_row("state_store", v, n);
	return number;
}
