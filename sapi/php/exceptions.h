/* Handles an uncaught exception as PHP does at the end of a script. */
#ifndef SURUS_PHP_EXCEPTIONS_H
#define SURUS_PHP_EXCEPTIONS_H

#include <stdbool.h>

/* Handles an uncaught exception. False: no handler took it, or it was an exit(); what would run
 * next is skipped. */
bool surus_exceptions_handle(void);

/* Reports an exception without a handler; an exit(), which is an exception too, is silent. */
void surus_exception_end(void);

#endif
