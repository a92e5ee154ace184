/* Memory that is never put back. */
#ifndef SURUS_BASE_PERSISTENT_MAP_H
#define SURUS_BASE_PERSISTENT_MAP_H

#include <stddef.h>
#include <stdint.h>

/* Maps such memory. NULL on failure. Before the snapshot only. */
void *surus_exempt_map(size_t size);
/* Allocates zeroed memory of that kind, aligned to a cache line, which is never given back. NULL on
 * failure. Before the snapshot only. */
void *surus_persistent_alloc(size_t size);
void surus_exempt_unmap(void *memory);
/* Where the exempt memory ends, or `end`, when there is some at `start`; 0 when there is none, and
 * then `next` is where the next begins, or `end`. */
uintptr_t surus_exempt_until(uintptr_t start, uintptr_t end, uintptr_t *next);

#endif
