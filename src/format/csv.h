/* csv.h: what readers of CSV files need besides the decoder: where a record ends, and what a header says. */
#ifndef STREAM_FORMAT_CSV_H
#define STREAM_FORMAT_CSV_H

#include "format/format.h"

/*
 * Length of the first record of buf, its line end included; 0: it is not all there yet (at_end: nothing more will come, the rest is a record).
 * Line ends inside quotes belong to the record. resume, quoted: state between calls for the same record; 0 and false at its beginning.
 */
extern size_t csv_record_length(const char *buf, size_t len, bool at_end, size_t *resume, bool *quoted);

/* Fields are columns in their order (the state after opening), or columns by the names in a header record; others are passed over. */
extern void csv_by_position(Decoder *decoder);
extern void csv_by_header(Decoder *decoder, const char *buf, size_t len);

#endif
