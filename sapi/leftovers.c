/* Frees what an event has left with PHP and its extensions, where the process goes on as it is: PHP frees
 * it at the end of its request, which comes here when the worker ends. */
#include "surus.h"

#include <string.h>

#include <php.h>
#include <SAPI.h>
#include <ext/standard/url_scanner_ex.h>

/* Handlers that events may stack up; restore_error_handler() beyond them reaches those of the boot. */
enum { HANDLERS = 16 };

static int boot_error_handlers, boot_exception_handlers;
static zend_function *libxml_clear_errors; /* NULL without the extension */

void surus_leftovers_note(void)
{
	boot_error_handlers = zend_stack_count(&EG(user_error_handlers));
	boot_exception_handlers = zend_stack_count(&EG(user_exception_handlers));
	libxml_clear_errors = zend_hash_str_find_ptr(CG(function_table), ZEND_STRL("libxml_clear_errors"));
}

/* Takes the element out of the middle. */
static void take(zend_stack *stack, int at, void *element, size_t size)
{
	char *from = (char *)zend_stack_base(stack) + (size_t)at * size;

	memcpy(element, from, size);
	memmove(from, from + size, (size_t)(zend_stack_count(stack) - at - 1) * size);
	stack->top--;
}

/* A handler that every event sets and none restores would be kept for each of them. */
static void limit_handlers(void)
{
	zval handler;
	int reporting;

	while (zend_stack_count(&EG(user_error_handlers)) > boot_error_handlers + HANDLERS) {
		take(&EG(user_error_handlers_error_reporting), boot_error_handlers, &reporting, sizeof(reporting));
		take(&EG(user_error_handlers), boot_error_handlers, &handler, sizeof(handler));
		zval_ptr_dtor(&handler);
	}
	while (zend_stack_count(&EG(user_exception_handlers)) > boot_exception_handlers + HANDLERS) {
		take(&EG(user_exception_handlers), boot_exception_handlers, &handler, sizeof(handler));
		zval_ptr_dtor(&handler);
	}
}

/* That of header_register_callback(), where headers had been sent already: the next activation forgets it. */
static void free_header_callback(void)
{
#if PHP_VERSION_ID >= 80600
	if (ZEND_FCC_INITIALIZED(SG(send_header_fcc))) {
		zend_fcc_dtor(&SG(send_header_fcc));
	}
#else
	zval_ptr_dtor(&SG(callback_func));
	ZVAL_UNDEF(&SG(callback_func));
#endif
}

void surus_leftovers_free(void)
{
	surus_body_close();
	free_header_callback();
	php_url_scanner_reset_vars();
	/* Where a script has libxml collect its errors, and does not clear them. */
	if (libxml_clear_errors) {
		zend_call_known_function(libxml_clear_errors, NULL, NULL, NULL, 0, NULL, NULL);
	}
	limit_handlers();
}
