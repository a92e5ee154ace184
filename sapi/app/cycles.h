/* Collects the reference cycles that requests leave, at the end of a request or between two. */
#ifndef SURUS_APP_CYCLES_H
#define SURUS_APP_CYCLES_H

#include <stdbool.h>

/* At the end of the boot, and of each request in a process that continues. May end in a fatal
 * error. */
void surus_cycles_save(void);
void surus_cycles_end(void);

/* Whether PHP would soon collect cycles during a request. */
bool surus_cycles_are_due(void);
/* Between requests. May end in a fatal error. */
void surus_cycles_collect(void);

#endif
