/* Logs the backtrace of a slow request, which goes on. */
#ifndef SURUS_PHP_SLOW_REQUEST_H
#define SURUS_PHP_SLOW_REQUEST_H

#include <stdint.h>

/* The address of PHP's interrupt flag, a byte that Surus sets to ask for a backtrace. */
uintptr_t surus_slow_request_flag(void);
/* Logs the backtrace of the current request if Surus has asked for it, once. For the interrupt
 * handler of PHP's virtual machine. */
void surus_slow_request_check(void);

#endif
