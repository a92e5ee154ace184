/* What a request leaves in the kernel: descriptors, the working directory, children, signal
 * handlers. What is cheap is put back */
#ifndef SURUS_REWIND_KERNEL_KERNEL_STATE_H
#define SURUS_REWIND_KERNEL_KERNEL_STATE_H

#include <stdbool.h>

/* Watches over functions that change the process; when PHP has started. */
bool surus_kernel_prepare(void);
/* In a worker, before the mark: makes its descriptors its own and notes their state. NULL, or why
 * that cannot be. */
const char *surus_kernel_note(void);
/* Puts back what is cheap, after an event without system calls nothing. NULL, or what cannot be put
 * back. */
const char *surus_kernel_put_back(bool no_calls);
/* Is all that is put back as it was at the mark? */
bool surus_kernel_is_as_it_was(void);

#endif
