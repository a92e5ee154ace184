/* $_GET and its kin in a process whose application has booted. */
#ifndef SURUS_PHP_SUPERGLOBALS_H
#define SURUS_PHP_SUPERGLOBALS_H

/* Notes what the boot has put into them, at its end. */
void surus_superglobals_note(void);
/* Makes them those of the event in our hands. */
void surus_superglobals_renew(void);

#endif
