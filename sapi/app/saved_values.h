/* Saves PHP's variables and restores them later, in place. */
#ifndef SURUS_APP_SAVED_VALUES_H
#define SURUS_APP_SAVED_VALUES_H

#include <php.h>

/* Saves a variable that stays where it is, and all references below it in arrays. `info` describes
 * a property, `class` has a static one; both may be NULL. */
void surus_values_save(zval *slot, zend_property_info *info, zend_class_entry *class);

/* Saves what the references below a value contain, in arrays at any depth. Something that is saved
 * must keep the value. */
void surus_values_save_references(zval *value);

/* Whether two values are the same one. Arrays and objects are compared as pointers: a saved array
 * is shared, so code that changes it separates it first. */
bool surus_values_are_same(const zval *one, const zval *other);

/* Sets a variable to a copy of a value. surus_values_free_replaced() frees the previous value,
 * because that may run code of the application. */
void surus_values_set(zval *slot, const zval *value, zend_property_info *info);

/* As surus_values_set(), to a declared value, which is evaluated first if the variable was. */
void surus_values_set_declared(zval *slot, const zval *value, zend_property_info *info,
        zend_class_entry *class);

/* Frees a value together with those that were replaced. */
void surus_values_free_later(zval *value);

/* Restores all saved variables. */
void surus_values_restore(void);

/* Frees the replaced values. Returns whether there were any. */
bool surus_values_free_replaced(void);

/* Forgets what was saved. */
void surus_values_free(void);

/* Stops the process if memory is short: a boot that is restored in part must not serve. */
void *surus_values_grow(void *list, size_t count, size_t *size, size_t element);

#endif
