/* Temporary files of the boot, which PHP programmers take for memory: each worker has a copy, and
 * leaves with it what an event has */
#ifndef SURUS_REWIND_KERNEL_TEMP_FILES_H
#define SURUS_REWIND_KERNEL_TEMP_FILES_H

#include <stdbool.h>
#include <sys/stat.h>

/* Watches over tmpfile(); when PHP has started. */
void surus_temporary_watch(void);
/* At the end of the boot: notes that this file is a temporary one, if it is. */
void surus_temporary_note(int fd, const struct stat *file);
bool surus_temporary_is(int fd);
/* A descriptor of a copy; -1 on failure. */
int surus_temporary_copy(int fd);
/* Has this copy been written to? */
bool surus_temporary_is_written(const struct stat *copy);

#endif
