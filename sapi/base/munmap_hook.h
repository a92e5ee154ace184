/* Replaces munmap() of libc, to notice when memory that a rewind restores is unmapped. */
#ifndef SURUS_BASE_MUNMAP_HOOK_H
#define SURUS_BASE_MUNMAP_HOOK_H

#include <stddef.h>
#include <stdint.h>

/* From here on calls this before each munmap() of this process. */
void surus_munmap_watch(void (*on_unmap)(uintptr_t start, size_t size));

#endif
