/* csv.h: what readers of CSV files need besides the decoder: where a record ends, and what a header says. */
#ifndef STREAM_FORMAT_CSV_H
#define STREAM_FORMAT_CSV_H

#include "format/csv_scan.h"
#include "format/format.h"

/* csv_scan_record with the decoder's delimiter. */
extern size_t csv_record_length(Decoder *decoder, const char *buf, size_t len, bool at_end, size_t *resume, CsvState *state);

/*
 * Fields are columns in their order (the state after opening), or columns by the names in a header record; others are passed over. A header that
 * names none of the columns, or cannot be read, makes every record bad.
 */
extern void csv_by_position(Decoder *decoder);
extern void csv_by_header(Decoder *decoder, const char *buf, size_t len);

#endif
