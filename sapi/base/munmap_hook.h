/* Replaces libc's munmap() to detect that memory of the checkpoint is unmapped. */
#ifndef SURUS_BASE_MUNMAP_HOOK_H
#define SURUS_BASE_MUNMAP_HOOK_H

#include <stddef.h>
#include <stdint.h>

/* Calls `on_unmap` before each munmap() of this process from now on. */
void surus_munmap_watch(void (*on_unmap)(uintptr_t start, size_t size));

#endif
