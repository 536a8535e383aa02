/* coerce.h: values of one type given where another is declared, as an assignment would convert them. */
#ifndef STREAM_UTIL_COERCE_H
#define STREAM_UTIL_COERCE_H

#include "postgres.h"
#include "fmgr.h"

typedef struct Coercion
{
	Oid from, to;
	int32 typmod;
	bool plain; /* nothing to do */
	/* through a function, through text, or element by element */
	FmgrInfo function;
	int nargs;
	bool through_text, from_unknown, from_record;
	FmgrInfo output, input;
	Oid input_param;
	struct Coercion *element;
	int16 element_length[2]; /* of from, of to */
	bool element_by_value[2];
	char element_align[2];
	/* length coercion: numeric(10,2), varchar(5) */
	FmgrInfo length;
	bool has_length;
} Coercion;

/* False: there is no such assignment. from may be unknown: a literal. Look-ups are kept in context. */
extern bool coercion_prepare(Coercion *c, Oid from, Oid to, int32 typmod, MemoryContext context);
extern Datum coercion_apply(Coercion *c, Datum value);

#endif
