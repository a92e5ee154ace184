/* Replaces get_resources() on `worker`: hides resources that PHP itself holds by a pointer. */
#ifndef SURUS_PHP_GET_RESOURCES_H
#define SURUS_PHP_GET_RESOURCES_H

#include <php.h>

/* At the end of the boot, after surus_wrappers_save(). */
void surus_get_resources_install(void);
/* Whether PHP itself holds this resource by a pointer. */
bool surus_resource_is_internal(const zend_resource *resource);

#endif
