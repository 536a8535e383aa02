/* csv_scan.h: where CSV records and fields end. Free of PostgreSQL, so that it can be fuzzed alone. */
#ifndef STREAM_FORMAT_CSV_SCAN_H
#define STREAM_FORMAT_CSV_SCAN_H

#include <stdbool.h>
#include <stddef.h>

/* Where in a record the scan for its end is. */
typedef enum CsvState
{
	CSV_FIELD_START,
	CSV_PLAIN,
	CSV_QUOTED,
	CSV_QUOTE /* one that ends the field, or the first of two */
} CsvState;

typedef struct CsvField
{
	const char *at; /* text without quotes */
	size_t length;
	bool quoted;
	bool last;		   /* of the record */
	const char *fault; /* what is wrong with it; NULL: nothing */
} CsvField;

/*
 * Length of the first record of buf, its line end included; 0: it is not all there yet (at_end: nothing more will come, the rest is a record).
 * Line ends inside quotes belong to the record; a quote inside a field without quotes is a fault of that record alone.
 * resume, state: between calls for the same record; 0 and CSV_FIELD_START at its beginning.
 */
extern size_t csv_scan_record(char delimiter, const char *buf, size_t len, bool at_end, size_t *resume, CsvState *state);
/* Where the record in buf ends, its line end left out. */
extern const char *csv_record_end(const char *buf, size_t len);
/* The field that begins at *p; moves *p behind its delimiter. text: room for end - *p bytes, taken by fields with quotes. False: field->fault. */
extern bool csv_scan_field(char delimiter, const char **p, const char *end, char *text, CsvField *field);

#endif
