/* A process that a script has forked (pcntl_fork): a copy of a worker, with its event, its outbox
 * and its line. It may run on, but it is */
#ifndef SURUS_WORKER_FORKED_CHILD_H
#define SURUS_WORKER_FORKED_CHILD_H

#include <stdbool.h>

/* In the template, once: from here on what forks, and is not said to be a worker, is cut off. */
bool surus_child_watch(void);

#endif
