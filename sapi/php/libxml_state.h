/* Gives each request the state of libxml that the boot has left. */
#ifndef SURUS_PHP_LIBXML_STATE_H
#define SURUS_PHP_LIBXML_STATE_H

void surus_libxml_save(void);
/* At the end of a request: also drops the errors that it has collected. */
void surus_libxml_restore(void);

#endif
