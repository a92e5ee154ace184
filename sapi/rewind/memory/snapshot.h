/* The memory of this process: a copy of it as it was when the application had booted, and a mark at
 * which it is that again. */
#ifndef SURUS_REWIND_MEMORY_SNAPSHOT_H
#define SURUS_REWIND_MEMORY_SNAPSHOT_H

#include <stdbool.h>

/* Copies the memory of this process and shares the copy with those that it forks from then on.
 * NULL, or why it cannot be. The descriptors are those of the files of that name in /proc/self. */
const char *surus_snapshot_take(int maps, int smaps, int pagemap);
/* Marks the place where putting back leads to: returns once now and once more after each
 * surus_snapshot_put_back. NULL, or why it cannot be. The descriptors are those of the files of
 * that name in /proc/self. */
const char *surus_snapshot_mark(int maps, int pagemap, int statm);
/* Finds out what has to be put back, and puts the address space into shape, which is as it was if
 * the event has made no system calls. NULL, or why putting back would not be complete. */
const char *surus_snapshot_check(bool no_calls);
/* Puts everything back, the signal mask too where it may be another, and goes on where the mark was
 * set. After surus_snapshot_check only. */
_Noreturn void surus_snapshot_put_back(bool mask);

#endif
