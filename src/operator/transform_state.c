/*
 * transform_state.c: what handlers do to their state: single values, lists, maps, timers, all of the key whose handler is running.
 * A call costs a look-up in memory, never SQL; what changed is written when the batch commits. Expired entries are hidden from the moment they expire.
 * Danger: a handler may catch an error (BEGIN … EXCEPTION): changes made under that subtransaction are noted, and taken back before the next access.
 */
#include "operator/transform.h"

#include "access/xact.h"
#include "executor/executor.h"
#include "utils/datum.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

/* ---- access to the stores, about the current key ---- */

static TupleTableSlot *
probe(Transform *op, Datum second)
{
	ExecClearTuple(op->probe);
	op->probe->tts_values[0] = op->key;
	op->probe->tts_isnull[0] = op->key_null;
	op->probe->tts_values[1] = second;
	op->probe->tts_isnull[1] = false;
	return ExecStoreVirtualTuple(op->probe);
}

static bool
is_expired(Variable *variable, StateEntry *entry)
{
	return variable->declared && entry->expires <= variable->op->base.batch->batch_time;
}

static TimestampTz
new_expiry(Variable *variable)
{
	if (variable->declared == NULL || variable->declared->ttl < 0)
		return DT_NOEND;
	return variable->op->base.batch->batch_time + variable->declared->ttl;
}

static void undo_note(Variable *variable, Datum second, StateEntry *entry);

static StateEntry *
single_entry(Variable *variable)
{
	Transform *op = variable->op;

	if (!variable->current_known)
	{
		variable->current = op->provider->get(variable->store, probe(op, (Datum) 0));
		variable->current_known = true;
	}
	return variable->current;
}

static void
single_write(Variable *variable, Datum value, TimestampTz expires)
{
	Transform *op = variable->op;
	StateEntry *entry = single_entry(variable);
	MemoryContext caller;
	void *old, *packed;
	bool created;

	undo_note(variable, (Datum) 0, entry);
	caller = MemoryContextSwitchTo(op->provider->value_context(variable->store));
	packed = variable_single_pack(variable, variable_value_copy(variable, value));
	MemoryContextSwitchTo(caller);
	if (entry == NULL)
		entry = variable->current = op->provider->put(variable->store, probe(op, (Datum) 0), &created);
	else
		op->provider->changed(variable->store, entry);
	old = entry->value;
	entry->value = packed;
	if (old)
		pfree(old);
	op->provider->set_expiry(variable->store, entry, expires);
	op->base.metrics.updated++;
}

static void
single_remove(Variable *variable)
{
	StateEntry *entry = single_entry(variable);

	if (entry == NULL)
		return;
	undo_note(variable, (Datum) 0, entry);
	variable->op->provider->remove(variable->store, entry);
	variable->current = NULL;
	variable->op->base.metrics.removed++;
}

static Element *
element_find(Variable *variable, Datum second)
{
	StateEntry *entry = variable->op->provider->get(variable->store, probe(variable->op, second));

	return entry ? entry->value : NULL;
}

/* Makes or overwrites the element of that second key. */
static void
element_write(Variable *variable, Datum second, Datum value, int64 serial, TimestampTz expires)
{
	Transform *op = variable->op;
	bool created;
	StateEntry *entry = op->provider->get(variable->store, probe(op, second));
	MemoryContext caller;
	Element *element;

	undo_note(variable, second, entry);
	if (entry)
		op->provider->changed(variable->store, entry);
	else
		entry = op->provider->put(variable->store, probe(op, second), &created);
	element = entry->value;
	caller = MemoryContextSwitchTo(op->provider->value_context(variable->store));
	if (element == NULL)
	{
		element = entry->value = palloc0(sizeof(Element));
		element->entry = entry;
		element->serial = serial;
		element_link(op, variable, op->record, element);
	}
	else if (variable->declared && !variable->by_value)
		pfree(DatumGetPointer(element->value));
	if (variable->declared)
		element->value = variable_value_copy(variable, value);
	MemoryContextSwitchTo(caller);
	op->provider->set_expiry(variable->store, entry, expires);
	op->base.metrics.updated += variable->declared != NULL;
}

/* Also outside a call. The record stays, even when it is empty now. */
void
element_remove(Variable *variable, Element *element)
{
	Transform *op = variable->op;

	dlist_delete(&element->node);
	element->record->elements--;
	op->provider->remove(variable->store, element->entry);
	op->base.metrics.removed += variable->declared != NULL;
}

static Datum
element_second(Variable *variable, Element *element)
{
	Datum key;
	bool isnull;

	return variable_is_map(variable) ? variable_entry_second(variable, element->entry, &key, &isnull)
									 : Int64GetDatum(element->serial);
}

static void
element_take(Variable *variable, Element *element)
{
	undo_note(variable, element_second(variable, element), element->entry);
	element_remove(variable, element);
}

void
transform_call_state_reset(Transform *op)
{
	for (int i = 0; i < op->nvariables; i++)
		op->variables[i].current_known = false;
	op->undo = NULL;
	op->undo_due = false;
}

/* ---- subtransactions ---- */

static void
subtransaction_ended(SubXactEvent event, SubTransactionId subid, SubTransactionId parent, void *arg)
{
	Transform *op = transform_running();

	if (op == NULL || op->undo == NULL)
		return;
	for (UndoEntry *undo = op->undo; undo; undo = undo->next)
	{
		if (undo->subid != subid || undo->aborted)
			continue;
		if (event == SUBXACT_EVENT_ABORT_SUB)
			undo->aborted = op->undo_due = true;
		else if (event == SUBXACT_EVENT_COMMIT_SUB)
			undo->subid = parent;
	}
}

/* What is about to change, when a handler might take it back by catching an error. */
static void
undo_note(Variable *variable, Datum second, StateEntry *entry)
{
	static bool registered = false;
	Transform *op = variable->op;
	MemoryContext caller;
	UndoEntry *undo;

	if (likely(GetCurrentTransactionNestLevel() <= op->nest_level))
		return;
	if (!registered)
		RegisterSubXactCallback(subtransaction_ended, NULL);
	registered = true;
	caller = MemoryContextSwitchTo(op->call_context);
	undo = palloc0(sizeof(UndoEntry));
	undo->subid = GetCurrentSubTransactionId();
	undo->variable = variable;
	undo->second = variable_is_map(variable) ? datumCopy(second, variable->key_by_value, variable->key_length) : second;
	undo->existed = entry != NULL;
	if (entry)
	{
		Element *element = entry->value;

		undo->expires = entry->expires;
		if (variable->declared)
			undo->value = variable_value_copy(
				variable, variable_is_single(variable) ? variable_single_value(variable, entry) : element->value);
		undo->serial = variable_is_single(variable) ? 0 : element->serial;
	}
	undo->next = op->undo;
	op->undo = undo;
	MemoryContextSwitchTo(caller);
}

static void
undo_one(UndoEntry *undo)
{
	Variable *variable = undo->variable;

	if (variable_is_single(variable))
	{
		if (undo->existed)
			single_write(variable, undo->value, undo->expires);
		else
			single_remove(variable);
	}
	else if (undo->existed)
		element_write(variable, undo->second, undo->value, undo->serial, undo->expires);
	else
	{
		Element *element = element_find(variable, undo->second);

		if (element)
			element_remove(variable, element);
	}
}

/* Takes back what failed subtransactions did, newest first. They are at the top: nothing is noted before this has run. */
void
transform_undo_apply(Transform *op)
{
	int nest_level = op->nest_level;

	op->undo_due = false;
	op->nest_level = INT_MAX; /* taking back is not noted */
	while (op->undo && op->undo->aborted)
	{
		undo_one(op->undo);
		op->undo = op->undo->next;
	}
	op->nest_level = nest_level;
}

/* ---- for the SQL functions ---- */

Variable *
transform_variable(Transform *op, const char *name, int length)
{
	if (unlikely(op->undo_due))
		transform_undo_apply(op);
	for (int i = 0; i < op->nvariables; i++)
	{
		Variable *variable = &op->variables[i];

		if (strncmp(variable->declared->name, name, length) == 0 && variable->declared->name[length] == '\0')
			return variable;
	}
	return NULL;
}

bool
variable_get(Variable *variable, Datum *value)
{
	StateEntry *entry = single_entry(variable);

	if (entry == NULL || is_expired(variable, entry))
		return false;
	*value = variable_single_value(variable, entry);
	return true;
}

Element *
variable_next(Variable *variable, Element *element)
{
	dlist_head *list = &variable->op->record->lists[variable->list];
	dlist_node *node = element ? element->node.next : list->head.next;

	for (; node != &list->head; node = node->next)
	{
		element = dlist_container(Element, node, node);
		if (!is_expired(variable, element->entry))
			return element;
	}
	return NULL;
}

bool
variable_exists(Variable *variable)
{
	Datum ignored;

	return variable_is_single(variable) ? variable_get(variable, &ignored) : variable_next(variable, NULL) != NULL;
}

void
variable_set(Variable *variable, Datum value)
{
	single_write(variable, value, new_expiry(variable));
}

void
variable_clear(Variable *variable)
{
	dlist_mutable_iter iter;

	if (variable_is_single(variable))
		single_remove(variable);
	else
		dlist_foreach_modify(iter, &variable->op->record->lists[variable->list])
			element_take(variable, dlist_container(Element, node, iter.cur));
}

void
variable_append(Variable *variable, Datum value)
{
	int64 serial = variable->op->next_serial++;

	element_write(variable, Int64GetDatum(serial), value, serial, new_expiry(variable));
}

Element *
variable_map_find(Variable *variable, Datum key)
{
	Element *element = element_find(variable, key);

	return element && !is_expired(variable, element->entry) ? element : NULL;
}

Datum
element_map_key(Variable *variable, Element *element)
{
	return element_second(variable, element);
}

void
variable_map_put(Variable *variable, Datum key, Datum value)
{
	element_write(variable, key, value, variable->op->next_serial++, new_expiry(variable));
}

void
variable_map_remove(Variable *variable, Datum key)
{
	Element *element = element_find(variable, key);

	if (element)
		element_take(variable, element);
}

void
transform_timer_register(Transform *op, TimestampTz at)
{
	TimestampTz due =
		op->processor->time_mode == TIME_MODE_EVENT ? op->base.batch->evict_watermark : op->base.batch->batch_time;
	bool wait = op->firing && at <= due;
	MemoryContext caller;

	if (element_find(op->timers, TimestampTzGetDatum(at)))
		return;
	element_write(op->timers, TimestampTzGetDatum(at), (Datum) 0, at, wait ? DT_NOEND : at);
	if (!wait)
		return;
	/* A handler of timers that registers what is due again would keep this batch for ever: the next one fires it. */
	caller = MemoryContextSwitchTo(op->batch_context);
	op->deferred = lappend(op->deferred, element_find(op->timers, TimestampTzGetDatum(at))->entry);
	MemoryContextSwitchTo(caller);
}

void
transform_timer_delete(Transform *op, TimestampTz at)
{
	Element *element = element_find(op->timers, TimestampTzGetDatum(at));

	if (element)
		element_take(op->timers, element);
}

/* ---- the end of a batch ---- */

/* Removes what has outlived its TTL. */
void
transform_evict(Transform *op)
{
	TimestampTz now = op->base.batch->batch_time;
	StateEntry *entry;

	for (int i = 0; i < op->nvariables; i++)
	{
		Variable *variable = &op->variables[i];

		while ((entry = op->provider->next_expired(variable->store, now)))
		{
			Element *element = entry->value;
			KeyRecord *record;

			if (variable_is_single(variable))
			{
				op->provider->remove(variable->store, entry);
				op->base.metrics.removed++;
				continue;
			}
			record = element->record;
			element_remove(variable, element);
			transform_record_drop_if_empty(op, record);
		}
	}
}
