/* Archives (ext/phar) that requests of `worker` have read. PHP keeps what it knows of each to
 * the */
#ifndef SURUS_PHP_ARCHIVES_H
#define SURUS_PHP_ARCHIVES_H

/* At the end of the boot, and of an event. */
void surus_archives_note(void);
void surus_archives_close(void);

#endif
