/* Starts and ends the extensions that must run for each request of a booted application. */
#ifndef SURUS_PHP_REQUEST_EXTENSIONS_H
#define SURUS_PHP_REQUEST_EXTENSIONS_H

struct _zend_module_entry;

/* At the end of the boot. */
void surus_extensions_find(void);
void surus_extensions_begin(void);
void surus_extensions_end(void);
/* Runs an extension's request shutdown, if the extension exists and has one. */
void surus_extension_shutdown(struct _zend_module_entry *extension);

#endif
