/* Ends a process that a script has forked, when its script has ended. */
#ifndef SURUS_APP_CHILD_EXIT_H
#define SURUS_APP_CHILD_EXIT_H

/* The script has ended in a process that it has forked: ends PHP's request, and the process with
 * PHP's exit status. */
_Noreturn void surus_child_end(void);

#endif
