/* Restores bytes from a copy, with the widest vectors of the processor. */
#ifndef SURUS_REWIND_MEMORY_COPY_BACK_H
#define SURUS_REWIND_MEMORY_COPY_BACK_H

#include <stdbool.h>
#include <stddef.h>

/* Makes `to` equal `from`; `next_to` and `next_from` are the arguments of the next call. Returns
 * whether anything differed. */
typedef bool surus_copy_back(void *to, const void *from, size_t size, const void *next_to,
        const void *next_from);
/* The fastest variant for this processor. */
surus_copy_back *surus_copy_back_fastest(void);

#endif
