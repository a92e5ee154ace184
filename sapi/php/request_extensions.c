/* Starts and ends the extensions that must run for each request of a booted application. */
#include "php/request_extensions.h"

#include <string.h>

#include <php.h>
#include <ext/session/php_session.h>
#include <SAPI.h>
#include <php_main.h>
#include <php_output.h>
#include <ext/standard/basic_functions.h>
#include <zend_closures.h>
#include <zend_fibers.h>
#include <zend_weakrefs.h>

#include "base/scoreboard_layout.h"
#include "php/url_rewriter.h"

/* Extensions whose request startup or shutdown changes the response or variables. All others have
 * started with the boot. */
static zend_module_entry *per_request[3];

/* The session must be first. */
static const char *const names[] = {"session", "zlib", "filter"};

/* A PHP without sessions lacks the symbol. */
#pragma weak ps_globals

enum { SAVE_FUNCTIONS = sizeof(PS(mod_user_names)) / sizeof(zval) };

/* Ends the session but keeps the functions of session_set_save_handler(), because a service that
 * has been created will not set them again. PHP would forget them, but not that there have been
 * some. */
static void end_session(zend_module_entry *session)
{
	zval *functions = (zval *)&PS(mod_user_names), kept[SAVE_FUNCTIONS];

	if (!session) {
		return;
	}
	/* They write an open session, so they are copied, not moved. */
	for (size_t i = 0; i < SAVE_FUNCTIONS; i++) {
		ZVAL_COPY(&kept[i], &functions[i]);
	}
	surus_extension_shutdown(session);
	for (size_t i = 0; i < SAVE_FUNCTIONS; i++) {
		ZVAL_COPY_VALUE(&functions[i], &kept[i]);
	}
}

void surus_extensions_find(void)
{
	for (size_t i = 0; i < sizeof(per_request) / sizeof(*per_request); i++) {
		per_request[i] = zend_hash_str_find_ptr(&module_registry, names[i], strlen(names[i]));
	}
}

bool surus_session_is_active(void)
{
	return per_request[0] && PS(session_status) == php_session_active;
}

void surus_extensions_begin(void)
{
	for (size_t i = 0; i < sizeof(per_request) / sizeof(*per_request); i++) {
		zend_module_entry *extension = per_request[i];
		if (extension && extension->request_startup_func) {
			extension->request_startup_func(extension->type, extension->module_number);
		}
	}
}

void surus_extensions_end(void)
{
	end_session(per_request[0]);
	for (size_t i = 1; i < sizeof(per_request) / sizeof(*per_request); i++) {
		surus_extension_shutdown(per_request[i]);
	}
	surus_url_rewriter_end();
	zend_hash_str_del(&EG(symbol_table), "_SESSION", sizeof("_SESSION") - 1);
}

void surus_extension_shutdown(zend_module_entry *extension)
{
	if (extension && extension->request_shutdown_func) {
		zend_try {
			extension->request_shutdown_func(extension->type, extension->module_number);
		} zend_end_try();
	}
}
