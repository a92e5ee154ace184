/* Collects the reference cycles that requests leave (`worker`).
 *
 * Cycles that hold more than memory are collected at the end of the request, because PHP's request
 * shutdown destroys every object: files close, locks and transactions end, destructors run. Other
 * cycles are collected between requests, before PHP would collect them during one. */
#include "app/cycles.h"

#include <php.h>
#include <zend_closures.h>
#include <zend_gc.h>

#include "php/get_resources.h"

/* At the end of the last request. */
static zend_ulong next_resource;
static uint32_t alive, objects; /* see count_alive(), count_objects() */
/* PHP's number of collections when a collection between requests found little. Then PHP does the
 * next one, and raises its threshold if that finds little, too. */
static uint32_t left_to_php = UINT32_MAX;

/* Counts all objects. Takes as long as the list of free slots, which has as many as a request has
 * used. */
static uint32_t count_alive(void)
{
	const zend_objects_store *store = &EG(objects_store);
	uint32_t count = store->top - 1;

	for (int free = store->free_list_head; free != -1;
	        free = (int)GET_OBJ_BUCKET_NUMBER(store->object_buckets[free])) {
		count--;
	}
	return count;
}

/* Counts objects whose destruction does more than free memory. */
static uint32_t count_objects(void)
{
	uint32_t count = 0;

	for (uint32_t i = 1; i < EG(objects_store).top; i++) {
		const zend_object *object = EG(objects_store).object_buckets[i];
		if (!IS_OBJ_VALID(object) || object->ce == zend_ce_closure) {
			continue;
		}
		count += object->ce->destructor ||
		        object->handlers->dtor_obj != zend_objects_destroy_object ||
		         object->handlers->free_obj != zend_object_std_dtor;
	}
	return count;
}

/* Whether the request has left a resource that would not end with it anyway. */
static bool is_resource_left(void)
{
	const HashTable *list = &EG(regular_list);

	for (uint32_t i = list->nNumUsed; i-- > 0;) {
		const zval *slot = ZEND_HASH_ELEMENT(list, i);
		if (Z_TYPE_P(slot) == IS_UNDEF) {
			continue;
		}
		const zend_resource *resource = Z_PTR_P(slot);
		if ((zend_ulong)resource->handle < next_resource) {
			break;
		}
		if (!surus_resource_is_internal(resource)) {
			return true;
		}
	}
	return false;
}

void surus_cycles_save(void)
{
	next_resource = (zend_ulong)EG(regular_list).nNextFreeElement;
	alive = count_alive();
	objects = count_objects();
}

/* If the number of objects is unchanged, the request has left none, and the longer count is
 * skipped. */
static bool is_object_left(void)
{
	uint32_t before = objects;

	if (count_alive() != alive) {
		alive = count_alive();
		objects = count_objects();
	}
	return objects > before;
}

static void collect(void)
{
	zend_try {
		gc_collect_cycles();
	} zend_catch {
		/* As PHP if a destructor ends the request; this worker will exit. */
		zend_objects_store_mark_destructed(&EG(objects_store));
	} zend_end_try();
	surus_cycles_save();
}

void surus_cycles_end(void)
{
	zend_gc_status status;

	zend_gc_get_status(&status);
	if (status.num_roots == 0) {
		return; /* no cycle can have become unreachable */
	}
	bool is_left = is_object_left();
	if (!is_left && !is_resource_left()) {
		next_resource = (zend_ulong)EG(regular_list).nNextFreeElement;
		return;
	}
	collect();
}

bool surus_cycles_are_due(void)
{
	zend_gc_status status;

	zend_gc_get_status(&status);
	return gc_enabled() && status.num_roots >= status.threshold / 4 * 3 &&
	       status.runs != left_to_php;
}

void surus_cycles_collect(void)
{
	enum { LITTLE = 100 }; /* as GC_THRESHOLD_TRIGGER in Zend/zend_gc.c */
	zend_gc_status before, after;

	zend_gc_get_status(&before);
	collect();
	zend_gc_get_status(&after);
	if (after.collected - before.collected < LITTLE) {
		left_to_php = after.runs;
	}
}
