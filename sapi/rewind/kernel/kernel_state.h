/* Restores kernel state after a request, or detects that this is not possible. */
#ifndef SURUS_REWIND_KERNEL_KERNEL_STATE_H
#define SURUS_REWIND_KERNEL_KERNEL_STATE_H

#include <stdbool.h>

/* Hooks the functions that change the process; when PHP has started. */
bool surus_kernel_install(void);
/* In a worker, before the checkpoint: makes its descriptors its own and saves their state. NULL, or
 * why that failed. */
const char *surus_kernel_checkpoint(void);
/* Restores the state; after a request without system calls it only checks. NULL, or what cannot be
 * restored. */
const char *surus_kernel_restore(bool no_calls);
/* Forgets which functions that change the process were called. Called in the prototype process,
 * whose changes all workers get. */
void surus_kernel_forget_calls(void);
/* Which of them was called since; NULL: none, or the engine does not look. */
const char *surus_kernel_call(void);
/* Whether the state equals that of the checkpoint. */
bool surus_kernel_is_restored(void);

#endif
