/* Exits a process that a script has forked, at the end of its script. */
#ifndef SURUS_APP_CHILD_EXIT_H
#define SURUS_APP_CHILD_EXIT_H

/* Ends PHP's request and exits with PHP's exit status. */
_Noreturn void surus_child_exit(void);

#endif
