/* Saves PHP's variables and restores them later, in place. */
#include "app/saved_values.h"

#include <stdlib.h>

#include <zend_exceptions.h>

#include "base/process_state.h"

struct saved {
	zval *slot;
	zval value; /* u2 is the variable's: property flags */
	zend_property_info *info;
	zend_class_entry *class;
};

static struct saved *saved;
static size_t saved_count, saved_size;

/* References and arrays that were visited, by address: many values may share one. The saved values
 * keep them, so that no other gets the address. */
static HashTable seen;
static bool is_seen_used;

static zval **pending; /* still to visit */
static size_t pending_count, pending_size;

static zval *replaced;
static size_t replaced_count, replaced_size;

void *surus_values_grow(void *list, size_t count, size_t *size, size_t element)
{
	if (count < *size) {
		return list;
	}
	*size = *size ? *size * 2 : 1024;
	list = realloc(list, *size * element);
	if (!list) {
		surus_process_abort_setup("cannot allocate the copies of the boot's variables");
	}
	return list;
}

bool surus_values_are_same(const zval *one, const zval *other)
{
	if (Z_TYPE_P(one) != Z_TYPE_P(other)) {
		return false;
	}
	return Z_TYPE_P(one) <= IS_TRUE || Z_LVAL_P(one) == Z_LVAL_P(other); /* or the same pointer */
}

static void save(zval *slot, zend_property_info *info, zend_class_entry *class)
{
	saved = surus_values_grow(saved, saved_count, &saved_size, sizeof(*saved));
	struct saved *one = &saved[saved_count++];
	one->slot = slot;
	one->info = info;
	one->class = class;
	one->value.u2 = slot->u2;
	ZVAL_COPY(&one->value, slot);
}

static bool is_new(const void *address)
{
	if (!is_seen_used) {
		is_seen_used = true;
		zend_hash_init(&seen, 1024, NULL, NULL, 0);
	}
	return zend_hash_index_add_empty_element(&seen, (zend_ulong)(uintptr_t)address) != NULL;
}

static void look_at_later(zval *value)
{
	if (Z_TYPE_P(value) == IS_REFERENCE || (Z_TYPE_P(value) == IS_ARRAY && Z_REFCOUNTED_P(value))) {
		pending = surus_values_grow(pending, pending_count, &pending_size, sizeof(*pending));
		pending[pending_count++] = value;
	}
}

void surus_values_save_references(zval *value)
{
	zval *element;

	/* Without recursion: arrays may be nested deeper than the stack is. */
	look_at_later(value);
	while (pending_count > 0) {
		value = pending[--pending_count];
		if (!is_new(Z_COUNTED_P(value))) {
			continue;
		}
		if (Z_TYPE_P(value) == IS_REFERENCE) {
			save(Z_REFVAL_P(value), NULL, NULL);
			look_at_later(Z_REFVAL_P(value));
			continue;
		}
		ZEND_HASH_FOREACH_VAL(Z_ARR_P(value), element) {
			look_at_later(element);
		} ZEND_HASH_FOREACH_END();
	}
}

void surus_values_save(zval *slot, zend_property_info *info, zend_class_entry *class)
{
	save(slot, info && ZEND_TYPE_IS_SET(info->type) ? info : NULL, class);
	surus_values_save_references(slot);
}

void surus_values_free_later(zval *value)
{
	if (Z_REFCOUNTED_P(value)) {
		replaced = surus_values_grow(replaced, replaced_count, &replaced_size, sizeof(*replaced));
		ZVAL_COPY_VALUE(&replaced[replaced_count++], value);
	}
}

void surus_values_set(zval *slot, const zval *value, zend_property_info *info)
{
	zval before;

	if (surus_values_are_same(slot, value)) {
		return;
	}
	ZVAL_COPY_VALUE(&before, slot);
	if (info && Z_ISREF(before)) {
		ZEND_REF_DEL_TYPE_SOURCE(Z_REF(before), info);
	}
	ZVAL_COPY(slot, value);
	if (info && Z_ISREF_P(slot)) {
		ZEND_REF_ADD_TYPE_SOURCE(Z_REF_P(slot), info);
	}
	surus_values_free_later(&before);
}

void surus_values_set_declared(zval *slot, const zval *value, zend_property_info *info,
        zend_class_entry *class)
{
	zval declared;

	if (surus_values_are_same(slot, value)) {
		return;
	}
	ZVAL_COPY_OR_DUP(&declared, value);
	if (Z_TYPE(declared) == IS_CONSTANT_AST && Z_TYPE_P(slot) != IS_CONSTANT_AST) {
		/* PHP evaluates it only once. */
		if (zval_update_constant_ex(&declared, class) != SUCCESS) {
			zend_clear_exception();
			ZVAL_UNDEF(&declared);
		}
	}
	if (!zend_is_identical(slot, &declared)) {
		surus_values_set(slot, &declared, info);
	}
	zval_ptr_dtor(&declared);
}

void surus_values_restore(void)
{
	for (size_t i = 0; i < saved_count; i++) {
		struct saved *one = &saved[i];
		if (Z_TYPE(one->value) == IS_CONSTANT_AST && one->class) {
			surus_values_set_declared(one->slot, &one->value, one->info, one->class);
		} else {
			surus_values_set(one->slot, &one->value, one->info);
		}
		one->slot->u2 = one->value.u2;
	}
}

bool surus_values_free_replaced(void)
{
	bool any = replaced_count > 0;

	while (replaced_count > 0) {
		/* A destructor may replace more. */
		zval value = replaced[--replaced_count];
		zval_ptr_dtor(&value);
	}
	return any;
}

void surus_values_free(void)
{
	while (saved_count > 0) {
		zval_ptr_dtor(&saved[--saved_count].value);
	}
	if (is_seen_used) {
		is_seen_used = false;
		zend_hash_destroy(&seen);
	}
	free(saved);
	free(pending);
	free(replaced);
	saved = NULL;
	pending = NULL;
	replaced = NULL;
	saved_size = pending_size = replaced_size = 0;
}
