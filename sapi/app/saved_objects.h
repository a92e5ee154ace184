/* Saves the properties of all objects and restores them later. */
#ifndef SURUS_APP_SAVED_OBJECTS_H
#define SURUS_APP_SAVED_OBJECTS_H

#include <stddef.h>

/* Saves all objects but those of Surus's own boot scripts, which run while values are restored. No
 * saved object is freed before surus_objects_free(). */
void surus_objects_save(void);

/* Restores what surus_values_restore() does not: properties that no class declares. */
void surus_objects_restore(void);

/* The class of an object that has changed where it cannot be restored: inside of PHP's own classes.
 * NULL if there is none. */
const char *surus_objects_changed(void);

void surus_objects_free(void);

#endif
