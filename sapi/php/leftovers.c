/* Frees what a request has left in PHP and its extensions, in a process that continues. PHP would
 * free it when the worker exits. */
#include "php/leftovers.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include <php.h>
#include <SAPI.h>
#include <php_streams.h>
#include <ext/random/php_random.h>
#include <ext/standard/basic_functions.h>
#include <ext/standard/file.h>
#include <ext/standard/url_scanner_ex.h>

#include "base/scoreboard_layout.h"
#include "base/settings.h"
#include "php/archives.h"
#include "php/extension_restarts.h"
#include "php/get_resources.h"
#include "php/last_results.h"
#include "php/libxml_state.h"
#include "php/request_body.h"
#include "php/stream_wrappers.h"

/* Handlers that requests may add; beyond that, restore_error_handler() reaches those of the
 * boot. */
enum { HANDLERS = 16 };

static int boot_error_handlers, boot_exception_handlers;
static size_t boot_ticks;

/* Frees what error_get_last() and strtok() would show the next request. */
static void free_texts(void)
{
	if (PG(last_error_message)) {
		zend_string_release(PG(last_error_message));
		PG(last_error_message) = NULL;
	}
	if (PG(last_error_file)) {
		zend_string_release(PG(last_error_file));
		PG(last_error_file) = NULL;
	}
	if (BG(strtok_string)) {
		zend_string_release(BG(strtok_string));
		BG(strtok_string) = NULL;
	}
}

static size_t count_ticks(void)
{
	return BG(user_tick_functions) ? zend_llist_count(BG(user_tick_functions)) : 0;
}

/* --- what PHP or php-fpm resets for each request --- */

static struct {
	int directory; /* -1: cannot be opened */
	mode_t umask;
	bool has_alarm;
	/* the default stream context; NULL if the boot did not use it */
	php_stream_context *context;
	zval options;
} boot;

static void save_process(void)
{
	struct itimerval alarm;

	boot.directory = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	boot.umask = umask(0);
	umask(boot.umask);
	boot.has_alarm = getitimer(ITIMER_REAL, &alarm) == 0 && timerisset(&alarm.it_value);
	RANDOM_G(mt19937_seeded) = false;
}

static void save_context(void)
{
	boot.context = FG(default_context);
	if (boot.context) {
		ZVAL_COPY(&boot.options, &boot.context->options);
	}
}

static void restore_context(void)
{
	php_stream_context *now = FG(default_context);

	if (now && now != boot.context) {
		FG(default_context) = boot.context;
		zend_list_delete(now->res);
	}
	if (boot.context && Z_ARR(boot.context->options) != Z_ARR(boot.options)) {
		zval_ptr_dtor(&boot.context->options);
		ZVAL_COPY(&boot.context->options, &boot.options);
	}
}

static void restore_process(void)
{
	if (boot.directory >= 0 && fchdir(boot.directory) != 0) {
		/* The permission to enter it may have been removed. */
	}
	umask(boot.umask);
	if (!boot.has_alarm) {
		alarm(0);
	}
	RANDOM_G(mt19937_seeded) = false;
}

void surus_leftovers_save(void)
{
	boot_error_handlers = zend_stack_count(&EG(user_error_handlers));
	boot_exception_handlers = zend_stack_count(&EG(user_exception_handlers));
	boot_ticks = count_ticks();
	surus_libxml_save();
	save_context();
	surus_archives_save();
	if (surus_settings.engine == SURUS_WORKER) {
		free_texts(); /* so that all requests start alike */
		surus_last_results_save();
		surus_restarts_save();
		surus_wrappers_save();
		surus_get_resources_install();
		save_process();
	}
}

/* Removes the element at `at`. */
static void take(zend_stack *stack, int at, void *element, size_t size)
{
	char *from = (char *)zend_stack_base(stack) + (size_t)at * size;

	memcpy(element, from, size);
	memmove(from, from + size, (size_t)(zend_stack_count(stack) - at - 1) * size);
	stack->top--;
}

/* Drops handlers that requests set and never restore. */
static void limit_handlers(void)
{
	zval handler;
	int reporting;

	while (zend_stack_count(&EG(user_error_handlers)) > boot_error_handlers + HANDLERS) {
		take(&EG(user_error_handlers_error_reporting), boot_error_handlers, &reporting,
		        sizeof(reporting));
		take(&EG(user_error_handlers), boot_error_handlers, &handler, sizeof(handler));
		zval_ptr_dtor(&handler);
	}
	while (zend_stack_count(&EG(user_exception_handlers)) > boot_exception_handlers + HANDLERS) {
		take(&EG(user_exception_handlers), boot_exception_handlers, &handler, sizeof(handler));
		zval_ptr_dtor(&handler);
	}
}

/* The callback of header_register_callback(), if headers had been sent already: the next activation
 * would lose it. */
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

static zend_llist ticks; /* tick functions, while a request ends */

void surus_leftovers_stop_ticks(void)
{
	ticks = PG(tick_functions);
	zend_llist_init(&PG(tick_functions), ticks.size, NULL, 1);
}

/* PHP adds a function that the script registers meanwhile only once. */
static void continue_ticks(void)
{
	zend_llist added = PG(tick_functions);

	PG(tick_functions) = ticks;
	for (zend_llist_element *element = added.head; element; element = element->next) {
		zend_llist_add_element(&PG(tick_functions), element->data);
	}
	zend_llist_destroy(&added);
	while (count_ticks() > boot_ticks) {
		zend_llist_remove_tail(BG(user_tick_functions));
	}
}

void surus_leftovers_free(void)
{
	continue_ticks();
	surus_body_close();
	free_header_callback();
	php_url_scanner_reset_vars();
	surus_libxml_restore();
	limit_handlers();
	surus_archives_close();
	if (surus_settings.engine == SURUS_WORKER) {
		surus_last_results_reset();
	}
	restore_context();
	if (surus_settings.engine == SURUS_WORKER) {
		surus_wrappers_restore();
		restore_process();
	}
	free_texts();
}
