/* Collects the reference cycles that requests leave, at the end of a request or between two. */
#ifndef SURUS_APP_CYCLES_H
#define SURUS_APP_CYCLES_H

#include <stdbool.h>

/* At the end of the boot, and of each event where the process goes on as it is. May end in a fatal
 * error. */
void surus_cycles_note(void);
void surus_cycles_end(void);

/* Would PHP soon collect in the midst of a request? */
bool surus_cycles_are_due(void);
/* Outside of a request. May end in a fatal error. */
void surus_cycles_collect(void);

#endif
