/* Collects the reference cycles of a request that hold more than memory, at its end. */
#ifndef SURUS_APP_CYCLES_H
#define SURUS_APP_CYCLES_H

/* At the end of the boot, and of each event where the process goes on as it is. May end in a fatal
 * error. */
void surus_cycles_note(void);
void surus_cycles_end(void);

#endif
