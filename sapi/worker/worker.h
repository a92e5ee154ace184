/* Runs a worker: takes requests, claims their tickets, decides when the worker exits. */
#ifndef SURUS_WORKER_WORKER_H
#define SURUS_WORKER_WORKER_H

#include <stdbool.h>

/* Allocates the state of workers that a rewind does not restore; in the master process. False: no
 * memory. */
bool surus_worker_create(void);
/* Turns a process that has just been forked into a worker: descriptors, user, environment. */
void surus_worker_become(int outbox, int log);
/* Waits for a request whose client still waits, and takes it into surus_request. False: this worker
 * must exit. */
bool surus_worker_take(void);
/* Makes this worker exit before it takes another request. False: that was decided before. */
bool surus_worker_exit_after_request(void);

#endif
