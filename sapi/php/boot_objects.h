/* Distinguishes the objects and resources of the boot from those of a request. */
#ifndef SURUS_PHP_BOOT_OBJECTS_H
#define SURUS_PHP_BOOT_OBJECTS_H

#include <stdbool.h>
#include <stdint.h>

struct _zend_object;

/* Whether the boot has made this object. */
bool surus_boot_objects_has(struct _zend_object *object);

/* At the end of the boot: records its objects and resources. */
void surus_boot_objects_save(void);
/* The first slot that may contain an object of a request. Usually all slots of the boot lie before
 * it. */
uint32_t surus_boot_objects_first_slot(void);
/* Resources from this number on are a request's. */
int64_t surus_boot_first_resource(void);
/* Used slots of EG(persistent_list) at the end of the boot. */
uint32_t surus_boot_persistent_slots(void);

#endif
