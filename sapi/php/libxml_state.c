/* Gives each request the state of libxml that the boot has left: entity loader, stream context and
 * the mode of libxml_use_internal_errors(). PHP frees what a request sets (ext/libxml/libxml.c). */
#include "php/libxml_state.h"

#include <php.h>

static struct {
	zend_function *get_loader, *set_loader, *use_errors, *clear_errors;
	/* LIBXML(stream_context), the first of the extension's globals */
	zval *context;
} libxml; /* all NULL without the extension */

static zval boot_loader, boot_context, boot_uses_errors;

static zend_function *find(const char *name, size_t len)
{
	return zend_hash_str_find_ptr(CG(function_table), name, len);
}

static void call(zend_function *function, zval *result, zval *argument)
{
	zval ignored;

	ZVAL_UNDEF(&ignored);
	zend_call_known_function(function, NULL, NULL, result ? result : &ignored, argument ? 1 : 0,
	        argument, NULL);
	zval_ptr_dtor(&ignored);
}

void surus_libxml_save(void)
{
	zend_module_entry *module = zend_hash_str_find_ptr(&module_registry, ZEND_STRL("libxml"));

	libxml.get_loader = find(ZEND_STRL("libxml_get_external_entity_loader"));
	libxml.set_loader = find(ZEND_STRL("libxml_set_external_entity_loader"));
	libxml.use_errors = find(ZEND_STRL("libxml_use_internal_errors"));
	libxml.clear_errors = find(ZEND_STRL("libxml_clear_errors"));
	if (!module || !libxml.get_loader || !libxml.set_loader || !libxml.use_errors ||
	        !libxml.clear_errors || module->globals_size < sizeof(zval)) {
		memset(&libxml, 0, sizeof(libxml)); /* absent, or disabled by disable_functions */
		return;
	}
	libxml.context = module->globals_ptr;
	ZVAL_COPY(&boot_context, libxml.context);
	call(libxml.get_loader, &boot_loader, NULL);
	call(libxml.use_errors, &boot_uses_errors, NULL);
}

void surus_libxml_restore(void)
{
	zval loader;

	if (!libxml.context) {
		return;
	}
	call(libxml.clear_errors, NULL, NULL);
	call(libxml.use_errors, NULL, &boot_uses_errors);
	call(libxml.get_loader, &loader, NULL);
	if (!zend_is_identical(&loader, &boot_loader)) {
		call(libxml.set_loader, NULL, &boot_loader);
	}
	zval_ptr_dtor(&loader);
	if (Z_TYPE_P(libxml.context) != Z_TYPE(boot_context) ||
	        (Z_TYPE(boot_context) == IS_RESOURCE &&
	                Z_RES_P(libxml.context) != Z_RES(boot_context))) {
		zval_ptr_dtor(libxml.context);
		ZVAL_COPY(libxml.context, &boot_context);
	}
}
