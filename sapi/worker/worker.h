/* Runs a worker: takes requests, claims their tickets, decides when the worker exits. */
#ifndef SURUS_WORKER_WORKER_H
#define SURUS_WORKER_WORKER_H

#include <stdbool.h>

/* Turns a process that has just been forked into a worker: descriptors, user, environment. */
void surus_worker_become(int outbox, int log);
/* Waits for a request whose client still waits, and takes it into surus_request. False: this worker
 * must exit. */
bool surus_worker_take(void);

#endif
