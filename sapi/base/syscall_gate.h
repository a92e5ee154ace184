/* The byte that decides whether the kernel reports system calls of this process
 * (rewind/syscall_watch.c). */
#ifndef SURUS_BASE_SYSCALL_GATE_H
#define SURUS_BASE_SYSCALL_GATE_H

#include <stdbool.h>

/* The kernel reads it at each system call while it watches this process; 0 lets the call pass
 * silently. In persistent memory. */
extern volatile unsigned char *surus_syscall_gate;

/* In the master process, before the first fork. False: no memory. */
bool surus_syscall_gate_create(void);

/* Suspends the watch for Surus's own system calls during a request, which change nothing that a
 * rewind restores (rewind/syscall_watch.c). */
static inline unsigned char surus_syscall_gate_pause(void)
{
	unsigned char before = *surus_syscall_gate;

	*surus_syscall_gate = 0;
	return before;
}

static inline void surus_syscall_gate_resume(unsigned char before)
{
	*surus_syscall_gate = before;
}

#endif
