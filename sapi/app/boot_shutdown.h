/* Separates the shutdown functions of the boot from those of requests. */
#ifndef SURUS_APP_BOOT_SHUTDOWN_H
#define SURUS_APP_BOOT_SHUTDOWN_H

/* Called when the script has ended, before PHP's request shutdown. */
void surus_boot_shutdown_script_ended(void);

/* Hides the boot's shutdown functions from PHP, and restores them. */
void surus_boot_shutdown_set_aside(void);
void surus_boot_shutdown_restore(void);

#endif
