/* Extensions that begin and end with each event, in a process whose application has booted. */
#ifndef SURUS_PHP_REQUEST_EXTENSIONS_H
#define SURUS_PHP_REQUEST_EXTENSIONS_H

struct _zend_module_entry;

/* At the end of the boot. */
void surus_extensions_find(void);
void surus_extensions_begin(void);
void surus_extensions_end(void);
/* Runs the request shutdown of an extension, if there is one and it has one. */
void surus_shut_down(struct _zend_module_entry *extension);

#endif
