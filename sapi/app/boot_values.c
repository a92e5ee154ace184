/* Restores what PHP code can see of a boot after its warm-ups: variables, objects, settings. */
#include "app/boot_values.h"

#include <stdio.h>

#include <php.h>
#include <SAPI.h>
#include <zend_exceptions.h>
#include <zend_gc.h>

#include "app/extension_state.h"
#include "app/hidden_state.h"
#include "app/included_files.h"
#include "app/saved_objects.h"
#include "app/saved_settings.h"
#include "app/saved_values.h"

/* How often variables are restored at most: destructors may change them again. */
enum { PASSES = 4 };

static bool is_saved, is_restored;
static bool awaits_restore; /* a warm-up may have changed them since the last restore */
static char left[256];

/* Static tables (by address) whose variables are saved. All others are restored to the declared
 * values, because the boot had not used them. */
static HashTable known;

static HashTable globals; /* copies of their values */

static bool is_known(const void *table)
{
	return zend_hash_index_exists(&known, (zend_ulong)(uintptr_t)table);
}

static void add_known(const void *table)
{
	zval yes;

	ZVAL_TRUE(&yes);
	zend_hash_index_update(&known, (zend_ulong)(uintptr_t)table, &yes);
}

/* --- static variables of functions: saves them, or restores those that are not saved --- */

static void visit_function(zend_op_array *code, bool saves)
{
	HashTable *statics = code->static_variables ? ZEND_MAP_PTR_GET(code->static_variables_ptr)
	        : NULL;
	zval *value;

	if (!statics || is_known(statics)) {
		return;
	}
	if (saves) {
		add_known(statics);
		ZEND_HASH_FOREACH_VAL(statics, value) {
			surus_values_save(value, NULL, NULL);
		} ZEND_HASH_FOREACH_END();
	} else {
		zend_string *name;
		ZEND_HASH_FOREACH_STR_KEY_VAL(statics, name, value) {
			/* As when the function is called for the first time. PHP evaluates it then. */
			const zval *declared = zend_hash_find(code->static_variables, name);
			if (declared) {
				surus_values_set(value, declared, NULL);
			}
		} ZEND_HASH_FOREACH_END();
	}
}

/* --- static properties --- */

static void visit_properties(zend_class_entry *class, bool saves)
{
	zval *statics = class->default_static_members_count ? CE_STATIC_MEMBERS(class) : NULL;
	zend_property_info *property;

	if (!statics || is_known(statics)) {
		return;
	}
	if (saves) {
		add_known(statics);
	}
	ZEND_HASH_FOREACH_PTR(&class->properties_info, property) {
		if (!(property->flags & ZEND_ACC_STATIC) || property->ce != class) {
			continue; /* not static, or the parent's */
		}
		zval *slot = &statics[property->offset];
		if (Z_TYPE_P(slot) == IS_INDIRECT) {
			continue;
		}
		if (saves) {
			surus_values_save(slot, property, class);
		} else {
			surus_values_set_declared(slot, &class->default_static_members_table[property->offset],
			        ZEND_TYPE_IS_SET(property->type) ? property : NULL, class);
		}
	} ZEND_HASH_FOREACH_END();
}

static void visit_statics(bool saves)
{
	zend_class_entry *class;
	zend_function *function;

	ZEND_HASH_FOREACH_PTR(EG(class_table), class) {
		if (class->type != ZEND_USER_CLASS) {
			continue;
		}
		visit_properties(class, saves);
		ZEND_HASH_FOREACH_PTR(&class->function_table, function) {
			if (function->type == ZEND_USER_FUNCTION && function->common.scope == class) {
				visit_function(&function->op_array, saves);
			}
		} ZEND_HASH_FOREACH_END();
#if PHP_VERSION_ID >= 80400
		zend_property_info *property;
		ZEND_HASH_FOREACH_PTR(&class->properties_info, property) {
			for (uint32_t i = 0; property->hooks && i < ZEND_PROPERTY_HOOK_COUNT; i++) {
				function = property->hooks[i];
				if (function && function->type == ZEND_USER_FUNCTION) {
					visit_function(&function->op_array, saves);
				}
			}
		} ZEND_HASH_FOREACH_END();
#endif
	} ZEND_HASH_FOREACH_END();
	ZEND_HASH_FOREACH_PTR(EG(function_table), function) {
		if (function->type == ZEND_USER_FUNCTION) {
			visit_function(&function->op_array, saves);
		}
	} ZEND_HASH_FOREACH_END();
}

/* --- global variables --- */

/* Set for each request. */
static bool is_superglobal(const zend_string *name)
{
	return zend_hash_exists(CG(auto_globals), (zend_string *)name);
}

static void save_globals(void)
{
	zend_string *name;
	zval *value;

	zend_hash_init(&globals, 64, NULL, ZVAL_PTR_DTOR, 0);
	ZEND_HASH_FOREACH_STR_KEY_VAL_IND(&EG(symbol_table), name, value) {
		if (!name || is_superglobal(name)) {
			continue;
		}
		Z_TRY_ADDREF_P(value);
		zend_hash_add_new(&globals, name, value);
		surus_values_save_references(value);
	} ZEND_HASH_FOREACH_END();
}

static void restore_globals(void)
{
	zval undefined, *value, *slot;
	zend_string *name;
	zend_ulong number;

	ZVAL_UNDEF(&undefined);
	ZEND_HASH_FOREACH_KEY_VAL(&EG(symbol_table), number, name, slot) {
		if (name && (is_superglobal(name) || zend_hash_exists(&globals, name))) {
			continue;
		}
		if (Z_TYPE_P(slot) == IS_INDIRECT) {
			surus_values_set(Z_INDIRECT_P(slot), &undefined, NULL);
			continue;
		}
		Z_TRY_ADDREF_P(slot);
		surus_values_free_later(slot);
		name ? zend_hash_del(&EG(symbol_table), name)
		     : zend_hash_index_del(&EG(symbol_table), number);
	} ZEND_HASH_FOREACH_END();
	ZEND_HASH_FOREACH_STR_KEY_VAL(&globals, name, value) {
		slot = zend_hash_find(&EG(symbol_table), name);
		if (!slot) {
			Z_TRY_ADDREF_P(value);
			zend_hash_add_new(&EG(symbol_table), name, value);
			continue;
		}
		surus_values_set(Z_TYPE_P(slot) == IS_INDIRECT ? Z_INDIRECT_P(slot) : slot, value, NULL);
	} ZEND_HASH_FOREACH_END();
}

/* --- all --- */

void surus_boot_values_save(void)
{
	if (is_saved) {
		return;
	}
	is_saved = true;
	/* Without cycles, which would live as long as the warm-ups. */
	gc_collect_cycles();
	zend_hash_init(&known, 4096, NULL, NULL, 0);
	surus_objects_save();
	visit_statics(true);
	save_globals();
	surus_included_files_save();
	surus_extension_state_save();
	surus_saved_settings_save();
	surus_hidden_state_save();
}

/* Returns whether there was something to restore or to free. */
static bool restore_once(void)
{
	surus_objects_restore();
	surus_values_restore();
	visit_statics(false);
	restore_globals();
	bool any = surus_values_free_replaced();
	return gc_collect_cycles() > 0 || any;
}

/* Returns what cannot be restored; NULL if there is nothing. */
static const char *restore_variables(void)
{
	static char text[200];
	int passes = 0;

	/* Destructors may change what has been restored. */
	while (restore_once()) {
		if (++passes == PASSES) {
			return "objects that change others when they are freed";
		}
	}
	if (EG(exception)) {
		zend_clear_exception();
		return "objects that throw an exception when they are freed";
	}
	const char *class = surus_objects_changed();
	if (!class) {
		return NULL;
	}
	snprintf(text, sizeof(text), "another state of an object of the boot (class %s)", class);
	return text;
}

bool surus_boot_values_restore(void)
{
	if (!is_saved) {
		return false;
	}
	bool is_first = !is_restored;
	if (is_first) {
		left[0] = '\0';
	}
	is_restored = true;
	const char *(*const parts[])(void) = {restore_variables, surus_saved_settings_restore,
		    surus_extension_state_restore, surus_hidden_state_find};
	const char *any = NULL;
	for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++) {
		const char *part = parts[i]();
		any = any ? any : part;
	}
	if (!any) {
		/* A file that has left something would leave it again. */
		surus_included_files_forget();
	}
	if (is_first && any) {
		snprintf(left, sizeof(left), "%s", any);
	}
	/* Objects are created as before a response from here on: some constructors change settings only
	 * then. No client gets the response of a warm-up. */
	SG(headers_sent) = 0;
	awaits_restore = false;
	return true;
}

void surus_boot_values_expect_restore(void)
{
	awaits_restore = is_saved;
}

bool surus_boot_values_await_restore(void)
{
	return awaits_restore;
}

bool surus_boot_values_restored(void)
{
	bool was = is_restored;

	is_restored = false;
	return was;
}

const char *surus_boot_values_left(void)
{
	return left[0] ? left : NULL;
}

void surus_boot_values_free(void)
{
	if (!is_saved) {
		return;
	}
	is_saved = awaits_restore = false;
	zend_hash_destroy(&globals);
	zend_hash_destroy(&known);
	surus_values_free();
	surus_objects_free();
	surus_saved_settings_free();
	surus_extension_state_free();
	surus_hidden_state_free();
}
