/* Holds the byte that decides whether the kernel reports system calls of this process. */
#include "base/syscall_gate.h"

#include <stddef.h>

#include "base/persistent_map.h"

volatile unsigned char *surus_syscall_gate;

bool surus_syscall_gate_create(void)
{
	surus_syscall_gate = surus_persistent_alloc(sizeof(*surus_syscall_gate));
	return surus_syscall_gate != NULL;
}
