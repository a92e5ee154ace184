/* Restarts extensions between two requests (`worker`). Their request shutdown frees what belongs to
 * one request, such as connections, and their request startup forgets the last error. */
#include "php/extension_restarts.h"

#include <string.h>

#include <php.h>

#include "php/mysqli_mode.h"
#include "php/request_extensions.h"

/* Reviewed in PHP 8.2 and pecl_http 4: each leaves alone what variables and services refer to.
 *
 * Others do not. The request shutdown of mongodb and solr frees clients of services. That of
 * mbstring, pcntl, readline, SPL and standard forgets settings and handlers that stay. That of oci8
 * removes persistent connections that services may use. */
static const char *const names[] = {
	"http", /* frees the headers and the body of the request */
	"imap", /* reports and frees its errors and alerts */
	"intl", /* forgets the last error, and the iterator of grapheme_*() */
	"json", /* forgets the last error */
	"mysqli", /* frees the error of the last connection */
	"odbc", /* forgets the last error */
	"pdo_dblib", /* frees the texts of the last error */
	"pgsql", /* drops the default connection; ends transactions of persistent ones */
	"soap", /* forgets use_soap_error_handler(), which turns errors into responses of SOAP */
};

enum { NAMES = sizeof(names) / sizeof(*names) };

static zend_module_entry *extensions[NAMES]; /* those of `names` that are loaded */
static size_t count;
static bool has_mysqli;
static bool has_soap_handler; /* the boot has called use_soap_error_handler() */

/* The connection that pg_query() of the boot uses without naming one. NULL: none. */
static zend_object **default_link, *boot_link;

static zend_module_entry *find(const char *name)
{
	return zend_hash_str_find_ptr(&module_registry, name, strlen(name));
}

static zend_object **find_in_globals(const zend_module_entry *pgsql, const zend_object *link)
{
	zend_object **words = pgsql->globals_ptr;

	for (size_t i = 0; words && i < pgsql->globals_size / sizeof(*words); i++) {
		if (words[i] == link) {
			return &words[i];
		}
	}
	return NULL;
}

/* Finds where the extension keeps its default connection, whatever the version of PHP: of its
 * globals, only that one refers to a connection. */
static void save_default_link(const zend_module_entry *pgsql)
{
	const zend_class_entry *class = zend_hash_str_find_ptr(CG(class_table),
	        ZEND_STRL("pgsql\\connection"));

	for (uint32_t i = 1; class && !default_link && i < EG(objects_store).top; i++) {
		zend_object *object = EG(objects_store).object_buckets[i];
		if (IS_OBJ_VALID(object) && object->ce == class) {
			default_link = find_in_globals(pgsql, object);
		}
	}
	if (default_link) {
		boot_link = *default_link;
		GC_ADDREF(boot_link);
	}
}

/* Calls use_soap_error_handler(), and returns the setting before. */
static bool use_soap_handler(bool is_used)
{
	zend_function *function = zend_hash_str_find_ptr(CG(function_table),
	        ZEND_STRL("use_soap_error_handler"));
	zval argument, before;

	if (!function || function->type != ZEND_INTERNAL_FUNCTION) {
		return false;
	}
	ZVAL_BOOL(&argument, is_used);
	zend_call_known_function(function, NULL, NULL, &before, 1, &argument, NULL);
	return Z_TYPE(before) == IS_TRUE;
}

void surus_restarts_save(void)
{
	const zend_module_entry *pgsql = find("pgsql");

	for (size_t i = 0; i < NAMES; i++) {
		zend_module_entry *extension = find(names[i]);
		if (extension) {
			extensions[count++] = extension;
		}
	}
	has_mysqli = find("mysqli");
	has_soap_handler = use_soap_handler(false);
	if (pgsql) {
		save_default_link(pgsql);
	}
	surus_restarts_run(); /* The boot's errors are not those of the first request. */
}

static void restart_all(void)
{
	for (size_t i = 0; i < count; i++) {
		surus_extension_shutdown(extensions[i]);
		/* At once: destructors may use the extension before the next request. It then counts only
		 * persistent connections; this count is for the ini settings `max_links`. */
		if (extensions[i]->request_startup_func) {
			extensions[i]->request_startup_func(extensions[i]->type, extensions[i]->module_number);
		}
	}
}

void surus_restarts_run(void)
{
	zval handler;
	zend_long mode = has_mysqli ? surus_mysqli_mode(NULL) : 0;

	/* The application's handler may turn an error of imap into an exception, which would be fatal
	 * here. */
	ZVAL_COPY_VALUE(&handler, &EG(user_error_handler));
	ZVAL_UNDEF(&EG(user_error_handler));
	restart_all();
	ZVAL_COPY_VALUE(&EG(user_error_handler), &handler);
	if (has_mysqli && surus_mysqli_mode(NULL) != mode) {
		/* A service that has chosen it does not do so again. */
		surus_mysqli_mode(&mode);
	}
	if (has_soap_handler) {
		use_soap_handler(true);
	}
	if (default_link) {
		GC_ADDREF(boot_link);
		*default_link = boot_link;
	}
}
