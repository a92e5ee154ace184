/* The script that runs once, ahead of the events that it serves: in the template or in every
 * worker, as the engine wants. */
#ifndef SURUS_APP_BOOT_H
#define SURUS_APP_BOOT_H

/* Runs the script, which calls one of the functions of app/serve.c and so serves events until there
 * are none. Returns the process's exit status. */
int surus_boot_run(void);

#endif
