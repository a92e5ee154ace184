/* Opens files of /proc/self. */
#ifndef SURUS_BASE_PROCFS_H
#define SURUS_BASE_PROCFS_H

#include <stdbool.h>

enum { SURUS_DESCRIPTORS = 512 };
/* Opens a file of /proc/self; -1 on failure. They are root's where a process that was root may not
 * be dumped. */
int surus_open_own(const char *path);
/* Does this process have more than one thread? */
bool surus_has_threads(void);

#endif
