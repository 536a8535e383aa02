/* notify.c: how full the queue of NOTIFY is, before a transaction finds out at its end. */
#include "util/notify.h"

#include "fmgr.h"
#include "utils/fmgroids.h"

bool
notify_queue_is_full(void)
{
	return DatumGetFloat8(OidFunctionCall0(F_PG_NOTIFICATION_QUEUE_USAGE)) > 0.9;
}
