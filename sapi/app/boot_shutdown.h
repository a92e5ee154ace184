/* Keeps the shutdown functions that the boot has registered apart from those of requests. */
#ifndef SURUS_APP_BOOT_SHUTDOWN_H
#define SURUS_APP_BOOT_SHUTDOWN_H

/* To be called when the script has ended, before PHP's request shutdown. */
void surus_serve_before_shutdown(void);

/* Takes those that the boot has registered out of PHP's hands, and gives them back. */
void surus_boot_shutdown_take(void);
void surus_boot_shutdown_put(void);

#endif
