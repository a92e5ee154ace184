/* Stream wrappers on `worker`: those of the boot lead every request where the boot has left
 * them. */
#ifndef SURUS_PHP_STREAM_WRAPPERS_H
#define SURUS_PHP_STREAM_WRAPPERS_H

#include <stdbool.h>

struct _php_stream_wrapper;
struct _zend_resource;

/* Has a script registered it? */
bool surus_wrapper_is_scripts(const struct _php_stream_wrapper *wrapper);
/* Is this the resource of such a one? */
bool surus_wrapper_is_resource(const struct _zend_resource *resource);
/* At the end of the boot, and of an event. */
void surus_wrappers_note(void);
void surus_wrappers_renew(void);

#endif
