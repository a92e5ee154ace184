/* Takes the snapshot of a process's memory, checkpoints workers, restores them. */
#ifndef SURUS_REWIND_MEMORY_SNAPSHOT_H
#define SURUS_REWIND_MEMORY_SNAPSHOT_H

#include <stdbool.h>

/* Takes the snapshot and shares it with later forks. NULL, or why that failed. The descriptors are
 * those of the files of these names in /proc/self. */
const char *surus_snapshot_take(int maps, int smaps, int pagemap);
/* Sets the checkpoint: returns once now and once after each surus_snapshot_restore(). NULL, or why
 * that failed. The descriptors are those of the files of these names in /proc/self. */
const char *surus_snapshot_checkpoint(int maps, int pagemap, int statm);
/* Finds what must be restored and restores the address space, unless the request has made no system
 * calls. NULL, or why the restore would be incomplete. */
const char *surus_snapshot_check(bool no_calls);
/* Restores everything, with `mask` the signal mask, too, and continues at the checkpoint. Only
 * after surus_snapshot_check(). */
_Noreturn void surus_snapshot_restore(bool mask);

#endif
