/*
 * change_decode.c: WAL → rows. Our own output plugin (change_plugin.c), run by the reader inside its transaction: nothing leaves the process, nothing is consumed.
 * Slot acquired → records from its restart point on → each committed transaction: its rows in order → the reader's buffer → slot released.
 * Danger: callbacks run under the catalogs of the past; the caches are thrown away on both sides. What an error leaves behind, the abort cleans up.
 */
#include "source/change_plugin.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "access/xlogutils.h"
#include "miscadmin.h"
#include "replication/decode.h"
#include "replication/logical.h"
#include "replication/slot.h"
#include "storage/standby.h"
#include "util/clock.h"
#include "util/compat.h"
#include "utils/guc.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#define BEHIND_BYTES (4 * 1024 * 1024) /* WAL read again and again before the slot's restart point is helped on */
#define HELP_EVERY_US INT64CONST(1000000)

ChangeDecoder *change_running = NULL;
static bool holding = false;	/* a slot, until released or aborted */

/* After an error: PostgreSQL's own sessions do this in their loop, workers in ours. */
static void
decoding_aborted(XactEvent event, void *arg)
{
	if (event != XACT_EVENT_ABORT || !holding)
		return;
	change_running = NULL;
	holding = false;
	if (MyReplicationSlot)
		ReplicationSlotRelease();
	InvalidateSystemCaches();
}

static void
setting_local(const char *name, const char *value)
{
	(void) set_config_option(name, value, PGC_SUSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
}

/*
 * Some releases list who may be a plugin: ours, which reads for nobody but us, may. And each run would leave two lines in the server's log.
 * AtEOXact_GUC, or an abort, takes it back.
 */
static int
settings_begin(void)
{
	int level = NewGUCNestLevel();
	const char *plugins = GetConfigOption("output_plugin_libraries", true, false);

	if (plugins)
		setting_local("output_plugin_libraries", psprintf("%s%s" CHANGE_PLUGIN, plugins, *plugins ? ", " : ""));
	setting_local("log_min_messages", "fatal");
	return level;
}

static void
hold_begin(void)
{
	static bool registered = false;

	if (!registered)
	{
		RegisterXactCallback(decoding_aborted, NULL);
		CacheRegisterRelcacheCallback(change_relation_changed, (Datum) 0);
	}
	registered = holding = true;
}

static void
hold_end(void)
{
	ReplicationSlotRelease();
	holding = false;
}

static void
decoder_init(ChangeDecoder *d, ChangeReader *reader, ChangePosition from)
{
	int own = reader->table.base.def->desc->natts;

	memset(d, 0, sizeof(ChangeDecoder));
	d->reader = reader;
	d->def = reader->table.base.def;
	d->options = d->def->options;
	d->from = from;
	d->memory = CurrentMemoryContext;
	d->context = AllocSetContextCreate(CurrentMemoryContext, "stream_ext change", ALLOCSET_DEFAULT_SIZES);
	d->map = palloc0(sizeof(AttrNumber) * own);
	d->fits = palloc0(sizeof(bool) * own);
	d->numbers = palloc0(sizeof(AttrNumber) * own);
	for (int i = 0; i < own; i++)
		if (d->options->columns[i] == CHANGE_TABLE_COLUMN)
			d->numbers[i] = get_attnum(d->options->table.relid, NameStr(TupleDescAttr(d->def->desc, i)->attname));
	d->values = palloc0(sizeof(Datum) * (BUFFER_OWN + own));
	d->nulls = palloc0(sizeof(bool) * (BUFFER_OWN + own));
}

static void
slot_acquire(ChangeReader *reader)
{
	ReplicationSlot *slot = change_slot_find(reader->slot->slot);
	const char *name = reader->table.base.def->name;

	if (slot == NULL || XLogRecPtrIsInvalid(slot->data.restart_lsn))
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE), errmsg("changes of source %s are lost", name),
						slot ? errdetail("Replication slot \"%s\" fell behind by more than max_slot_wal_keep_size, and its WAL was removed.", reader->slot->slot)
							 : errdetail("Replication slot \"%s\" is gone: it was dropped, or the server was restored or promoted without it, or this database is a copy of the one that has it.", reader->slot->slot),
						errhint("Start the query afresh with stream.reset_query(), which begins with the rows of the table again.")));
	ReplicationSlotAcquire(reader->slot->slot, true);
}

static LogicalDecodingContext *
context_open(ChangeReader *reader, ChangePosition from)
{
	/* A transaction read in part has to come again, and with it all that have committed since the slot was moved on. */
	XLogRecPtr start = from.row == CHANGE_ALL ? from.lsn : InvalidXLogRecPtr;
	LogicalDecodingContext *ctx;

	ctx = CreateDecodingContext(start, NIL, false, XL_ROUTINE(.page_read = read_local_xlog_page, .segment_open = wal_segment_open, .segment_close = wal_segment_close),
								NULL, NULL, NULL);
	XLogBeginRead(ctx->reader, MyReplicationSlot->data.restart_lsn);
	return ctx;
}

/*
 * Decoding begins at a point where the server wrote down who was running, and it does so every 15 seconds. With much WAL in between, we ask for it earlier,
 * so that a batch does not read the same again and again.
 */
static void
restart_point_help(XLogRecPtr decoded)
{
	static int64 helped_at = 0;

	if (decoded - MyReplicationSlot->data.restart_lsn < BEHIND_BYTES || clock_monotonic_us() - helped_at < HELP_EVERY_US || RecoveryInProgress())
		return;
	helped_at = clock_monotonic_us();
	LogStandbySnapshot();
}

void
change_decode(ChangeReader *reader, ChangePosition from, XLogRecPtr upto, int64 enough)
{
	ChangeBuffer *buffer = &reader->buffer;
	int64 before = buffer->rows;
	int level = settings_begin();
	LogicalDecodingContext *ctx;
	ChangeDecoder decoder;
	char *message;

	decoder_init(&decoder, reader, from);
	hold_begin();
	slot_acquire(reader);
	change_running = &decoder;
	InvalidateSystemCaches();
	tuplestore_select_read_pointer(buffer->store, POINTER_REST);
	ctx = context_open(reader, from);
	buffer->decoded = InvalidXLogRecPtr; /* an error leaves it like that */
	while (ctx->reader->EndRecPtr < upto && buffer->rows - before < enough)
	{
		XLogRecord *record = XLogReadRecord(ctx->reader, &message);

		if (message)
			ereport(ERROR, (errcode(ERRCODE_DATA_CORRUPTED), errmsg("could not read WAL for source %s: %s", reader->table.base.def->name, message)));
		if (record)
			LogicalDecodingProcessRecord(ctx, ctx->reader);
		CHECK_FOR_INTERRUPTS();
	}
	buffer->decoded = Max(from.lsn, ctx->reader->EndRecPtr);
	restart_point_help(buffer->decoded);
	FreeDecodingContext(ctx);
	change_running = NULL;
	InvalidateSystemCaches();
	hold_end();
	AtEOXact_GUC(true, level);
	MemoryContextDelete(decoder.context);
}

void
change_slot_confirm(ChangeReader *reader, XLogRecPtr lsn)
{
	if (lsn <= reader->acknowledged || change_slot_find(reader->slot->slot) == NULL)
		return;
	/* The slot must not be ahead of a commit that a crash can take back. */
	if (!XLogRecPtrIsInvalid(XactLastCommitEnd))
		XLogFlush(XactLastCommitEnd);
	ReplicationSlotAcquire(reader->slot->slot, true);
	LogicalConfirmReceivedLocation(lsn);
	ReplicationSlotRelease();
	reader->acknowledged = lsn;
}

XLogRecPtr
change_slot_create(const char *name)
{
	int level = settings_begin();
	LogicalDecodingContext *ctx;
	XLogRecPtr start;

	hold_begin();
	ReplicationSlotCreate(name, true, RS_EPHEMERAL, false);
	ctx = CreateInitDecodingContext(CHANGE_PLUGIN, NIL, false, InvalidXLogRecPtr,
									XL_ROUTINE(.page_read = read_local_xlog_page, .segment_open = wal_segment_open, .segment_close = wal_segment_close),
									NULL, NULL, NULL);
	DecodingContextFindStartpoint(ctx);
	start = MyReplicationSlot->data.confirmed_flush;
	FreeDecodingContext(ctx);
	ReplicationSlotPersist();
	hold_end();
	AtEOXact_GUC(true, level);
	return start;
}
