/* process.c: what our background processes have in common: how the postmaster sees them, what they set when they connect. */
#include "util/process.h"

#include "utils/guc.h"

void
process_describe(BackgroundWorker *worker, const char *function, const char *type, const char *name, ...)
{
	va_list args;

	memset(worker, 0, sizeof(*worker));
	worker->bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker->bgw_start_time = BgWorkerStart_RecoveryFinished;
	worker->bgw_restart_time = BGW_NEVER_RESTART;
	strlcpy(worker->bgw_library_name, "stream_ext", BGW_MAXLEN);
	strlcpy(worker->bgw_function_name, function, BGW_MAXLEN);
	strlcpy(worker->bgw_type, type, BGW_MAXLEN);
	va_start(args, name);
	vsnprintf(worker->bgw_name, BGW_MAXLEN, name, args);
	va_end(args);
}

void
process_set(const char *name, const char *value)
{
	(void) set_config_option(name, value, PGC_SUSET, PGC_S_SESSION, GUC_ACTION_SET, true, 0, false);
}

void
process_connect(Oid database, Oid role)
{
	static const char *const settings[][2] = {{"jit", "off"}, {"default_transaction_read_only", "off"}, {"default_transaction_isolation", "read committed"},
											  {"default_transaction_deferrable", "off"}, {"transaction_timeout", "0"}};

	BackgroundWorkerInitializeConnectionByOid(database, role, 0);
	for (int i = 0; i < lengthof(settings); i++)
		if (GetConfigOption(settings[i][0], true, false)) /* transaction_timeout is of version 17 */
			process_set(settings[i][0], settings[i][1]);
}
