/* Supervises the workers: forks them, replaces those that exit, reports to Surus. */
#ifndef SURUS_MASTER_SUPERVISOR_H
#define SURUS_MASTER_SUPERVISOR_H

#include <stdbool.h>

/* After the settings have been read. False: no memory. */
bool surus_master_create(void);
/* Called before and after PHP's start-up. In between, the exit of Surus kills this process. */
void surus_master_php_starting(void);
void surus_master_php_started(void);
/* Reports that PHP is ready, then forks workers and replaces those that exit. `warm_ups` has more
 * lines of the report. True: this process is a worker. False: the process is done. */
bool surus_master_serve(const char *warm_ups);

#endif
