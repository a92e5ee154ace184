/* Runs a surus-php process from its start: the master process, and each worker that it forks. */
#ifndef SURUS_RUN_H
#define SURUS_RUN_H

/* Runs the master process: starts PHP, forks workers, replaces those that exit. Returns the exit
 * status. */
int surus_master_run(const char *program);

#endif
