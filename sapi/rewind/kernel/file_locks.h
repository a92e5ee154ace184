/* Releases a request's locks on files and semaphores of the boot before the request ends. */
#ifndef SURUS_REWIND_KERNEL_FILE_LOCKS_H
#define SURUS_REWIND_KERNEL_FILE_LOCKS_H

#include <sys/stat.h>

/* Hooks the functions that lock; when PHP has started. */
void surus_locks_watch(void);
/* In a worker, before the checkpoint: a request may lock this file of the boot. */
void surus_locks_add(int fd, const struct stat *file);
/* Releases a request's locks; before Surus learns of its end, because the next request may want
 * them. */
void surus_locks_release(void);

#endif
