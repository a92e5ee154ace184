/* Ends an event that takes too long. surus writes so into our line of the scoreboard and sends the
 * stop */
#ifndef SURUS_PHP_REQUEST_TIMEOUT_H
#define SURUS_PHP_REQUEST_TIMEOUT_H

/* Installs the handler of the stop signal; once per process, before PHP starts. */
void surus_stop_install(void);
/* Hooks into the virtual machine; after PHP has started. */
void surus_stop_hook(void);
/* In a script's child: its alarms are its own. */
void surus_stop_leave(void);

#endif
