/* Restores the address space of the checkpoint. */
#ifndef SURUS_REWIND_MEMORY_MAPPINGS_H
#define SURUS_REWIND_MEMORY_MAPPINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Allocates the bookkeeping; before the snapshot. */
bool surus_mappings_create(void);
/* Reads the current mappings from the file /proc/self/maps. False: that failed. */
bool surus_mappings_read(int maps);
/* Finds the current mappings that the kernel wipes in a fork (MADV_WIPEONFORK), where libc keeps
 * prefetched random numbers; they are not part of the snapshot. The descriptor is that of
 * /proc/self/smaps. False: it cannot be read, or there are too many. */
bool surus_mappings_find_wiped(int smaps);
/* Wipes them, as a fork would. */
void surus_mappings_wipe(void);
/* Whether the current stack is the process's own and less than `max` bytes of it are in use. */
bool surus_mappings_is_on_stack(size_t max);
/* Calls `each` for all private writable memory except the stack and persistent mappings. False:
 * `each` returned false. */
bool surus_mappings_each_writable(bool (*each)(uintptr_t start, uintptr_t end, int prot,
        bool anonymous));
/* Saves the current mappings as the checkpoint. The descriptors are those of the files of these
 * names in /proc/self. False: they cannot be read. */
bool surus_mappings_checkpoint(int maps, int statm);
/* Where the stack ended at the checkpoint; 0: it was not found. */
uintptr_t surus_mappings_stack_end(void);
/* Restores the address space of the checkpoint. NULL, or why that failed. */
const char *surus_mappings_restore(void);

#endif
