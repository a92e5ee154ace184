/* What becomes of a script whose client has gone: it ends at its next write, unless it has asked to
 * go on (ignore_user_abort). */
#ifndef SURUS_PHP_CONNECTION_ABORT_H
#define SURUS_PHP_CONNECTION_ABORT_H

/* Begins an event, whose client is there. */
void surus_abort_begin(void);
/* To be called when something is written to a client that has gone. Returns where the script may go
 * on, or ends it by leaving through an exception. May not return. */
void surus_abort(void);

#endif
