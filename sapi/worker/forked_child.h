/* Detaches a process that a script has forked (pcntl_fork) from Surus. */
#ifndef SURUS_WORKER_FORKED_CHILD_H
#define SURUS_WORKER_FORKED_CHILD_H

#include <stdbool.h>

/* In the master process, once: every fork from here on is detached, unless Surus forks a worker. */
bool surus_child_watch(void);

#endif
