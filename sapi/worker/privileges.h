/* Drops privileges: becomes the configured user with its groups and environment. */
#ifndef SURUS_WORKER_PRIVILEGES_H
#define SURUS_WORKER_PRIVILEGES_H

#include <stdbool.h>

/* Becomes the configured user for good and sets the workers' environment. False: the reason is on
 * stderr. */
bool surus_drop_privileges(void);
/* Reads the groups of the workers' user, before the first fork. False: the reason is on stderr. */
bool surus_read_groups(void);

#endif
