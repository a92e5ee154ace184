/* Ends an uncaught exception as PHP does at the end of a script. */
#ifndef SURUS_PHP_EXCEPTIONS_H
#define SURUS_PHP_EXCEPTIONS_H

#include <stdbool.h>

/* Ends an exception as PHP does at the end of a script. False: there was one that no handler has
 * taken, and what would come next in the script's place does not run; an exit() is one, too. */
bool surus_handle_exception(void);

/* Says what nobody has caught, as PHP does at the end of a script; exit() is an exception too, of
 * which nobody hears. */
void surus_exception_end(void);

#endif
