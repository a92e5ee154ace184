/* Drops privileges: becomes the configured user with its groups and environment. */
#ifndef SURUS_WORKER_PRIVILEGES_H
#define SURUS_WORKER_PRIVILEGES_H

#include <stdbool.h>

/* Becomes the configured user for good, before the process reads any setting for PHP: ini entries
 * and variables can name code to load. False: the reason is on stderr. */
bool surus_drop_privileges(void);
/* Sets the environment of the application's code, after PHP has started with Surus's. */
void surus_set_environment(void);

#endif
