/* get_resources() on `worker`, without what PHP holds by a pointer of its own: a script that */
#ifndef SURUS_PHP_GET_RESOURCES_H
#define SURUS_PHP_GET_RESOURCES_H

/* At the end of the boot, behind surus_wrappers_note(). */
void surus_get_resources_install(void);

#endif
