/* What this process has mapped: what it is now, and how it becomes again what it was at the mark.
 * Without malloc and stdio, whose */
#ifndef SURUS_REWIND_MEMORY_MAPPINGS_H
#define SURUS_REWIND_MEMORY_MAPPINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Makes room for what is noted here; before the snapshot. */
bool surus_mappings_prepare(void);
/* Reads what there is now, in the file /proc/self/maps. False: that cannot be. */
bool surus_mappings_read(int maps);
/* Of what there is now, notes what the kernel wipes in a fork (MADV_WIPEONFORK), where libc keeps
 * random numbers that it has fetched ahead: it is no part of the snapshot. The descriptor is that
 * of /proc/self/smaps. False: it cannot be read, or is too much. */
bool surus_mappings_note_wiped(int smaps);
/* Wipes that, as a fork would. */
void surus_mappings_wipe(void);
/* Of what has been read: is the stack in use the process's own, and less than `most` bytes of it in
 * use? */
bool surus_mappings_is_on_stack(size_t most);
/* Of what has been read: calls `each` for all private writable memory but the stack and what is
 * exempt. False: it has. */
bool surus_mappings_each_writable(bool (*each)(uintptr_t start, uintptr_t end, int prot,
        bool anonymous));
/* Notes what there is now: the mark. The descriptors are those of the files of that name in
 * /proc/self. False: it cannot be read. */
bool surus_mappings_mark(int maps, int statm);
/* Where the stack ended at the mark; 0 when it was not there. */
uintptr_t surus_mappings_stack_end(void);
/* Puts it back as it was at the mark. NULL, or why that cannot be. */
const char *surus_mappings_put_back(void);

#endif
