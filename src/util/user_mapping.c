/*
 * user_mapping.c: the options of a user mapping, where secrets live. Read for the current user: a worker is its query's owner.
 */
#include "util/user_mapping.h"

#include "access/reloptions.h"
#include "catalog/pg_user_mapping.h"
#include "miscadmin.h"
#include "utils/syscache.h"

List *
user_mapping_options(Oid server)
{
	Oid users[] = {GetUserId(), InvalidOid};

	for (int i = 0; i < lengthof(users); i++)
	{
		HeapTuple tuple = SearchSysCache2(USERMAPPINGUSERSERVER, ObjectIdGetDatum(users[i]), ObjectIdGetDatum(server));

		if (HeapTupleIsValid(tuple))
		{
			bool isnull;
			Datum options = SysCacheGetAttr(USERMAPPINGUSERSERVER, tuple, Anum_pg_user_mapping_umoptions, &isnull);
			List *result = isnull ? NIL : untransformRelOptions(options);

			ReleaseSysCache(tuple);
			return result;
		}
	}
	return NIL;
}
