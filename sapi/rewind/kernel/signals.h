/* Gives workers the boot's signal mask and handlers. */
#ifndef SURUS_REWIND_KERNEL_SIGNALS_H
#define SURUS_REWIND_KERNEL_SIGNALS_H

#include <stdbool.h>

/* In the prototype process, before it forks: saves the boot's mask and handlers, and blocks its
 * signals for this process. */
void surus_signals_save(void);
/* In a worker: applies them. */
void surus_signals_apply(void);
/* After a request: whether a blocked signal is pending. */
bool surus_signals_are_pending(void);
/* Blocks the handlers that could write to memory during a restore. The restore sets the mask again.
 * True: the mask has changed. */
bool surus_signals_block(void);

#endif
