/* Descriptors of the boot that lead to no file. Counters, by which libraries wake themselves, each
 * worker gets of its own; what else */
#ifndef SURUS_REWIND_KERNEL_ANON_FDS_H
#define SURUS_REWIND_KERNEL_ANON_FDS_H

#include <stdbool.h>
#include <stdint.h>

/* What workers would share; NULL when it is nothing of that kind. */
const char *surus_anonymous_shared(int fd);
/* In a worker, before the mark: if it is a counter (eventfd(2)), it becomes the worker's own. */
bool surus_counter_own(int fd, uint64_t *count);
/* False when that cannot be. */
bool surus_counter_put_back(int fd, uint64_t count);

#endif
