/* Provides the chunks of PHP's allocator and takes back those of a request. */
#ifndef SURUS_REWIND_MEMORY_ZEND_CHUNKS_H
#define SURUS_REWIND_MEMORY_ZEND_CHUNKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Gives PHP a heap with tracked chunks; before the first request. */
bool surus_chunks_install(void);
/* From here on new chunks belong to a request and end with it. */
void surus_chunks_record(void);
/* In the prototype process: existing and new chunks belong to the boot. */
void surus_chunks_pause(void);
/* Takes back the request's chunks. NULL, or why that failed. */
const char *surus_chunks_end(void);
/* Returns the end of the kept chunk that contains `at`. Returns 0 if there is none; then `next` is
 * lowered to the start of the next kept chunk. */
uintptr_t surus_chunks_until(uintptr_t at, uintptr_t *next);
/* Pages of the kept chunks. */
size_t surus_chunks_pages(void);

#endif
