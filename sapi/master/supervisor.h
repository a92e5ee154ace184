/* The life of the template: starts PHP once, forks the workers, replaces those that end. It runs no
 * events, so it is always */
#ifndef SURUS_MASTER_SUPERVISOR_H
#define SURUS_MASTER_SUPERVISOR_H

#include <stdbool.h>

/* After the settings have been read. False: no memory. */
bool surus_template_prepare(void);
/* Around the start of PHP: in between, the end of surus ends this process. */
void surus_template_php_starts(void);
void surus_template_php_started(void);
/* Says that PHP is ready, then forks workers and replaces those that end. True: we are such a
 * worker. False: there is nothing more to do. */
bool surus_template_serve(void);

#endif
