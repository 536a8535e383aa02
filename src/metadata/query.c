/*
 * query.c: rows of stream.query, the view that holds the SELECT, and what must be pinned before any of a query's code runs.
 */
#include "metadata/query.h"

#include "access/htup_details.h"
#include "access/relation.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_class.h"
#include "commands/sequence.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "rewrite/rewriteHandler.h"
#include "storage/lmgr.h"
#include "util/clock.h"
#include "util/heap.h"
#include "util/options.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/fmgrprotos.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"
#include "utils/typcache.h"

enum
{
	QUERY_ID, QUERY_NAME, QUERY_OWNER, QUERY_TEXT, QUERY_SINK, QUERY_MODE, QUERY_TRIGGER, QUERY_OPTIONS, QUERY_SETTINGS,
	QUERY_SIGNATURE, QUERY_STARTS, QUERY_INCARNATION, QUERY_CREATED, QUERY_COLUMNS
};

#define DEFAULT_MAX_TRIGGER_DELAY (15 * USECS_PER_MINUTE)
#define QUERY_LOCK_TRIES 200                        /* a millisecond apart */
#define LIMIT_MAX INT64CONST(1000000000000000000) /* sums of a limit and what is there stay far from overflow */

static const OptionDef query_option_defs[] = {
	{"max_rows_per_batch", OPTION_INT64, offsetof(QueryOptions, max_rows_per_batch), 1, LIMIT_MAX, NULL},
	{"max_bytes_per_batch", OPTION_INT64, offsetof(QueryOptions, max_bytes_per_batch), 1, LIMIT_MAX, NULL},
	{"min_rows_per_batch", OPTION_INT64, offsetof(QueryOptions, min_rows_per_batch), 1, LIMIT_MAX, NULL},
	{"max_trigger_delay", OPTION_INTERVAL, offsetof(QueryOptions, max_trigger_delay), 0, PG_INT64_MAX, NULL},
	{"watermarks", OPTION_JSON, offsetof(QueryOptions, watermarks), 0, 0, NULL},
	{"multiple_watermark_policy", OPTION_ENUM, offsetof(QueryOptions, multiple_watermark_policy), 0, 0, "min|max"},
	{"max_event_time_skew", OPTION_INTERVAL, offsetof(QueryOptions, max_event_time_skew), 0, PG_INT64_MAX, NULL},
	{"no_data_batches", OPTION_BOOL, offsetof(QueryOptions, no_data_batches), 0, 0, NULL},
	{"late_rows", OPTION_ENUM, offsetof(QueryOptions, late_rows), 0, 0, "drop|dead_letter"},
	{"state_provider", OPTION_ENUM, offsetof(QueryOptions, state_provider), 0, 0, "memory|table"},
	{"min_batches_to_retain", OPTION_INT64, offsetof(QueryOptions, min_batches_to_retain), 1, 1000000000, NULL},
	{"max_retries", OPTION_INT64, offsetof(QueryOptions, max_retries), -1, 1000000, NULL},
	{"max_bad_rows_per_batch", OPTION_INT64, offsetof(QueryOptions, max_bad_rows_per_batch), 0, PG_INT64_MAX, NULL},
	{"idle_timeout", OPTION_INTERVAL, offsetof(QueryOptions, idle_timeout), 1, PG_INT64_MAX, NULL},
	{"parallelism", OPTION_INT64, offsetof(QueryOptions, parallelism), 1, 64, NULL},
	{"dedup_within_watermark", OPTION_BOOL, offsetof(QueryOptions, dedup_within_watermark), 0, 0, NULL},
	{NULL, 0, 0, 0, 0, NULL}};

/* State of version 0.1.0 has a group for each sliding window, not for each pane. */
static bool
saves_whole_windows(Jsonb *signature)
{
	char *text = signature ? JsonbToCString(NULL, &signature->root, VARSIZE(signature)) : "";

	return strstr(text, "stream.hop(") != NULL && strstr(text, "\"panes\": true") == NULL;
}

int stream_default_parallelism = 1;

int
query_parallelism(const QueryOptions *options)
{
	return options->parallelism > 0 ? (int) options->parallelism : stream_default_parallelism;
}

void
query_options_read(StreamQuery *query)
{
	QueryOptions *options = &query->options;

	memset(options, 0, sizeof(*options));
	options->whole_windows = saves_whole_windows(query->signature);
	options->max_trigger_delay = DEFAULT_MAX_TRIGGER_DELAY;
	options->multiple_watermark_policy = "min";
	options->max_event_time_skew = -1;
	options->no_data_batches = true;
	options->late_rows = "drop";
	options->state_provider = "memory";
	options->min_batches_to_retain = 100;
	options->max_retries = DEFAULT_MAX_RETRIES;
	options->max_bad_rows_per_batch = -1;
	options->idle_timeout = -1;
	options_parse_jsonb(query_option_defs, query->options_json, options, psprintf("query \"%s\"", query->name));
}

const char *
trigger_kind_name(TriggerKind kind)
{
	static const char *const names[] = {"processing_time", "available_now", "once", "continuous", "real_time"};

	return names[kind];
}

TriggerDef
trigger_from_datum(Datum composite)
{
	HeapTupleHeader row = DatumGetHeapTupleHeader(composite);
	TriggerDef trigger = {TRIGGER_PROCESSING_TIME, 0};
	bool isnull;
	Datum value = GetAttributeByNum(row, 1, &isnull);
	char *kind = isnull ? NULL : TextDatumGetCString(value);

	for (int k = TRIGGER_PROCESSING_TIME;; k++)
	{
		if (kind == NULL || k > TRIGGER_REAL_TIME)
			ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("unknown trigger \"%s\"", kind ? kind : "NULL"),
							errhint("Use stream.processing_time(), available_now(), once(), continuous() or real_time().")));
		if (strcmp(kind, trigger_kind_name(k)) == 0)
		{
			trigger.kind = k;
			break;
		}
	}
	value = GetAttributeByNum(row, 2, &isnull);
	if (!isnull)
		trigger.period = options_interval_length(DatumGetIntervalP(value), "trigger interval");
	return trigger;
}

/* Copies a composite value flat, so that it outlives the tuple it came from. */
static Datum
composite_copy(Datum value)
{
	return PointerGetDatum(PG_DETOAST_DATUM_COPY(value));
}

/*
 * Who owns the view owns the query: that follows ALTER ROLE … RENAME and REASSIGN OWNED, and a new role with an old name inherits nothing.
 * The stored name speaks only where the view is missing.
 */
static Oid
query_owner(Oid view, const char *stored_name)
{
	HeapTuple tuple = OidIsValid(view) ? SearchSysCache1(RELOID, ObjectIdGetDatum(view)) : NULL;
	Oid owner;

	if (!HeapTupleIsValid(tuple))
		return get_role_oid(stored_name, true);
	owner = ((Form_pg_class) GETSTRUCT(tuple))->relowner;
	ReleaseSysCache(tuple);
	return owner;
}

static StreamQuery *
query_from_row(Datum *v, bool *n)
{
	StreamQuery *q = palloc0(sizeof(StreamQuery));
	NameData *owner = DatumGetName(v[QUERY_OWNER]);

	q->id = DatumGetInt64(v[QUERY_ID]);
	q->name = TextDatumGetCString(v[QUERY_NAME]);
	q->view = get_relname_relid(psprintf("query_" INT64_FORMAT, q->id), get_namespace_oid("stream", false));
	q->owner = query_owner(q->view, NameStr(*owner));
	q->owner_name = OidIsValid(q->owner) ? GetUserNameFromId(q->owner, false) : pstrdup(NameStr(*owner));
	q->text = TextDatumGetCString(v[QUERY_TEXT]);
	q->sink = composite_copy(v[QUERY_SINK]);
	q->output_mode = output_mode_parse(TextDatumGetCString(v[QUERY_MODE]));
	q->trigger_datum = composite_copy(v[QUERY_TRIGGER]);
	q->trigger = trigger_from_datum(q->trigger_datum);
	q->options_json = DatumGetJsonbPCopy(v[QUERY_OPTIONS]);
	q->settings = DatumGetJsonbPCopy(v[QUERY_SETTINGS]);
	q->signature = n[QUERY_SIGNATURE] ? NULL : DatumGetJsonbPCopy(v[QUERY_SIGNATURE]);
	query_options_read(q);
	q->starts = DatumGetJsonbPCopy(v[QUERY_STARTS]);
	q->incarnation = DatumGetInt32(v[QUERY_INCARNATION]);
	return q;
}

static StreamQuery *
query_find(const char *index, Datum key)
{
	HeapScan *scan = heap_scan_begin("query", index, 1, &key, false);
	Datum v[QUERY_COLUMNS];
	bool n[QUERY_COLUMNS];
	StreamQuery *q = heap_scan_next(scan, v, n) ? query_from_row(v, n) : NULL;

	heap_scan_end(scan);
	return q;
}

StreamQuery *
query_load(const char *name, bool missing_ok)
{
	StreamQuery *q = query_find("query_name_key", CStringGetTextDatum(name));

	if (q == NULL && !missing_ok)
		ereport(ERROR, (errcode(ERRCODE_UNDEFINED_OBJECT), errmsg("streaming query \"%s\" does not exist", name)));
	return q;
}

StreamQuery *
query_load_by_id(int64 id, bool missing_ok)
{
	StreamQuery *q = query_find("query_pkey", Int64GetDatum(id));

	if (q == NULL && !missing_ok)
		ereport(ERROR, (errcode(ERRCODE_UNDEFINED_OBJECT), errmsg("streaming query with id " INT64_FORMAT " does not exist", id)));
	return q;
}

StreamQuery *
query_load_again(StreamQuery *query)
{
	StreamQuery *again = query_load_by_id(query->id, true);

	if (again == NULL)
		ereport(ERROR, (errcode(ERRCODE_UNDEFINED_OBJECT), errmsg("streaming query \"%s\" does not exist", query->name),
						errdetail("Another session has dropped it.")));
	return again;
}

bool
query_is_same(const StreamQuery *a, const StreamQuery *b)
{
	return a->id == b->id && a->incarnation == b->incarnation && a->owner == b->owner && strcmp(a->text, b->text) == 0 &&
		datumIsEqual(a->sink, b->sink, false, -1) && datumIsEqual(a->trigger_datum, b->trigger_datum, false, -1) &&
		datumIsEqual(JsonbPGetDatum(a->options_json), JsonbPGetDatum(b->options_json), false, -1);
}

static void
query_to_row(StreamQuery *q, Datum *v, bool *n)
{
	NameData *owner = palloc0(sizeof(NameData));

	namestrcpy(owner, q->owner_name);
	v[QUERY_ID] = Int64GetDatum(q->id);
	v[QUERY_NAME] = CStringGetTextDatum(q->name);
	v[QUERY_OWNER] = NameGetDatum(owner);
	v[QUERY_TEXT] = CStringGetTextDatum(q->text);
	v[QUERY_SINK] = q->sink;
	v[QUERY_MODE] = CStringGetTextDatum(output_mode_name(q->output_mode));
	v[QUERY_TRIGGER] = q->trigger_datum;
	v[QUERY_OPTIONS] = JsonbPGetDatum(q->options_json);
	v[QUERY_SETTINGS] = JsonbPGetDatum(q->settings);
	n[QUERY_SIGNATURE] = q->signature == NULL;
	v[QUERY_SIGNATURE] = JsonbPGetDatum(q->signature);
	v[QUERY_STARTS] = JsonbPGetDatum(q->starts);
	v[QUERY_INCARNATION] = Int32GetDatum(q->incarnation);
	v[QUERY_CREATED] = TimestampTzGetDatum(clock_now());
}

void
query_insert(StreamQuery *query)
{
	Datum v[QUERY_COLUMNS];
	bool n[QUERY_COLUMNS] = {false};

	query_to_row(query, v, n);
	heap_insert_row("query", v, n);
}

void
query_update(StreamQuery *query)
{
	Datum key = Int64GetDatum(query->id);
	HeapScan *scan = heap_scan_begin("query", "query_pkey", 1, &key, false);
	Datum old[QUERY_COLUMNS], v[QUERY_COLUMNS];
	bool oldnull[QUERY_COLUMNS], n[QUERY_COLUMNS] = {false};
	HeapTuple tuple = heap_scan_next(scan, old, oldnull);

	if (tuple == NULL)
		ereport(ERROR, (errcode(ERRCODE_UNDEFINED_OBJECT), errmsg("streaming query \"%s\" does not exist", query->name)));
	query_to_row(query, v, n);
	v[QUERY_CREATED] = old[QUERY_CREATED];
	heap_update_row("query", tuple, v, n);
	heap_scan_end(scan);
}

void
query_delete(int64 id)
{
	static const char *const tables[][2] = {{"query", "query_pkey"}, {"query_run", "query_run_pkey"}};
	Datum key = Int64GetDatum(id);

	for (int i = 0; i < lengthof(tables); i++)
	{
		HeapScan *scan = heap_scan_begin(tables[i][0], tables[i][1], 1, &key, false);
		HeapTuple tuple;

		while ((tuple = heap_scan_next(scan, NULL, NULL)) != NULL)
			heap_delete_row(tables[i][0], tuple);
		heap_scan_end(scan);
	}
}

List *
query_ids(void)
{
	HeapScan *scan = heap_scan_begin("query", "query_pkey", 0, NULL, false);
	Datum v[QUERY_COLUMNS];
	bool n[QUERY_COLUMNS];
	List *ids = NIL;

	while (heap_scan_next(scan, v, n) != NULL)
	{
		int64 *id = palloc(sizeof(int64));

		*id = DatumGetInt64(v[QUERY_ID]);
		ids = lappend(ids, id);
	}
	heap_scan_end(scan);
	return ids;
}

List *
query_names(void)
{
	HeapScan *scan = heap_scan_begin("query", "query_pkey", 0, NULL, false);
	Datum v[QUERY_COLUMNS];
	bool n[QUERY_COLUMNS];
	List *names = NIL;

	while (heap_scan_next(scan, v, n) != NULL)
	{
		QueryName *name = palloc(sizeof(QueryName));

		name->id = DatumGetInt64(v[QUERY_ID]);
		name->name = TextDatumGetCString(v[QUERY_NAME]);
		names = lappend(names, name);
	}
	heap_scan_end(scan);
	return names;
}

/* A dump of definitions alone brings views and tables of queries, but neither the queries nor how far their ids have come. */
static bool
id_is_taken(int64 id)
{
	Oid schema = get_namespace_oid("stream", false);

	return OidIsValid(get_relname_relid(psprintf("query_" INT64_FORMAT, id), schema)) ||
		   OidIsValid(get_relname_relid(psprintf("state_row_" INT64_FORMAT, id), schema));
}

int64
query_next_id(void)
{
	int64 id;

	do
		id = nextval_internal(heap_relation_oid("query_id_seq"), false);
	while (id_is_taken(id));
	return id;
}

static void
query_check_owner_exists(StreamQuery *query)
{
	if (!OidIsValid(query->owner))
		ereport(ERROR, (errcode(ERRCODE_UNDEFINED_OBJECT),
						errmsg("role \"%s\", owner of streaming query \"%s\", does not exist", query->owner_name, query->name),
						errhint("Create the role, or drop the query as a superuser.")));
}

void
query_check_owner(StreamQuery *query)
{
	if (!superuser())
		query_check_owner_exists(query);
	if (OidIsValid(query->owner) && !has_privs_of_role(GetUserId(), query->owner))
		ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE), errmsg("must be owner of streaming query \"%s\"", query->name)));
}

Query *
query_view_tree(StreamQuery *query)
{
	Relation view;
	Query *tree;

	if (!OidIsValid(query->view) || (view = try_relation_open(query->view, AccessShareLock)) == NULL)
		ereport(ERROR, (errcode(ERRCODE_UNDEFINED_TABLE),
						errmsg("view stream.query_" INT64_FORMAT " of streaming query \"%s\" does not exist", query->id, query->name),
						errhint("Give the query its text again with stream.alter_query.")));
	tree = copyObject(get_view_query(view));
	relation_close(view, NoLock);
	return tree;
}

/* Settings that change what a query's expressions mean. */
static const char *const pinned_settings[] = {"search_path", "TimeZone", "DateStyle", "IntervalStyle", "extra_float_digits", "bytea_output",
											  "lc_monetary", "lc_numeric", "lc_time", "xmlbinary", "xmloption", "array_nulls",
											  "transform_null_equals", "standard_conforming_strings", "backslash_quote", "quote_all_identifiers"};

Jsonb *
query_capture_settings(void)
{
	JsonbParseState *state = NULL;

	pushJsonbValue(&state, WJB_BEGIN_OBJECT, NULL);
	for (int i = 0; i < lengthof(pinned_settings); i++)
	{
		const char *value = GetConfigOption(pinned_settings[i], false, false);
		JsonbValue v;

		v.type = jbvString;
		v.val.string.val = unconstify(char *, pinned_settings[i]);
		v.val.string.len = strlen(pinned_settings[i]);
		pushJsonbValue(&state, WJB_KEY, &v);
		v.val.string.val = unconstify(char *, value);
		v.val.string.len = strlen(value);
		pushJsonbValue(&state, WJB_VALUE, &v);
	}
	return JsonbValueToJsonb(pushJsonbValue(&state, WJB_END_OBJECT, NULL));
}

/* As a superuser would: what an administrator set for the role may be out of the role's own reach. */
static void
setting_pin(const char *name, const char *value, GucAction action)
{
	const char *now = GetConfigOption(name, false, false);

	if (now == NULL || strcmp(now, value) != 0)
		(void) set_config_option(name, value, PGC_SUSET, PGC_S_SESSION, action, true, 0, false);
}

static void
settings_pin(StreamQuery *query, GucAction action)
{
	for (int i = 0; i < lengthof(pinned_settings); i++)
	{
		char *value = jsonb_get_text(query->settings, pinned_settings[i]);

		if (value)
			setting_pin(pinned_settings[i], value, action);
	}
	setting_pin("row_security", "on", action);
	setting_pin("session_replication_role", "origin", action);
	setting_pin("default_transaction_isolation", "read committed", action);
	setting_pin("jit", "off", action);
}

void
query_apply_settings(StreamQuery *query)
{
	/* User code's SET ROLE outlives its transaction: every batch starts as the owner again. */
	if (GetUserId() != GetSessionUserId())
		(void) set_config_option("role", "none", PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SET, true, 0, false);
	settings_pin(query, GUC_ACTION_LOCAL);
}

void
query_owner_begin(StreamQuery *query, OwnerScope *scope)
{
	query_check_owner_exists(query);
	GetUserIdAndSecContext(&scope->caller, &scope->security);
	if (scope->caller != query->owner)
		SetUserIdAndSecContext(query->owner, scope->security | SECURITY_LOCAL_USERID_CHANGE | SECURITY_RESTRICTED_OPERATION);
	scope->guc_level = NewGUCNestLevel();
	settings_pin(query, GUC_ACTION_SAVE);
}

void
query_owner_end(OwnerScope *scope)
{
	AtEOXact_GUC(false, scope->guc_level);
	SetUserIdAndSecContext(scope->caller, scope->security);
}

static void
query_lock_tag(LOCKTAG *tag, int64 query_id)
{
	SET_LOCKTAG_OBJECT(*tag, MyDatabaseId, heap_relation_oid("query"), (uint32) query_id, 0);
}

/*
 * A transaction that ends lets go of its locks one after the other: who waited for another of them may find this one
 * still held, for a moment. That is not "somebody runs it", so a session looks again for a while.
 */
bool
query_lock(int64 query_id, bool session_level)
{
	LOCKTAG tag;

	query_lock_tag(&tag, query_id);
	for (int tries = 1; LockAcquire(&tag, ExclusiveLock, session_level, true) == LOCKACQUIRE_NOT_AVAIL; tries++)
	{
		if (session_level || tries == QUERY_LOCK_TRIES)
			return false;
		CHECK_FOR_INTERRUPTS();
		pg_usleep(1000);
	}
	return true;
}

bool
query_lock_housekeeping(int64 query_id, bool wait)
{
	LOCKTAG tag;

	SET_LOCKTAG_OBJECT(tag, MyDatabaseId, heap_relation_oid("query"), (uint32) query_id, 1);
	return LockAcquire(&tag, ExclusiveLock, false, !wait) != LOCKACQUIRE_NOT_AVAIL;
}

