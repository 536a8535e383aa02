/* file.h: inside source/: what the files of the file source share. */
#ifndef STREAM_SOURCE_FILE_H
#define STREAM_SOURCE_FILE_H

#include "format/format.h"
#include "source/source.h"

typedef struct FileOptions
{
	char *path;				   /* directory or glob */
	char *format;			   /* NULL: by the files' extension */
	char *delimiter;		   /* csv */
	bool header;			   /* csv: the first record names the columns */
	int64 max_files_per_batch; /* 0: none */
	bool latest_first;
	int64 max_file_age;		   /* microseconds before the newest file seen; -1: none */
	char *clean_source;		   /* off, delete, archive */
	char *archive_dir;
	char *timestamp_unit;	   /* common option, read again here */
} FileOptions;

/* A file there is. */
typedef struct FileEntry
{
	char *path; /* absolute */
	TimestampTz modified;
	int64 size;
} FileEntry;

/* Regular files that match option path, in no order; hidden ones (. and _) left out, roots respected. List of FileEntry. */
extern List *file_list(SourceDef *def);
/* 42501 unless the source's owner may read (write: also remove) server files and the path lies below the configured roots. */
extern void file_check_access(SourceDef *def);
/* Format of one file: the option, or the extension without .gz; 22023 for an unknown one. */
extern const char *file_format(SourceDef *def, const char *path);

/* ---- file_read.c ---- */

typedef struct RecordReader RecordReader;

extern RecordReader *file_read_open(SourceScan *scan);			 /* in CurrentMemoryContext; the file closes with it */
extern void file_read_start(RecordReader *read, FileEntry *entry); /* the next file */
extern bool file_read_next(RecordReader *read, TupleTableSlot *slot); /* false: end of the file */
/* A record that was bad comes again, without its file; false: still bad, source_bad_row was told. */
extern bool file_read_again(RecordReader *read, const SourceLetter *letter, TupleTableSlot *slot);

#endif
