/* What there is in this process after an event that was not there before (app/leak_inventory.c). */
#ifndef SURUS_INVENTORY_H
#define SURUS_INVENTORY_H

#include <stdbool.h>

/* Notes what there is now. */
void surus_inventory_take(void);
/* Prints what is otherwise than it was noted, a line for each thing. False: nothing was noted. */
bool surus_inventory_compare(void);

#endif
