/* The life of a worker: takes an event from the inbox, has PHP serve it, and takes the next. */
#ifndef SURUS_WORKER_WORKER_H
#define SURUS_WORKER_WORKER_H

#include <stdbool.h>

/* Becomes a worker in a process that has just been forked: descriptors, user, environment. */
void surus_worker_become(int outbox, int log);
/* Waits for an event that somebody waits for and takes it into surus_request-> False: this worker's
 * life is over. */
bool surus_worker_take(void);

#endif
