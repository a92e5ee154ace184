/* The PHP functions by which a booted script serves requests: surus_serve(), surus_checkpoint(),
 * frankenphp_handle_request(). */
#include "app/serve.h"

#include <unistd.h>

#include <php.h>
#include <SAPI.h>
#include <php_output.h>
#include <ext/standard/basic_functions.h>
#include <ext/standard/head.h>
#include <ext/standard/php_filestat.h>
#include <zend_exceptions.h>

#include "app/auto_files.h"
#include "app/boot_complete.h"
#include "app/boot_response.h"
#include "app/boot_shutdown.h"
#include "app/boot_time.h"
#include "app/child_exit.h"
#include "app/cycles.h"
#include "app/leak_inventory.h"
#include "app/request.h"
#include "app/request_shutdown.h"
#include "app/warmup.h"
#include "base/exit_status.h"
#include "base/process_state.h"
#include "base/procfs.h"
#include "base/reason.h"
#include "base/scoreboard.h"
#include "base/scoreboard_layout.h"
#include "base/settings.h"
#include "ipc/outbox.h"
#include "ipc/request_decode.h"
#include "php/execution_time.h"
#include "php/extension_restarts.h"
#include "php/fd_flags.h"
#include "php/file_hooks.h"
#include "php/last_results.h"
#include "php/leftovers.h"
#include "php/pcre_cache.h"
#include "php/random_seed.h"
#include "php/request_extensions.h"
#include "php/superglobals.h"
#include "rewind/kernel/kernel_state.h"
#include "rewind/rewind.h"
#include "rewind/syscall_watch.h"
#include "worker/worker.h"

static struct {
	bool entered; /* the script has called one of the functions */
	bool rest; /* there is no handler: the rest of the script serves the request */
	zend_fcall_info handler;
	zend_fcall_info_cache handler_cache;
} serving;

/* --- the end of a request --- */

/* Lets the script run without a request. */
static void leave_serving(void)
{
	SG(server_context) = NULL;
	php_output_activate();
	sapi_activate();
}

/* Collects cycles while no client waits for this worker; Surus wakes another worker for the next
 * request. The output of destructors is logged, and their execution time is limited like a
 * request's. */
static void collect_cycles(void)
{
	zend_execute_data *const frame = EG(current_execute_data);

	leave_serving();
	surus_execution_time_begin();
	EG(current_execute_data) = NULL;
	surus_cycles_collect();
	zend_try {
		php_output_end_all();
	} zend_end_try();
	zend_unset_timeout();
	/* Destructors may have left errors and connections. */
	surus_restarts_run();
	zend_try {
		surus_last_results_reset();
		php_output_deactivate();
	} zend_end_try();
	sapi_deactivate();
	EG(current_execute_data) = frame;
}

/* Ends the current request without ending the script. */
static void end_request(void)
{
	if (surus_settings.engine == SURUS_WORKER) {
		surus_app_request_end();
		if (!CG(unclean_shutdown) && surus_cycles_are_due()) {
			collect_cycles();
		}
		if (CG(unclean_shutdown)) {
			/* A fatal error at the end of the request or after it; the response has been sent. */
			surus_process->exit_status = SURUS_EXIT_FATAL_ERROR;
			zend_bailout();
		}
		return;
	}
	surus_request_shutdown();
	if (surus_engine_boots_in_prototype()) {
		surus_flags_restore(); /* also the flags of descriptors that workers share */
		surus_pcre_cache_record();
	}
	if (surus_settings.engine == SURUS_REWIND) {
		if (!surus_pcre_cache_replaces_worker()) {
			surus_rewind();
		}
		surus_scoreboard_set_state(SURUS_EXITING);
		_exit(SURUS_EXIT_PCRE_REFRESH);
	}
	surus_scoreboard_set_state(SURUS_EXITING);
	_exit(SURUS_EXIT_SINGLE_USE);
}

void surus_serve_script_ended(bool normally)
{
	if (normally && serving.rest && surus_request->id) {
		zend_try {
			surus_auto_append();
		} zend_end_try();
	}
	if (surus_process->child) {
		surus_child_exit();
	}
	/* On `standby`, the end of the process is the end of the request. */
	if (serving.rest && surus_request->id && surus_engine_boots_in_prototype()) {
		/* As php_request_shutdown(): after a fatal error it points to frames that no longer
		 * exist. */
		EG(current_execute_data) = NULL;
		end_request();
	}
}

bool surus_serve_called(void)
{
	return serving.entered;
}

/* --- from one request to the next --- */

/* Collects the cycles that the boot has left. The output of destructors is logged. False: one has
 * thrown an exception. */
static bool collect_boot_cycles(void)
{
	leave_serving();
	gc_collect_cycles();
	php_output_end_all();
	php_output_deactivate();
	sapi_deactivate();
	return !EG(exception);
}

/* Ends the boot's part of the script, at the first call. False: the script must not serve. */
static bool enter_serving(void)
{
	serving.entered = true;
	zend_unset_timeout();
	surus_superglobals_save();
	surus_extensions_find();
	surus_leftovers_save();
	bool keeps_responses = surus_boot_response_check(surus_boot_time_report());
	/* The boot's output is in the log; its headers have no recipient. */
	php_output_end_all();
	surus_extensions_end();
	php_output_deactivate();
	sapi_deactivate();
	surus_boot_shutdown_set_aside();
	surus_file_hooks_leave_data();
	/* Before warm-ups, because a connection in an unreachable cycle would count as left open. */
	if (!collect_boot_cycles() || !keeps_responses ||
	    !surus_warmups_run(&serving.handler, &serving.handler_cache)) {
		return false;
	}
	if (surus_settings.engine != SURUS_WORKER) {
		surus_boot_shutdown_restore();
	}
	if (!collect_boot_cycles()) {
		return false;
	}
	surus_cycles_save();
	/* Cached results of stat() would be outdated in later requests. */
	php_clear_stat_cache(0, NULL, 0);
	return true;
}

/* Waits for the next request and makes it PHP's request. False: there will be none. */
static bool next_request(void)
{
	if (!serving.entered) {
		if (!enter_serving() || !surus_boot_complete()) {
			leave_serving();
			return false;
		}
		if (surus_settings.engine == SURUS_REWIND) {
			surus_rewind_checkpoint(); /* returns here after each request */
		} else if (surus_settings.engine == SURUS_FORK) {
			const char *why = surus_kernel_checkpoint();
			if (!why && !surus_procfs_unguard()) {
				why = surus_reason("cannot give up the saved group (setresgid)");
			}
			if (why) {
				surus_process_abort_setup(why);
			}
			surus_random_reseed();
		}
	} else if (surus_request->id) {
		if (surus_settings.engine == SURUS_STANDBY) {
			/* The end of the script is the end of the request. */
			surus_process->exit_status = SURUS_EXIT_SINGLE_USE;
			return false;
		}
		end_request();
	}
	if (!surus_worker_take()) {
		if (surus_engine_boots_in_prototype()) {
			/* The end of the script belongs to the prototype process. */
			_exit(surus_process->exit_status);
		}
		leave_serving();
		return false;
	}
	if (surus_settings.engine == SURUS_REWIND) {
		surus_syscall_watch_begin();
	}
	surus_app_request_begin();
	if (surus_settings.reports_leaks) {
		if (SURUS_VAR(surus_request, "HTTP_SURUS_LEAKS")) {
			if (!surus_inventory_compare()) {
				/* The process that served the previous request has exited. */
				SG(sapi_headers).http_response_code = 410;
			}
			return next_request();
		}
		surus_inventory_save();
	}
	return true;
}

/* Ends the request, and the process if it cannot continue, after a fatal error in a handler. */
static void abort_request(void)
{
	if (surus_engine_boots_in_prototype()) {
		end_request();
		return;
	}
	surus_process->exit_status = surus_settings.engine == SURUS_STANDBY ? SURUS_EXIT_SINGLE_USE
	        : SURUS_EXIT_FATAL_ERROR;
	zend_bailout();
}

/* --- the functions --- */

static bool may_serve(const char *function)
{
	if (!surus_engine_boots_app()) {
		zend_throw_error(NULL,
		                 "%s() needs an engine that boots this script once, ahead of the requests: "
		                 "rewind, worker, standby or fork (engine.name); this is `classic`",
		                 function);
		return false;
	}
	if (surus_process->child) {
		zend_throw_error(NULL, "%s() cannot be called by a process that the script has forked",
		        function);
		return false;
	}
	if (surus_process->runs_script) {
		zend_throw_error(NULL, "%s() cannot be called by a handler, while a request is served",
		        function);
		return false;
	}
	return true;
}

static bool take_handler(INTERNAL_FUNCTION_PARAMETERS)
{
	zend_fcall_info handler;
	zend_fcall_info_cache cache;

	(void)return_value;
	ZEND_PARSE_PARAMETERS_START(1, 1)
		Z_PARAM_FUNC(handler, cache)
	ZEND_PARSE_PARAMETERS_END_EX(return false);
	serving.handler = handler;
	serving.handler_cache = cache;
	return true;
}

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_surus_serve, 0, 1, IS_VOID, 0)

	ZEND_ARG_TYPE_INFO(0, handler, IS_CALLABLE, 0)
ZEND_END_ARG_INFO()

/* surus_serve(callable $handler): void. Everything before this call is the boot; the handler is
 * called for each request. Returns when there will be no more. */
static PHP_FUNCTION(surus_serve)
{
	if (!may_serve("surus_serve") || !take_handler(INTERNAL_FUNCTION_PARAM_PASSTHRU)) {
		RETURN_THROWS();
	}
	while (next_request()) {
		if (!surus_app_request_call(&serving.handler, &serving.handler_cache)) {
			abort_request();
		} else if (surus_settings.engine == SURUS_STANDBY) {
			/* The request ends as if it had called exit(). */
			surus_process->exit_status = SURUS_EXIT_SINGLE_USE;
			zend_throw_unwind_exit();
			return;
		}
	}
}

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_frankenphp_handle_request, 0, 1, _IS_BOOL, 0)

	ZEND_ARG_TYPE_INFO(0, callback, IS_CALLABLE, 0)
ZEND_END_ARG_INFO()

/* frankenphp_handle_request(callable $callback): bool. Serves one request; false when there will be
 * no more and the script must end. The script's work between two calls belongs to the previous
 * request, whose client has the response. */
static PHP_FUNCTION(frankenphp_handle_request)
{
	if (!may_serve("frankenphp_handle_request") ||
	        !take_handler(INTERNAL_FUNCTION_PARAM_PASSTHRU)) {
		RETURN_THROWS();
	}
	if (!next_request()) {
		RETURN_FALSE;
	}
	if (!surus_app_request_call(&serving.handler, &serving.handler_cache)) {
		abort_request();
	}
	zend_try {
		php_output_end_all();
		php_header();
	} zend_end_try();
	surus_outbox_finish();
	surus_scoreboard_set_state(SURUS_FINISHING);
	RETURN_TRUE;
}

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_surus_checkpoint, 0, 0, IS_VOID, 0)
ZEND_END_ARG_INFO()

/* surus_checkpoint(): void. Everything before this call is the boot. Returns with a request, which
 * the rest of the script serves and the end of the script ends. For applications that cannot serve
 * a request in a function, such as WordPress, whose code lives in the global scope. */
static PHP_FUNCTION(surus_checkpoint)
{
	ZEND_PARSE_PARAMETERS_NONE();
	if (!may_serve("surus_checkpoint")) {
		RETURN_THROWS();
	}
	if (surus_settings.engine == SURUS_WORKER) {
		zend_throw_error(NULL,
		        "surus_checkpoint() needs the engine rewind, standby or fork (engine.name); this "
		        "is `worker`");
		RETURN_THROWS();
	}
	if (serving.entered) {
		zend_throw_error(NULL,
		        "surus_checkpoint() can be called once; it has returned with a request");
		RETURN_THROWS();
	}
	if (surus_settings.warms_up) {
		zend_throw_error(NULL,
		        "surus_checkpoint() cannot run warm-ups, after which the script would be at its "
		        "end; take them out of engine.warmup");
		RETURN_THROWS();
	}
	serving.rest = true;
	if (!next_request()) {
		/* An exception that a destructor has thrown is reported. */
		if (!EG(exception)) {
			zend_throw_unwind_exit();
		}
		return;
	}
	if (surus_settings.engine == SURUS_STANDBY) {
		surus_process->exit_status = SURUS_EXIT_SINGLE_USE;
	}
	surus_scoreboard_set_state(SURUS_RUNNING);
	if (!surus_app_request_prepend()) {
		zend_throw_unwind_exit();
	}
}

static const zend_function_entry functions[] = {
	PHP_FE(surus_serve, arginfo_surus_serve)
	PHP_FE(surus_checkpoint, arginfo_surus_checkpoint)
	PHP_FE(frankenphp_handle_request, arginfo_frankenphp_handle_request)
	PHP_FE_END
};

bool surus_serve_register(int type)
{
	return zend_register_functions(NULL, functions, NULL, type) == SUCCESS;
}
