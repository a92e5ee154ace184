/* Starts and ends the extensions that must run for each request of a booted application. */
#ifndef SURUS_PHP_REQUEST_EXTENSIONS_H
#define SURUS_PHP_REQUEST_EXTENSIONS_H

#include <stdbool.h>

struct _zend_module_entry;

/* At the start and at the end of the boot. */
void surus_extensions_find(void);
/* Whether there is an open session, once the extensions are found. */
bool surus_session_is_active(void);
void surus_extensions_begin(void);
void surus_extensions_end(void);
/* Runs an extension's request shutdown, if the extension exists and has one. */
void surus_extension_shutdown(struct _zend_module_entry *extension);

#endif
