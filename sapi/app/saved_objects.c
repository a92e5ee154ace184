/* Saves the properties of all objects and restores them later. */
#include "app/saved_objects.h"

#include <stdlib.h>
#include <string.h>

#include <php.h>
#include <ext/spl/spl_array.h>
#include <zend_closures.h>
#if PHP_VERSION_ID >= 80400
#include <zend_lazy_objects.h>
#endif

#include "app/hidden_state.h"
#include "app/saved_values.h"

/* Of an object of PHP 8.4 that gets its properties later. A proxy then has another object. */
enum laziness { EAGER, UNINITIALIZED, PROXY };

struct saved_object {
	zend_object *object;
	HashTable *dynamic; /* copies of the properties that its class does not declare; may be NULL */
	/* what an object of PHP's own class contains, and that it does not show as properties */
	zval *inside;
	int inside_count;
	HashTable *shown; /* what only calls show; may be NULL */
	enum laziness laziness;
};

static struct saved_object *objects;
static size_t count, size;

static enum laziness laziness_of(zend_object *object)
{
#if PHP_VERSION_ID >= 80400
	if (!zend_object_is_lazy(object)) {
		return EAGER;
	}
	/* A proxy stays lazy when it is initialized. */
	return zend_lazy_object_initialized(object) ? PROXY : UNINITIALIZED;
#else
	(void)object;
	return EAGER;
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
	/* Of a lazy object, this is its initializer or the object that a proxy has. */
	bool is_standard = object->handlers->get_gc == zend_std_get_gc && laziness_of(object) == EAGER;
	if (!is_standard && object->ce != zend_ce_closure) {
		object->handlers->get_gc(object, table, &number);
	}
	/* An object may show its properties here. */
	return *table == object->properties_table ? 0 : number;
}

/* The position of an iterator, as a table. */
static HashTable *copy_position(zend_object *iterator)
{
	zend_function *key = zend_hash_str_find_ptr(&spl_ce_ArrayIterator->function_table,
	        ZEND_STRL("key"));
	HashTable *copy = zend_new_array(1);
	zval position;

	/* Not that of a class that overrides it. */
	zend_call_known_instance_method_with_0_params(key, iterator, &position);
	zend_hash_next_index_insert_new(copy, &position);
	return copy;
}

/* The method of PHP's class, not of one that overrides it; NULL if it has none. */
static zend_function *find_debug_info(const zend_object *object)
{
	const zend_class_entry *class = object->ce;

	while (class->type == ZEND_USER_CLASS && class->parent) {
		class = class->parent;
	}
	return zend_hash_str_find_ptr(&class->function_table, ZEND_STRL("__debuginfo"));
}

/* A copy of what neither properties nor the garbage collector show; NULL if that is nothing. */
static HashTable *copy_shown(zend_object *object)
{
	zval value, info;

	if (surus_object_contents(object) != SURUS_SHOWN_BY_CALLS || laziness_of(object) != EAGER) {
		return NULL;
	}
	if (instanceof_function(object->ce, spl_ce_ArrayIterator)) {
		return copy_position(object);
	}
	zend_function *debug_info = find_debug_info(object);
	if (debug_info) {
		zend_call_known_instance_method_with_0_params(debug_info, object, &info);
		return Z_TYPE(info) == IS_ARRAY ? Z_ARR(info) : NULL;
	}
	ZVAL_OBJ(&value, object);
	HashTable *shown = zend_get_properties_for(&value, ZEND_PROP_PURPOSE_DEBUG);
	HashTable *copy = shown ? zend_array_dup(shown) : NULL;
	zend_release_properties(shown);
	return copy;
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
	*one = (struct saved_object){.object = object, .laziness = laziness_of(object)};
	GC_ADDREF(object);
	/* First, because both may create the table of properties. */
	one->shown = copy_shown(object);
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
			surus_values_save_references(&one->inside[i]);
		}
	}
	if (object->ce == zend_ce_closure) {
		save_closure(object);
		return;
	}
	if (one->laziness != EAGER) {
		return; /* it has no properties of its own */
	}
	for (int i = 0; i < object->ce->default_properties_count; i++) {
		value = &object->properties_table[i];
		surus_values_save(value, object->ce->properties_info_table[i], NULL);
	}
	one->dynamic = copy_dynamic(object);
	if (one->dynamic) {
		ZEND_HASH_FOREACH_VAL(one->dynamic, value) {
			surus_values_save_references(value);
		} ZEND_HASH_FOREACH_END();
	}
}

static int compare_shown(const void *one, const void *other)
{
	return !zend_is_identical((zval *)one, (zval *)other);
}

static bool has_changed_inside(const struct saved_object *one)
{
	zval *inside;

	if (laziness_of(one->object) != one->laziness) {
		return true;
	}
	if (one->shown) {
		HashTable *now = copy_shown(one->object);
		bool is_same = now && zend_hash_compare(one->shown, now, compare_shown, true) == 0;
		if (now) {
			zend_array_release(now);
		}
		if (!is_same) {
			return true;
		}
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
		/* The properties of one that is lazy now would be those of another. */
		if (objects[i].laziness == EAGER && laziness_of(objects[i].object) == EAGER &&
		        objects[i].object->ce != zend_ce_closure) {
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
		if (one->shown) {
			zend_array_release(one->shown);
		}
		OBJ_RELEASE(one->object);
	}
	free(objects);
	objects = NULL;
	count = size = 0;
}
