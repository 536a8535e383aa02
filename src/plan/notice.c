/*
 * notice.c: what works but may not be what was meant; said once, when the query is created.
 */
#include "plan/internal.h"

static void
add_notice(StreamPlan *plan, char *text)
{
	plan->notices = lappend(plan->notices, text);
}

/* Both tests are non-strict: with no delay, rows of one instant that come in two batches are lost. */
static void
note_zero_delay(StreamPlan *plan)
{
	ListCell *lc;

	foreach (lc, plan->sources)
	{
		SourceDef *def = lfirst(lc);

		if (def->event_time != 0 && def->watermark_delay == 0)
			add_notice(plan, psprintf("source %s has a watermark delay of 0: a row as old as the newest one seen is late in the next batch", def->name));
	}
}

static void
note_unbounded_state(StreamPlan *plan)
{
	ListCell *lc;

	foreach (lc, plan->operators)
	{
		OperatorSpec *spec = lfirst(lc);

		if (spec->output_mode == OUTPUT_COMPLETE)
			continue;
		if (spec->ops == &dedup_operator && !spec->has_watermark)
			add_notice(plan, "DISTINCT keeps every key for ever: no event time with a watermark is among them");
		if (spec->ops == &join_operator && (((JoinSpec *) spec)->expires[0] == 0 || ((JoinSpec *) spec)->expires[1] == 0))
			add_notice(plan, psprintf("the join keeps every row of %s for ever: its condition has no time range with a watermark",
									  ((JoinSpec *) spec)->expires[0] > 0 ? "its right side" : ((JoinSpec *) spec)->expires[1] > 0 ? "its left side" : "both sides"));
	}
}

void
notice_collect(Compile *c, Level *final)
{
	if (c->plan->uses_watermark && c->mode != OUTPUT_COMPLETE)
		note_zero_delay(c->plan);
	note_unbounded_state(c->plan);
	if (c->mode == OUTPUT_UPDATE && !c->plan->shape.retracts && shape_filters_groups(c, final))
		add_notice(c->plan, "groups that stop satisfying the condition on their aggregates keep their last row in the target");
	if (c->options->parallelism > 1)
		parallel_note_sources(c->plan);
	if (c->hidden_keys)
		add_notice(c->plan, psprintf("groups that differ only in %s, which the SELECT list does not show, replace each other in the target", c->hidden_keys));
}
