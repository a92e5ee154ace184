/* Signals of the boot: what it has blocked, and for what it has set a handler, its workers have
 * too. */
#ifndef SURUS_REWIND_KERNEL_SIGNALS_H
#define SURUS_REWIND_KERNEL_SIGNALS_H

#include <stdbool.h>

/* In the template, before it forks: notes what the boot has blocked and handles, and keeps it from
 * the template's own life. */
void surus_signals_keep(void);
/* In a worker: has it from here on. */
void surus_signals_take(void);
/* After an event: do some wait that are blocked? */
bool surus_signals_wait(void);
/* While memory is put back nothing may be called that writes to it. Ends with the signal mask of
 * before. True: that has been changed. */
bool surus_signals_hold(void);

#endif
