/* Boots the application: runs its script up to the call that serves requests. */
#ifndef SURUS_APP_BOOT_H
#define SURUS_APP_BOOT_H

/* Runs the script, which serves requests by a function of app/serve.c until there are no more.
 * Returns the process's exit status. */
int surus_boot_run(void);

#endif
