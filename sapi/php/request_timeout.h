/* Interrupts a request at its deadline, when Surus sends the stop signal. */
#ifndef SURUS_PHP_REQUEST_TIMEOUT_H
#define SURUS_PHP_REQUEST_TIMEOUT_H

/* Installs the signal handlers; once per process, before PHP starts. */
void surus_request_timeout_install(void);
/* Hooks into PHP's virtual machine; after PHP has started. */
void surus_request_timeout_hook(void);
/* In a script's child: its alarms are its own. */
void surus_request_timeout_leave(void);

#endif
