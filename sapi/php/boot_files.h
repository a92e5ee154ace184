/* Records which files the boot has read or missed, and finds out whether they have changed. */
#ifndef SURUS_PHP_BOOT_FILES_H
#define SURUS_PHP_BOOT_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

/* What of a file the boot depends on. */
enum surus_file_use {
	SURUS_FILE_SEEN, /* whether it exists, and its kind */
	SURUS_FILE_READ, /* its content as well */
	SURUS_FILE_WRITTEN, /* nothing: each boot writes it */
};

/* In the master process, before PHP starts. False: no memory. */
bool surus_boot_files_create(void);
/* Seconds between two checks for requests, as OPcache has them for scripts; 0: never. */
long surus_boot_files_interval(void);
/* Whether a boot records its files, because requests or Surus ask for checks. */
bool surus_boot_files_are_recorded(void);
/* At the start of a boot. */
void surus_boot_files_begin(void);
/* Records a file. `known` is its state when it was opened; NULL: ask now. */
void surus_boot_files_save(const char *path, enum surus_file_use use, const struct stat *known);
/* The boot itself has changed this file. */
void surus_boot_files_forget(const char *path);
/* At the end of the boot: adds the scripts that it has included. False: files have changed since
 * this worker has read them, so its boot may mix two releases, and it must exit. */
bool surus_boot_files_end(void);
/* The application says that something else has changed, such as an option in a database. `state`
 * differs from one change to the next. Any process of the pool may call it. */
void surus_boot_files_report(const char *what, size_t what_len, const char *state,
                             size_t state_len);
/* In the master process: begins to check all files. */
void surus_boot_files_begin_check(void);
bool surus_boot_files_is_checking(void);
/* Checks files for some milliseconds. Writes the answer for Surus and returns its length once all
 * are done or the check has taken too long; 0: call it again. */
size_t surus_boot_files_check(char *answer, size_t size);

#endif
