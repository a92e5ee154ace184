/* Runs one request in a process whose application has booted. */
#include "app/request.h"

#include <unistd.h>

#include <php.h>
#include <SAPI.h>
#include <php_output.h>
#include <ext/standard/basic_functions.h>
#include <ext/standard/php_filestat.h>
#include <zend_exceptions.h>

#include "app/auto_files.h"
#include "app/child_exit.h"
#include "app/cycles.h"
#include "app/request_includes.h"
#include "base/process_state.h"
#include "base/scoreboard.h"
#include "base/scoreboard_layout.h"
#include "ipc/outbox.h"
#include "ipc/request_decode.h"
#include "php/connection_abort.h"
#include "php/error_header.h"
#include "php/exceptions.h"
#include "php/execution_time.h"
#include "php/extension_restarts.h"
#include "php/leftovers.h"
#include "php/opcache.h"
#include "php/request_extensions.h"
#include "php/sapi_module.h"
#include "php/superglobals.h"

/* The ini setting output_handler, if it is set. */
static bool set_output_handler(zval *handler)
{
#if PHP_VERSION_ID >= 80600
	if (PG(output_handler) && ZSTR_LEN(PG(output_handler)) > 0) {
		ZVAL_STR_COPY(handler, PG(output_handler));
		return true;
	}
#else
	if (PG(output_handler) && PG(output_handler)[0]) {
		ZVAL_STRING(handler, PG(output_handler));
		return true;
	}
#endif
	return false;
}

void surus_app_request_begin(void)
{
	zend_execute_data *const frame = EG(current_execute_data);
	zval handler;

	surus_outbox_begin(surus_request);
	surus_request_includes_begin();
	surus_abort_begin();
	surus_php_fill_request_info();
	PG(connection_status) = PHP_CONNECTION_NORMAL;
	PG(header_is_being_sent) = 0;
	EG(exit_status) = 0;
	/* As php_request_startup(): errors of the request are not errors of the script. */
	PG(during_request_startup) = 1;
	/* Uploads report their progress in the session only before its extension has started. */
	PG(modules_activated) = 0;
	EG(current_execute_data) = NULL;
	zend_try {
		php_output_activate();
		sapi_activate();
		surus_opcache_request_begin();
		if (set_output_handler(&handler)) {
			php_output_start_user(&handler, 0, PHP_OUTPUT_HANDLER_STDFLAGS);
			zval_ptr_dtor(&handler);
		} else if (PG(output_buffering)) {
			php_output_start_user(NULL, PG(output_buffering) > 1 ? PG(output_buffering) : 0,
			        PHP_OUTPUT_HANDLER_STDFLAGS);
		} else if (PG(implicit_flush)) {
			php_output_set_implicit_flush(1);
		}
		if (PG(expose_php)) {
			sapi_add_header(SAPI_PHP_VERSION_HEADER, sizeof(SAPI_PHP_VERSION_HEADER) - 1, 1);
		}
		surus_superglobals_reset();
		surus_extensions_begin();
		surus_execution_time_begin();
	} zend_end_try();
	EG(current_execute_data) = frame;
	PG(modules_activated) = 1;
	PG(during_request_startup) = 0;
}

bool surus_app_request_prepend(void)
{
	surus_process->runs_script = true;
	bool goes_on = !surus_request->is_body_cut && surus_auto_prepend();
	surus_process->runs_script = false;
	return goes_on;
}

/* In the order of php_execute_script(): what an exit() or an exception ends is not continued. */
static void call(zend_fcall_info *handler, zend_fcall_info_cache *cache)
{
	zval result;

	if (surus_request->is_body_cut || !surus_auto_prepend()) {
		return;
	}
	ZVAL_UNDEF(&result);
	handler->retval = &result;
	zend_call_function(handler, cache);
	bool goes_on = surus_exceptions_handle();
	zval_ptr_dtor(&result);
	if (goes_on) {
		surus_auto_append();
	}
}

bool surus_app_request_call(zend_fcall_info *handler, zend_fcall_info_cache *cache)
{
	zend_execute_data *const frame = EG(current_execute_data);
	volatile bool survived = true;

	surus_process->runs_script = true;
	surus_scoreboard_set_state(SURUS_RUNNING);
	zend_try {
		call(handler, cache);
	} zend_catch {
		survived = false;
	} zend_end_try();
	if (EG(exception)) {
		/* It was pending when a fatal error came (php_execute_script()). */
		zend_try {
			zend_exception_error(EG(exception), E_ERROR);
		} zend_catch {
			survived = false;
		} zend_end_try();
	}
	EG(current_execute_data) = frame;
	surus_process->runs_script = false;
	if (surus_process->child) {
		surus_child_exit();
	}
	surus_error_header();
	/* PHP can turn a fatal error into an exit() (memory_limit does). */
	return survived && !CG(unclean_shutdown);
}

/* Frees what the request leaves in PHP's own bookkeeping. Values that it leaves in variables
 * stay. */
bool surus_app_request_end(void)
{
	zend_execute_data *const frame = EG(current_execute_data);

	surus_leftovers_stop_ticks();
	/* With this frame: without one, PHP turns an exit() in a shutdown function into a fatal
	 * error. */
	surus_process->runs_script = true;
	php_call_shutdown_functions();
	surus_process->runs_script = false;
	const bool ends_early = EG(exception) != NULL;
	EG(current_execute_data) = frame;
	zend_try {
		surus_exception_end();
	} zend_end_try();
	/* As in PHP's request shutdown: an exception from here on has no handler and is a fatal
	 * error. */
	EG(current_execute_data) = NULL;
	php_free_shutdown_functions();
	surus_auto_files_end();
	surus_cycles_end();
	zend_try {
		php_output_end_all();
	} zend_end_try();
	zend_unset_timeout();
	surus_extensions_end();
	surus_restarts_run();
	zend_try {
		php_output_deactivate();
	} zend_end_try();
	zend_try {
		surus_leftovers_free();
	} zend_end_try();
	sapi_deactivate();
	SG(server_context) = NULL;
	surus_outbox_end(SURUS_COMPLETE, surus_request_includes_count());
	surus_request_close(surus_request);
	if (surus_process->child) {
		/* _exit(): the exit handlers of libraries belong to the worker */
		_exit(EG(exit_status));
	}
	EG(current_execute_data) = frame;
	php_clear_stat_cache(0, NULL, 0);
	zend_memory_reset_peak_usage();
	return !ends_early;
}
