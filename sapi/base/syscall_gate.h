/* The byte that decides whether the kernel reports system calls of this process
 * (rewind/syscall_watch.c). */
#ifndef SURUS_BASE_SYSCALL_GATE_H
#define SURUS_BASE_SYSCALL_GATE_H

#include <stdbool.h>

/* The kernel reads it with each call while it watches: 0 lets the call pass without a word. Not
 * restored by a rewind. */
extern volatile unsigned char *surus_syscall_gate;

/* In the template, before anything is forked. False: no memory. */
bool surus_syscall_gate_create(void);

/* Around system calls of our own amid an event, which change nothing that would be put back
 * (rewind/syscall_watch.c). */
static inline unsigned char surus_calls_are_ours(void)
{
	unsigned char before = *surus_syscall_gate;

	*surus_syscall_gate = 0;
	return before;
}

static inline void surus_calls_are_scripts(unsigned char before)
{
	*surus_syscall_gate = before;
}

#endif
