/* Enforces max_execution_time on `rewind`, where the timer keeps running between requests. */
#ifndef SURUS_PHP_EXECUTION_TIME_H
#define SURUS_PHP_EXECUTION_TIME_H

#include <stdbool.h>

struct rusage;

/* In the master process, before the first fork. False: no memory. */
bool surus_execution_time_create(void);
/* In a worker of `rewind`, before the checkpoint. */
void surus_execution_time_prepare(void);

/* Before a request: the CPU time used so far. */
void surus_execution_time_save(int who, const struct rusage *usage);

/* After a request, while it is known whether it had threads: their CPU time must not count for the
 * next request. */
void surus_execution_time_save_threads(void);

/* From here on the request's time counts, if it has a limit. */
void surus_execution_time_begin(void);

/* Ends that. EG(timeout_seconds) becomes SURUS_NO_LIMIT, which shows whether a limit is set
 * again. */
enum { SURUS_NO_LIMIT = -1 };

void surus_execution_time_end(void);

#endif
