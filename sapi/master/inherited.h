/* Detects changes to what workers inherit from the master process: limits, scheduling, CPUs. */
#ifndef SURUS_MASTER_INHERITED_H
#define SURUS_MASTER_INHERITED_H

#include <stdbool.h>

/* Saves the current values. */
void surus_inherited_save(void);
/* Whether they differ now. Processes of the same user can change them. */
bool surus_inherited_has_changed(void);

#endif
