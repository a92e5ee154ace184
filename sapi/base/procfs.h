/* Opens files of /proc/self. */
#ifndef SURUS_BASE_PROCFS_H
#define SURUS_BASE_PROCFS_H

#include <stdbool.h>

enum { SURUS_DESCRIPTORS = 512 };
/* Opens a file of /proc/self; -1 on failure. Such files belong to root if the process was root and
 * is not dumpable. */
int surus_procfs_open(const char *path);
/* Whether this process has more than one thread. */
bool surus_has_threads(void);

#endif
