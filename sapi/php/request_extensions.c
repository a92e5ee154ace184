/* Extensions that begin and end with each event, in a process whose application has booted. */
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

/* Extensions whose request startup or shutdown does something to the answer or to variables, and so
 * belongs to each event. The others have started with the boot. */
static zend_module_entry *each_event[3];

/* The first is the session. */
static const char *const names[] = {"session", "zlib", "filter"};

/* A PHP without sessions has none of it. */
#pragma weak ps_globals

enum { SAVE_FUNCTIONS = sizeof(PS(mod_user_names)) / sizeof(zval) };

/* Ends the session. The functions that session_set_save_handler() was given are the script's, which
 * will not give them again: a service that has been made lives on. PHP would forget them, but not
 * that there have been some. */
static void end_session(zend_module_entry *session)
{
	zval *functions = (zval *)&PS(mod_user_names), kept[SAVE_FUNCTIONS];

	if (!session) {
		return;
	}
	/* What is still open is written by them, so they are copied and not moved. */
	for (size_t i = 0; i < SAVE_FUNCTIONS; i++) {
		ZVAL_COPY(&kept[i], &functions[i]);
	}
	surus_shut_down(session);
	for (size_t i = 0; i < SAVE_FUNCTIONS; i++) {
		ZVAL_COPY_VALUE(&functions[i], &kept[i]);
	}
}

void surus_extensions_find(void)
{
	for (size_t i = 0; i < sizeof(each_event) / sizeof(*each_event); i++) {
		each_event[i] = zend_hash_str_find_ptr(&module_registry, names[i], strlen(names[i]));
	}
}

void surus_extensions_begin(void)
{
	for (size_t i = 0; i < sizeof(each_event) / sizeof(*each_event); i++) {
		zend_module_entry *extension = each_event[i];
		if (extension && extension->request_startup_func) {
			extension->request_startup_func(extension->type, extension->module_number);
		}
	}
}

void surus_extensions_end(void)
{
	end_session(each_event[0]);
	for (size_t i = 1; i < sizeof(each_event) / sizeof(*each_event); i++) {
		surus_shut_down(each_event[i]);
	}
	surus_url_rewriter_end();
	zend_hash_str_del(&EG(symbol_table), "_SESSION", sizeof("_SESSION") - 1);
}

void surus_shut_down(zend_module_entry *extension)
{
	if (extension && extension->request_shutdown_func) {
		zend_try {
			extension->request_shutdown_func(extension->type, extension->module_number);
		} zend_end_try();
	}
}
