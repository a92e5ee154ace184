/* Fills the superglobals for each request of a booted application. */
#ifndef SURUS_PHP_SUPERGLOBALS_H
#define SURUS_PHP_SUPERGLOBALS_H

/* At the end of the boot: saves what it has added. */
void surus_superglobals_save(void);
/* Fills them for the current request. */
void surus_superglobals_reset(void);

#endif
