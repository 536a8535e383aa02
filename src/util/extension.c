/*
 * extension.c: which version of the extension this database has.
 * Danger: between new files and ALTER EXTENSION UPDATE the tables have other columns than the library thinks.
 */
#include "util/extension.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/indexing.h"
#include "catalog/pg_extension.h"
#include "commands/extension.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/rel.h"

char *
extension_version(void)
{
	Relation relation = table_open(ExtensionRelationId, AccessShareLock);
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple tuple;
	char *version = NULL;

	ScanKeyInit(&key, Anum_pg_extension_extname, BTEqualStrategyNumber, F_NAMEEQ, CStringGetDatum("stream_ext"));
	scan = systable_beginscan(relation, ExtensionNameIndexId, true, NULL, 1, &key);
	if ((tuple = systable_getnext(scan)) != NULL)
	{
		bool isnull;
		Datum value = heap_getattr(tuple, Anum_pg_extension_extversion, RelationGetDescr(relation), &isnull);

		version = isnull ? pstrdup("") : TextDatumGetCString(value);
	}
	systable_endscan(scan);
	table_close(relation, AccessShareLock);
	return version;
}

void
extension_check_version(void)
{
	static bool fits = false; /* a session stays in its database, and its library stays loaded */
	char *version;

	if (fits || creating_extension)
		return;
	version = extension_version();
	if (version != NULL && strcmp(version, STREAM_VERSION) != 0)
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("stream_ext in this database is of version %s, the library of version %s", version, STREAM_VERSION),
						errhint("Run ALTER EXTENSION stream_ext UPDATE in it, or install the library that belongs to it.")));
	fits = version != NULL;
}
