/* Detects whether a request makes system calls. */
#ifndef SURUS_REWIND_SYSCALL_WATCH_H
#define SURUS_REWIND_SYSCALL_WATCH_H

#include <stdbool.h>

/* In the master process, before the first fork. False: no memory. */
bool surus_syscall_watch_create(void);
/* In a worker, before the checkpoint. */
void surus_syscall_watch_prepare(void);
/* Watches the current request, unless it will probably make calls. */
void surus_syscall_watch_begin(void);
/* Ends the watch. True: the request has certainly made no call. */
bool surus_syscall_watch_end(void);

#endif
