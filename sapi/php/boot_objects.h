/* Tells the objects and resources of the boot from those of a request. */
#ifndef SURUS_PHP_BOOT_OBJECTS_H
#define SURUS_PHP_BOOT_OBJECTS_H

#include <stdbool.h>
#include <stdint.h>

struct _zend_object;

/* Has the boot made this object? */
bool surus_ours_is_boots(struct _zend_object *object);

/* At the end of the boot: notes its objects and resources. */
void surus_boot_objects_note(void);
/* From which slot on there are objects that are a request's; most are in slots of their own, so
 * that the boot's need not be looked at. */
uint32_t surus_boot_objects_first_slot(void);
/* Resources from this number on are a request's. */
int64_t surus_boot_first_resource(void);
/* Used slots of EG(persistent_list) at the end of the boot. */
uint32_t surus_boot_persistent_slots(void);

#endif
