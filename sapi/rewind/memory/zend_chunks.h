/* The memory of PHP's allocator. It asks for chunks, mostly of 2 MiB; those that a request has
 * asked for are known here, so that */
#ifndef SURUS_REWIND_MEMORY_ZEND_CHUNKS_H
#define SURUS_REWIND_MEMORY_ZEND_CHUNKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Gives PHP a heap whose chunks we know; before the first request. */
bool surus_chunks_install(void);
/* From here on chunks are a request's, and go with it. */
void surus_chunks_begin(void);
/* In the template: those that there are, are the boot's, and so are those that come. */
void surus_chunks_pause(void);
/* Takes back what the request has. NULL, or why that cannot be. */
const char *surus_chunks_end(void);
/* Where the chunk ends that has this address and that we keep for the next request; 0 when none
 * has, and then `next` is where one begins, if that is before what it was. */
uintptr_t surus_chunks_until(uintptr_t at, uintptr_t *next);
/* Pages of the chunks that we keep. */
size_t surus_chunks_pages(void);

#endif
