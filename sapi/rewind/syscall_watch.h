/* Does an event make system calls? One that makes none has changed nothing that the kernel keeps
 * for its process: no descriptor, no */
#ifndef SURUS_REWIND_SYSCALL_WATCH_H
#define SURUS_REWIND_SYSCALL_WATCH_H

#include <stdbool.h>

/* In the template, before anything is forked. False: no memory. */
bool surus_calls_create(void);
/* In a worker, before the mark. */
void surus_calls_prepare(void);
/* Begins to watch the event in our hands, unless it is likely to make some. */
void surus_calls_watch(void);
/* Ends that. Has it certainly made none? */
bool surus_calls_none(void);

#endif
