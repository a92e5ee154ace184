/* Locks that an event holds on what the boot has opened: released as they are when a process ends,
 * before the event's end is told. */
#ifndef SURUS_REWIND_KERNEL_FILE_LOCKS_H
#define SURUS_REWIND_KERNEL_FILE_LOCKS_H

#include <sys/stat.h>

/* Watches over functions that lock; when PHP has started. */
void surus_locks_watch(void);
/* In a worker, before the mark: an event may lock this file of the boot. */
void surus_locks_note(int fd, const struct stat *file);
/* Releases what an event holds; before its end is told, since the next may want it. */
void surus_locks_release(void);

#endif
