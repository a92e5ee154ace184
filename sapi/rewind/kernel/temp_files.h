/* Gives each worker its own copy of the boot's temporary files. */
#ifndef SURUS_REWIND_KERNEL_TEMP_FILES_H
#define SURUS_REWIND_KERNEL_TEMP_FILES_H

#include <stdbool.h>
#include <sys/stat.h>

/* Hooks tmpfile(); when PHP has started. */
void surus_temp_file_watch(void);
/* At the end of the boot: records the file if it is temporary. */
void surus_temp_file_add(int fd, const struct stat *file);
bool surus_temp_file_is(int fd);
/* Returns a descriptor of a copy; -1 on failure. */
int surus_temp_file_copy(int fd);
/* Whether this copy has been written to. */
bool surus_temp_file_is_written(const struct stat *copy);

#endif
