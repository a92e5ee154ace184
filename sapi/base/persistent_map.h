/* Allocates persistent mappings: memory that a rewind does not restore. */
#ifndef SURUS_BASE_PERSISTENT_MAP_H
#define SURUS_BASE_PERSISTENT_MAP_H

#include <stddef.h>
#include <stdint.h>

/* Maps persistent memory. NULL on failure. Only before the snapshot. */
void *surus_persistent_map(size_t size);
/* Allocates zeroed persistent memory, aligned to a cache line and never freed. NULL on failure.
 * Only before the snapshot. */
void *surus_persistent_alloc(size_t size);
void surus_persistent_unmap(void *memory);
/* Returns where the persistent memory at `start` ends, or `end` if that is lower. Returns 0 if
 * there is none at `start`; then `next` is where the next one begins, or `end`. */
uintptr_t surus_persistent_until(uintptr_t start, uintptr_t end, uintptr_t *next);

#endif
