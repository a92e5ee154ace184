/* Drops privileges: becomes the configured user with its groups and environment. */
#ifndef SURUS_WORKER_PRIVILEGES_H
#define SURUS_WORKER_PRIVILEGES_H

#include <stdbool.h>

/* Becomes the configured user, for good, and gets the workers' environment. False: said on
 * stderr. */
bool surus_worker_disguise(void);
/* Reads who the workers' user is with, before any is forked. False: it has been said why. */
bool surus_worker_read_groups(void);

#endif
