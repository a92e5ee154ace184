/* Redirects the boot's php://stderr and php://stdout to each worker's own log. */
#ifndef SURUS_REWIND_KERNEL_LOG_FDS_H
#define SURUS_REWIND_KERNEL_LOG_FDS_H

#include <stdbool.h>

/* At the end of the boot, in the prototype process: this descriptor leads to its stdout or
 * stderr. */
void surus_log_add(int fd);
bool surus_log_is(int fd);
/* Opens the file of `log` again, with status flags of its own. -1 on failure. */
int surus_log_open(int log, int flags);
/* In a worker that has booted by itself, before it redirects its output: makes such descriptors
 * lead to its log. */
void surus_log_take(void);

#endif
