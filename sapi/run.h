/* Runs a surus-php process from its start: the master process, and each worker that it forks. */
#ifndef SURUS_RUN_H
#define SURUS_RUN_H

/* The template's life: starts PHP, forks workers, replaces them. Returns the process's exit
 * status. */
int surus_template_run(const char *program);

#endif
