/* process.c: what the descriptions of our background processes have in common. */
#include "util/process.h"

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
