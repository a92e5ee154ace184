/* Replaces munmap() of libc, to notice when memory that a rewind restores is unmapped. */
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
/* In place of libc's, for PHP itself (its extensions find libc's, where PHP loads them with RTLD_DEEPBIND): who unmaps what was there at the
 * mark, as the stack of a Fiber of the boot, and maps as much elsewhere, would leave an address space of the same size. */
int munmap(void *start, size_t size)
{
	if (watcher) {
		watcher((uintptr_t)start, size);
	}
	return (int)syscall(SYS_munmap, start, size);
}
#endif
