/* get_resources() on `worker`, without what PHP holds by a pointer of its own: a script that */
#ifndef SURUS_PHP_GET_RESOURCES_H
#define SURUS_PHP_GET_RESOURCES_H

#include <php.h>

/* At the end of the boot, behind surus_wrappers_note(). */
void surus_get_resources_install(void);
/* Does PHP hold it by a pointer of its own? */
bool surus_resource_is_phps(const zend_resource *resource);

#endif
