/* file_output.h: rows → one file: JSON lines or CSV, compressed or not, durable when it is closed. */
#ifndef STREAM_SINK_FILE_OUTPUT_H
#define STREAM_SINK_FILE_OUTPUT_H

#include "postgres.h"
#include "executor/tuptable.h"

typedef struct FileFormat
{
	bool csv; /* else JSON lines */
	bool header;
	char delimiter;
	bool gzip;
} FileFormat;

typedef struct FileOutput FileOutput;

/* A new file, in CurrentMemoryContext; whatever has the name is no file of ours and stays: 58P02. The descriptor goes with the transaction. */
extern FileOutput *file_output_open(const char *path, const FileFormat *format, TupleDesc desc);
extern void file_output_row(FileOutput *output, TupleTableSlot *slot);
/* The text of another file, as it stands. */
extern void file_output_copy(FileOutput *output, const char *path);
extern void file_output_close(FileOutput *output); /* written and fsynced */

#endif
