/* Restores the stream wrappers of the boot after each request (`worker`). */
#ifndef SURUS_PHP_STREAM_WRAPPERS_H
#define SURUS_PHP_STREAM_WRAPPERS_H

#include <stdbool.h>

struct _php_stream_wrapper;
struct _zend_resource;

/* Whether a script has registered the wrapper. */
bool surus_wrapper_is_userland(const struct _php_stream_wrapper *wrapper);
/* Whether this is the resource of a script's wrapper. */
bool surus_wrapper_is_resource(const struct _zend_resource *resource);
/* At the end of the boot, and of a request. */
void surus_wrappers_save(void);
void surus_wrappers_restore(void);

#endif
