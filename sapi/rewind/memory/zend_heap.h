/* The heap of PHP's allocator, made ready for events at the end of the boot. What an event
 * allocates should lie together, in pages that */
#ifndef SURUS_REWIND_MEMORY_ZEND_HEAP_H
#define SURUS_REWIND_MEMORY_ZEND_HEAP_H

#include <stdint.h>

/* Fills the gaps between the blocks of the boot, so that what is allocated from here on lies in
 * pages of its own. */
void surus_heap_settle(void);
/* Calls `each` for every free page. */
void surus_heap_each_free(void (*each)(uintptr_t page));

#endif
