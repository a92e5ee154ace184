/* Lists what a request has left in the process, for `surus leaks` on the engine `worker`. */
#ifndef SURUS_APP_LEAK_INVENTORY_H
#define SURUS_APP_LEAK_INVENTORY_H

#include <stdbool.h>

/* Takes the inventory before a request. */
void surus_inventory_save(void);
/* Prints the differences to the last inventory, one per line. False: there is none. */
bool surus_inventory_compare(void);

#endif
