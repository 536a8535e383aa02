/* query.h: shared by the files of api/ that deal with queries. */
#ifndef STREAM_API_QUERY_H
#define STREAM_API_QUERY_H

#include "postgres.h"
#include "fmgr.h"
#include "metadata/query.h"
#include "nodes/parsenodes.h"
#include "plan/plan.h"

/* The query of that name, owned by the current user's role; NULL or unknown names are errors (22004, 42704, 42501). */
extern StreamQuery *query_argument(FunctionCallInfo fcinfo, int argno);
/* The same, and nothing runs it: locked until the end of the transaction, or 55006. */
extern StreamQuery *query_argument_stopped(FunctionCallInfo fcinfo, int argno);
extern void query_check_stopped(StreamQuery *query);
/* What it reads has changed its columns: the view, which is gone, is made from the text, and all is checked as when it was made. */
extern void query_make_again(StreamQuery *query);

/* ---- view.c: the SELECT as a view stream.query_<id> of the owner ---- */

/* The text's one SELECT, analysed as the current user. 42601 for what is no statement, 0A000 for what is no plain SELECT. */
extern Query *query_text_analyze(const char *text);
extern void query_view_create(StreamQuery *query, Query *tree);
extern void query_view_drop(StreamQuery *query);

/* ---- trigger.c ---- */

/* 0A000 for what real_time and continuous cannot do in pieces. */
extern void query_check_trigger(StreamQuery *query, StreamPlan *plan, SinkDef *sink);

#endif
