/* Restores what PHP code can see of a boot after its warm-ups: variables, objects, settings. Code
 * that warm-ups have loaded and compiled stays. */
#ifndef SURUS_APP_BOOT_VALUES_H
#define SURUS_APP_BOOT_VALUES_H

#include <stdbool.h>

/* Saves static properties, static variables of functions, objects, globals and settings. */
void surus_boot_values_save(void);

/* Restores them, and runs the destructors of objects to which nothing refers then. May be called
 * again. False: nothing was saved. */
bool surus_boot_values_restore(void);

/* If they are saved, a restore has to follow. */
void surus_boot_values_expect_restore(void);
/* Whether it has not. */
bool surus_boot_values_await_restore(void);

/* Whether they have been restored since the last call. */
bool surus_boot_values_restored(void);

/* What stays after the first surus_boot_values_restore() of a request, because it cannot be
 * restored. NULL: nothing. */
const char *surus_boot_values_left(void);

/* Forgets what was saved. */
void surus_boot_values_free(void);

#endif
