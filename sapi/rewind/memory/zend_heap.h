/* Pads the heap of PHP's allocator, so that requests use pages of their own. */
#ifndef SURUS_REWIND_MEMORY_ZEND_HEAP_H
#define SURUS_REWIND_MEMORY_ZEND_HEAP_H

#include <stdint.h>

/* Fills the gaps between the boot's blocks. */
void surus_heap_pad(void);
/* Calls `each` for every free page. */
void surus_heap_each_free(void (*each)(uintptr_t page));

#endif
