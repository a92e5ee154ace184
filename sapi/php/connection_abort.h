/* Ends a script whose client has closed the connection: at its next write, unless it has called
 * ignore_user_abort(). */
#ifndef SURUS_PHP_CONNECTION_ABORT_H
#define SURUS_PHP_CONNECTION_ABORT_H

/* Called when a request begins. */
void surus_abort_begin(void);
/* Called on a write to a client that has closed the connection. Returns if the script may continue;
 * otherwise ends it by an exception or longjmp. */
void surus_abort(void);

#endif
