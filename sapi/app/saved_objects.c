/* Saves the properties of all objects and restores them later. */
#include "app/saved_objects.h"

#include <stdlib.h>
#include <string.h>

#include <php.h>
#include <zend_closures.h>
#if PHP_VERSION_ID >= 80400
#include <zend_lazy_objects.h>
#endif

#include "app/saved_values.h"

struct saved_object {
	zend_object *object;
	HashTable *dynamic; /* copies of the properties that its class does not declare; may be NULL */
	/* what an object of PHP's own class contains, and that it does not show as properties */
	zval *inside;
	int inside_count;
	bool is_lazy; /* it has not been initialized */
};

static struct saved_object *objects;
static size_t count, size;

static bool is_lazy(zend_object *object)
{
#if PHP_VERSION_ID >= 80400
	return zend_object_is_lazy(object);
#else
	(void)object;
	return false;
#endif
}

/* --- properties that no class declares --- */

static HashTable *copy_dynamic(const zend_object *object)
{
	HashTable *copy = NULL;
	zend_ulong number;
	zend_string *name;
	zval *value;

	if (!object->properties) {
		return NULL;
	}
	ZEND_HASH_FOREACH_KEY_VAL(object->properties, number, name, value) {
		if (Z_TYPE_P(value) == IS_INDIRECT) {
			continue;
		}
		copy = copy ? copy : zend_new_array(8);
		Z_TRY_ADDREF_P(value);
		name ? zend_hash_add_new(copy, name, value) : zend_hash_index_add_new(copy, number, value);
	} ZEND_HASH_FOREACH_END();
	return copy;
}

/* Whether both have the same elements, but for declared properties. Both may be NULL. */
static bool are_same_tables(HashTable *then, HashTable *now)
{
	uint32_t found = 0;
	zend_ulong number;
	zend_string *name;
	zval *value, *before;

	if (now) {
		ZEND_HASH_FOREACH_KEY_VAL(now, number, name, value) {
			if (Z_TYPE_P(value) == IS_INDIRECT) {
				continue;
			}
			before = !then ? NULL : name ? zend_hash_find(then, name)
			         : zend_hash_index_find(then, number);
			if (!before || !surus_values_are_same(before, value)) {
				return false;
			}
			found++;
		} ZEND_HASH_FOREACH_END();
	}
	return found == (then ? zend_hash_num_elements(then) : 0);
}

static void restore_dynamic(zend_object *object, HashTable *then)
{
	zend_ulong number;
	zend_string *name;
	zval *value, before;

	if (are_same_tables(then, object->properties)) {
		return;
	}
	if (object->properties) {
		ZVAL_ARR(&before, object->properties);
		if (GC_FLAGS(object->properties) & IS_ARRAY_IMMUTABLE) {
			ZVAL_UNDEF(&before);
		}
		object->properties = NULL;
		surus_values_free_later(&before);
	}
	if (!then) {
		return; /* PHP builds the table again where it needs one. */
	}
	zend_std_get_properties(object);
	ZEND_HASH_FOREACH_KEY_VAL(then, number, name, value) {
		Z_TRY_ADDREF_P(value);
		name ? zend_hash_update(object->properties, name, value)
		     : zend_hash_index_update(object->properties, number, value);
	} ZEND_HASH_FOREACH_END();
}

/* --- one object --- */

/* Whether PHP code runs here that restores the others, or the values never change. */
static bool is_left_alone(const zend_object *object)
{
	return strncmp(ZSTR_VAL(object->ce->name), ZEND_STRL("Surus\\")) == 0 ||
	       (object->ce->ce_flags & ZEND_ACC_ENUM);
}

static int look_inside(zend_object *object, zval **table)
{
	int number = 0;

	*table = NULL;
	if (object->handlers->get_gc != zend_std_get_gc && object->ce != zend_ce_closure) {
		object->handlers->get_gc(object, table, &number);
	}
	/* An object may show its properties here. */
	return *table == object->properties_table ? 0 : number;
}

static void save_closure(zend_object *object)
{
	const zend_function *function = zend_get_closure_method_def(object);
	zval *value;

	if (function->type != ZEND_USER_FUNCTION || !function->op_array.static_variables) {
		return;
	}
	HashTable *statics = ZEND_MAP_PTR_GET(function->op_array.static_variables_ptr);
	if (statics) {
		ZEND_HASH_FOREACH_VAL(statics, value) {
			surus_values_save(value, NULL, NULL);
		} ZEND_HASH_FOREACH_END();
	}
}

static void save_one(zend_object *object)
{
	zval *inside, *value;

	objects = surus_values_grow(objects, count, &size, sizeof(*objects));
	struct saved_object *one = &objects[count++];
	*one = (struct saved_object){.object = object, .is_lazy = is_lazy(object)};
	GC_ADDREF(object);
	if (one->is_lazy) {
		return;
	}
	/* First, because it may create the table of properties. */
	one->inside_count = look_inside(object, &inside);
	if (one->inside_count > 0) {
		one->inside = safe_emalloc(one->inside_count, sizeof(zval), 0);
		for (int i = 0; i < one->inside_count; i++) {
			if (Z_TYPE(inside[i]) == IS_ARRAY) {
				/* These objects change their array even if it is shared. */
				ZVAL_ARR(&one->inside[i], zend_array_dup(Z_ARR(inside[i])));
			} else {
				ZVAL_COPY(&one->inside[i], &inside[i]);
			}
		}
	}
	if (object->ce == zend_ce_closure) {
		save_closure(object);
		return;
	}
	for (int i = 0; i < object->ce->default_properties_count; i++) {
		value = &object->properties_table[i];
		surus_values_save(value, object->ce->properties_info_table[i], NULL);
	}
	one->dynamic = copy_dynamic(object);
	if (one->dynamic) {
		ZEND_HASH_FOREACH_VAL(one->dynamic, value) {
			if (Z_ISREF_P(value)) {
				surus_values_save(Z_REFVAL_P(value), NULL, NULL);
			}
		} ZEND_HASH_FOREACH_END();
	}
}

static bool has_changed_inside(const struct saved_object *one)
{
	zval *inside;

	if (one->is_lazy) {
		return !is_lazy(one->object);
	}
	if (look_inside(one->object, &inside) != one->inside_count) {
		return true;
	}
	for (int i = 0; i < one->inside_count; i++) {
		const zval *then = &one->inside[i], *now = &inside[i];
		if (Z_TYPE_P(then) == IS_ARRAY && Z_TYPE_P(now) == IS_ARRAY
		        ? !are_same_tables(Z_ARR_P(then), Z_ARR_P(now))
		        : !surus_values_are_same(then, now)) {
			return true;
		}
	}
	return false;
}

/* --- all --- */

void surus_objects_save(void)
{
	const uint32_t top = EG(objects_store).top;

	for (uint32_t i = 1; i < top; i++) {
		zend_object *object = EG(objects_store).object_buckets[i];
		if (IS_OBJ_VALID(object) && !is_left_alone(object) &&
		        !(OBJ_FLAGS(object) & IS_OBJ_DESTRUCTOR_CALLED)) {
			save_one(object);
		}
	}
}

void surus_objects_restore(void)
{
	for (size_t i = 0; i < count; i++) {
		if (!objects[i].is_lazy && objects[i].object->ce != zend_ce_closure) {
			restore_dynamic(objects[i].object, objects[i].dynamic);
		}
	}
}

const char *surus_objects_changed(void)
{
	for (size_t i = 0; i < count; i++) {
		if (has_changed_inside(&objects[i])) {
			return ZSTR_VAL(objects[i].object->ce->name);
		}
	}
	return NULL;
}

void surus_objects_free(void)
{
	for (size_t i = 0; i < count; i++) {
		struct saved_object *one = &objects[i];
		for (int inside = 0; inside < one->inside_count; inside++) {
			zval_ptr_dtor(&one->inside[inside]);
		}
		if (one->inside) {
			efree(one->inside);
		}
		if (one->dynamic) {
			zend_array_release(one->dynamic);
		}
		OBJ_RELEASE(one->object);
	}
	free(objects);
	objects = NULL;
	count = size = 0;
}
