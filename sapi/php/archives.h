/* Forgets the archives (ext/phar) that a request has read (`worker`). */
#ifndef SURUS_PHP_ARCHIVES_H
#define SURUS_PHP_ARCHIVES_H

/* At the end of the boot, and of a request. */
void surus_archives_save(void);
void surus_archives_close(void);

#endif
