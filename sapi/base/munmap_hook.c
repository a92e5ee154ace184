/* Replaces libc's munmap() to detect that memory of the checkpoint is unmapped. */
#include "base/munmap_hook.h"

#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

static void (*watcher)(uintptr_t start, size_t size);

void surus_munmap_watch(void (*on_unmap)(uintptr_t start, size_t size))
{
	watcher = on_unmap;
}

#ifndef __SANITIZE_ADDRESS__
/* Replaces libc's munmap() for PHP itself. Extensions that PHP loads with RTLD_DEEPBIND still find
 * libc's. A request may unmap memory of the checkpoint, such as the stack of a Fiber of the boot,
 * and map as much elsewhere. The address space then has the same size, and only this hook
 * notices. */
int munmap(void *start, size_t size)
{
	if (watcher) {
		watcher((uintptr_t)start, size);
	}
	return (int)syscall(SYS_munmap, start, size);
}
#endif
