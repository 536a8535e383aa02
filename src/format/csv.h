/* csv.h: what readers of CSV files need besides the decoder: where a record ends, and what a header says. */
#ifndef STREAM_FORMAT_CSV_H
#define STREAM_FORMAT_CSV_H

#include "format/format.h"

/* Where in a record the scan for its end is. */
typedef enum CsvState
{
	CSV_FIELD_START,
	CSV_PLAIN,
	CSV_QUOTED,
	CSV_QUOTE /* one that ends the field, or the first of two */
} CsvState;

/*
 * Length of the first record of buf, its line end included; 0: it is not all there yet (at_end: nothing more will come, the rest is a record).
 * Line ends inside quotes belong to the record; a quote inside a field without quotes is a fault of that record alone.
 * resume, state: between calls for the same record; 0 and CSV_FIELD_START at its beginning.
 */
extern size_t csv_record_length(Decoder *decoder, const char *buf, size_t len, bool at_end, size_t *resume, CsvState *state);

/*
 * Fields are columns in their order (the state after opening), or columns by the names in a header record; others are passed over. A header that
 * names none of the columns, or cannot be read, makes every record bad.
 */
extern void csv_by_position(Decoder *decoder);
extern void csv_by_header(Decoder *decoder, const char *buf, size_t len);

#endif
