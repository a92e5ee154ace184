/* Distinguishes the objects and resources of the boot from those of a request. */
#include "php/boot_objects.h"

#include <php.h>
#include <zend_weakrefs.h>

/* objects that a request may have before the table grows */
enum { OBJECTS = 4096 };

/* Objects of the boot. The references are weak, so that freed objects disappear. */
static HashTable boot_objects;

static uint32_t boot_object_count;
static uint32_t first_object; /* object slots from this one on are the request's */
static zend_long first_resource; /* resources from this number on are the request's */
static uint32_t persistent_at_boot; /* used slots of EG(persistent_list) */

void surus_boot_objects_save(void)
{
	zend_objects_store *store = &EG(objects_store);

	zend_hash_init(&boot_objects, 64, NULL, NULL, 0);
	for (uint32_t i = 1; i < store->top; i++) {
		zend_object *object = store->object_buckets[i];
		if (IS_OBJ_VALID(object)) {
			zval present;
			ZVAL_TRUE(&present);
			zend_weakrefs_hash_add(&boot_objects, object, &present);
		}
	}
	boot_object_count = zend_hash_num_elements(&boot_objects);
	/* Requests get no object slot of the boot, unless a request has freed an object of the boot,
	 * which then has left the table. */
	first_object = store->top;
	store->free_list_head = -1;
	if (store->size - store->top < OBJECTS) {
		/* Otherwise the table would grow in every request. */
		store->size = store->top + OBJECTS;
		store->object_buckets = erealloc(store->object_buckets,
		        store->size * sizeof(*store->object_buckets));
	}
	first_resource = EG(regular_list).nNextFreeElement;
	persistent_at_boot = EG(persistent_list).nNumUsed;
}

uint32_t surus_boot_objects_first_slot(void)
{
	return zend_hash_num_elements(&boot_objects) == boot_object_count ? first_object : 1;
}

bool surus_boot_objects_has(zend_object *object)
{
	return boot_object_count > 0 && zend_hash_index_exists(&boot_objects,
	        zend_object_to_weakref_key(object));
}

int64_t surus_boot_first_resource(void)
{
	return first_resource;
}

uint32_t surus_boot_persistent_slots(void)
{
	return persistent_at_boot;
}
