/* Gives each request the state of libxml that the boot has left: entity loader, stream context and
 * the mode of libxml_use_internal_errors(). PHP frees what a request sets (ext/libxml/libxml.c). */
#include "php/libxml_state.h"

#include <php.h>

/* Functions of the extension. NULL: it is missing, or disable_functions names the function. */
static zend_function *get_loader, *set_loader, *use_errors, *clear_errors;
/* LIBXML(stream_context), the first of its globals. */
static zval *context;

static zval boot_loader, boot_context, boot_uses_errors;

static zend_function *find(const char *name)
{
	return zend_hash_str_find_ptr(CG(function_table), name, strlen(name));
}

/* The result is undefined without the function. */
static zval call(zend_function *function, zval *argument)
{
	zval result;

	ZVAL_UNDEF(&result);
	if (function) {
		zend_call_known_function(function, NULL, NULL, &result, argument ? 1 : 0, argument, NULL);
	}
	return result;
}

static void set(zend_function *function, zval *argument)
{
	zval result = call(function, argument);

	zval_ptr_dtor(&result);
}

void surus_libxml_save(void)
{
	zend_module_entry *module = zend_hash_str_find_ptr(&module_registry, ZEND_STRL("libxml"));

	if (!module) {
		return;
	}
	get_loader = find("libxml_get_external_entity_loader");
	set_loader = find("libxml_set_external_entity_loader");
	use_errors = find("libxml_use_internal_errors");
	clear_errors = find("libxml_clear_errors");
	boot_loader = call(get_loader, NULL);
	boot_uses_errors = call(use_errors, NULL);
	if (module->globals_size >= sizeof(*context)) {
		context = module->globals_ptr;
		ZVAL_COPY(&boot_context, context);
	}
}

static void restore_loader(void)
{
	zval loader = call(get_loader, NULL);

	if (get_loader && !zend_is_identical(&loader, &boot_loader)) {
		set(set_loader, &boot_loader);
	}
	zval_ptr_dtor(&loader);
}

static void restore_context(void)
{
	bool is_changed = Z_TYPE_P(context) != Z_TYPE(boot_context) ||
	                  (Z_TYPE_P(context) == IS_RESOURCE &&
	                          Z_RES_P(context) != Z_RES(boot_context));

	if (is_changed) {
		zval_ptr_dtor(context);
		ZVAL_COPY(context, &boot_context);
	}
}

void surus_libxml_restore(void)
{
	set(clear_errors, NULL);
	if (use_errors) {
		set(use_errors, &boot_uses_errors);
	}
	restore_loader();
	if (context) {
		restore_context();
	}
}
