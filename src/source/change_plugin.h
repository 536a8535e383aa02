/* change_plugin.h: inside source/: a run of the decoder, between change_decode.c that runs it and change_plugin.c that is called back. */
#ifndef STREAM_SOURCE_CHANGE_PLUGIN_H
#define STREAM_SOURCE_CHANGE_PLUGIN_H

#include "source/change.h"

#define CHANGE_PLUGIN "stream_ext"

/* One run of the decoder. */
typedef struct ChangeDecoder
{
	ChangeReader *reader;
	SourceDef *def;
	ChangeOptions *options;
	ChangePosition from;
	AttrNumber *numbers;   /* per column of the source: in the table as it is now */
	MemoryContext memory;  /* of the run */
	MemoryContext context; /* of a change */
	bool skip;			   /* this transaction is read, or was seen */
	int64 row;			   /* in this transaction */
	/* the relation decoded last: is it ours, and where are our columns? */
	bool mapped;
	Oid relid;
	bool ours;
	AttrNumber *map; /* per column of the source: attribute of the relation, 0: it had none */
	bool *fits;		 /* of the same type */
	Bitmapset *key;	 /* attributes of its key */
	bool full;		 /* replica identity */
	/* the row being made */
	Datum *values;
	bool *nulls;
	Datum *old_values, *new_values;
	bool *old_nulls, *new_nulls;
} ChangeDecoder;

extern ChangeDecoder *change_running; /* in this process; NULL: none */

/* For CacheRegisterRelcacheCallback: what is known of a relation's columns is known no longer. */
extern void change_relation_changed(Datum arg, Oid relid);

#endif
