/* Opens files of /proc/self. */
#ifndef SURUS_BASE_PROCFS_H
#define SURUS_BASE_PROCFS_H

#include <stdbool.h>
#include <sys/types.h>

enum { SURUS_DESCRIPTORS = 512 };
/* Becomes a process of this group whose memory no other process of its user can open. The kernel
 * asks for the same real, effective and saved group (ptrace(2)), and no other process has this
 * saved one. For a process that may choose its groups. False: that failed. */
bool surus_procfs_guard(gid_t group);
/* Gives the saved group up. False: that failed. */
bool surus_procfs_unguard(void);
/* Opens a file of /proc/self; -1 on failure. If the process was root and is not dumpable, some of
 * these files belong to root, and only a guarded process opens them: it is dumpable meanwhile. */
int surus_procfs_open(const char *path);
/* Opens this process's memory for reading and writing, in the same way. */
int surus_procfs_open_memory(void);
/* Whether this process has more than one thread. */
bool surus_procfs_has_threads(void);

#endif
