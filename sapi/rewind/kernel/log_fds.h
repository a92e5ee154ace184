/* php://stderr and php://stdout of a boot lead to what the template says. A worker's are to lead to
 * its own log, and by themselves: what a */
#ifndef SURUS_REWIND_KERNEL_LOG_FDS_H
#define SURUS_REWIND_KERNEL_LOG_FDS_H

#include <stdbool.h>

/* At the end of the boot, in the template: this descriptor leads to its stdout or stderr. */
void surus_log_note(int fd);
bool surus_log_is(int fd);
/* Opens what `log` leads to, so that it has status flags of its own. -1 on failure. */
int surus_log_open(int log, int flags);
/* In a worker that has booted by itself, before it speaks: has such descriptors lead to its own
 * log. */
void surus_log_take(void);

#endif
