/* file.h: inside source/: what the files of the file source share. */
#ifndef STREAM_SOURCE_FILE_H
#define STREAM_SOURCE_FILE_H

#include "format/format.h"
#include "source/source.h"
#include "utils/hsearch.h"

typedef struct FileOptions
{
	char *path;				   /* directory or glob */
	char *format;			   /* NULL: by the files' extension */
	char *delimiter, *null_text; /* csv */
	bool header;			   /* csv: the first record names the columns */
	int64 max_files_per_batch; /* 0: none */
	bool latest_first;
	int64 max_file_age;		   /* microseconds before the newest file seen; -1: none */
	int64 settle_time;		   /* microseconds: files changed since then are not taken yet */
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

/* ---- file_list.c ---- */

/*
 * Regular files that match option path, in no order; hidden ones (. and _) and unfinished ones (.tmp, .part, …) left out, roots respected. List of
 * FileEntry. known: a set of paths to pass over, keyed by char *; NULL: none.
 */
extern List *file_list(SourceDef *def, HTAB *known);
/* 42501 unless the source's owner may read (write: also remove) server files and the path lies below the configured roots. */
extern void file_check_access(SourceDef *def);
/* May a file with this real path be read: below the fixed part of option path, and below the configured roots? */
extern bool file_is_permitted(SourceDef *def, const char *real);
/* Is what lies there what was listed, neither gone nor changed since? */
extern bool file_is_same(FileEntry *entry);
/* Format of one file: the option, or the extension without .gz; 22023 for an unknown one. */
extern const char *file_format(SourceDef *def, const char *path);

/* ---- file_bytes.c ---- */

typedef struct FileBytes FileBytes;

/* In CurrentMemoryContext, and closed with it. Errors name file and source. What is read of the file is added to *count, unless that is NULL. */
extern FileBytes *file_bytes_open(SourceDef *def, FileEntry *entry, int64 *count);
extern size_t file_bytes_read(FileBytes *bytes, char *buf, size_t size); /* 0: the end */

/* ---- file_read.c ---- */

typedef struct RecordReader RecordReader;

extern void file_read_check(SourceDef *def, const char *format); /* do the columns suit the format? */
extern RecordReader *file_read_open(SourceScan *scan);			 /* in CurrentMemoryContext; the file closes with it */
extern void file_read_start(RecordReader *read, FileEntry *entry); /* the next file */
extern bool file_read_next(RecordReader *read, TupleTableSlot *slot); /* false: end of the file */
/* A record that was bad comes again, without its file; false: still bad, source_bad_row was told. */
extern bool file_read_again(RecordReader *read, const SourceLetter *letter, TupleTableSlot *slot);

/* ---- file_clean.c ---- */
extern void file_clean(SourceDef *def, FileEntry *entry); /* what option clean_source says; trouble is for the log */

#endif
