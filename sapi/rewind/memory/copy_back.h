/* Bytes that become again what they were. */
#ifndef SURUS_REWIND_MEMORY_COPY_BACK_H
#define SURUS_REWIND_MEMORY_COPY_BACK_H

#include <stdbool.h>
#include <stddef.h>

/* Makes `to` what `from` is; `next_to` and `next_from` are what the next call will have. Did
 * anything differ? */
typedef bool surus_restore(void *to, const void *from, size_t size, const void *next_to,
        const void *next_from);
/* The fastest way that this processor has. */
surus_restore *surus_restore_fastest(void);

#endif
