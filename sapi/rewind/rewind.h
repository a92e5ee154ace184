/* The engine `rewind` (rewind/rewind.c). */
#ifndef SURUS_REWIND_H
#define SURUS_REWIND_H

#include <stdbool.h>

/* Before anything allocates memory. */
void surus_rewind_prepare(void);
/* When PHP has started, before it runs anything. */
bool surus_rewind_start(void);
/* In the template, when its application has booted: copies its memory. Where that cannot be, it
 * says so and the engine is `fork` from here on. */
void surus_rewind_checkpoint(void);
/* In the template: has what it has mapped changed since its memory was copied? */
bool surus_rewind_is_outdated(void);
/* In a worker, before its first event: the place that it is rewound to. Returns once for each
 * event. */
void surus_rewind_mark(void);
/* Rewinds to the mark; where that would not be complete, ends this process instead. */
_Noreturn void surus_rewind(void);

#endif
