/* How a booted script comes to its events: surus_serve(), surus_checkpoint(),
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
#include "base/scoreboard.h"
#include "base/scoreboard_layout.h"
#include "base/settings.h"
#include "ipc/outbox.h"
#include "ipc/request_decode.h"
#include "php/execution_time.h"
#include "php/fd_flags.h"
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
	bool come; /* the script has come to serve for the first time */
	bool rest; /* there is no handler: the rest of the script serves */
	zend_fcall_info handler;
	zend_fcall_info_cache handler_cache;
} serving;

/* --- the end --- */

/* Gives the script what it needs to run without an event. */
static void leave(void)
{
	SG(server_context) = NULL;
	php_output_activate();
	sapi_activate();
}

/* Collects garbage while no client waits for this worker. Surus wakes another one for the next
 * event meanwhile. What destructors print is logged, and what they run is limited as an event
 * is. */
static void collect_cycles(void)
{
	zend_execute_data *const frame = EG(current_execute_data);

	leave();
	surus_limit_begin();
	EG(current_execute_data) = NULL;
	surus_cycles_collect();
	zend_try {
		php_output_end_all();
	} zend_end_try();
	zend_unset_timeout();
	zend_try {
		php_output_deactivate();
	} zend_end_try();
	sapi_deactivate();
	EG(current_execute_data) = frame;
}

/* Ends the event in our hands, where its process lives on or ends without ending the script. */
static void end(void)
{
	if (surus_settings.engine == SURUS_WORKER) {
		surus_handle_end();
		if (!CG(unclean_shutdown) && surus_cycles_are_due()) {
			collect_cycles();
		}
		if (CG(unclean_shutdown)) {
			/* A fatal error at the end of the event or behind it; the answer has gone. */
			surus_self->exit_status = SURUS_EXIT_FAILED;
			zend_bailout();
		}
		return;
	}
	surus_isolated_end();
	if (surus_boots_in_template()) {
		surus_flags_put_back(); /* of what this worker shares with others, too */
		surus_regex_note();
	}
	if (surus_settings.engine == SURUS_REWIND) {
		if (!surus_regex_leaves()) {
			surus_rewind();
		}
		surus_set_state(SURUS_RETIRED);
		_exit(SURUS_EXIT_RENEWED);
	}
	surus_set_state(SURUS_RETIRED);
	_exit(SURUS_EXIT_SERVED);
}

void surus_serve_script_ended(bool normally)
{
	if (normally && serving.rest && surus_request->id) {
		zend_try {
			surus_auto_append();
		} zend_end_try();
	}
	if (surus_self->child) {
		surus_child_end();
	}
	/* On `standby`, the process's end is the event's too. */
	if (serving.rest && surus_request->id && surus_boots_in_template()) {
		/* As php_request_shutdown: behind a fatal error it points to frames that are gone. */
		EG(current_execute_data) = NULL;
		end();
	}
}

bool surus_serve_called(void)
{
	return serving.come;
}

/* --- the way from one event to the next --- */

/* The script has come to serve: ends what was its boot. False: it must not. */
static bool come(void)
{
	serving.come = true;
	zend_unset_timeout();
	surus_superglobals_note();
	surus_extensions_find();
	surus_leftovers_note();
	surus_boot_time_look();
	/* What the boot has printed is in the log; what it has set as headers, nobody gets. */
	php_output_end_all();
	surus_extensions_end();
	php_output_deactivate();
	sapi_deactivate();
	surus_boot_shutdown_take();
	if (!surus_warmups_run(&serving.handler, &serving.handler_cache)) {
		return false;
	}
	if (surus_settings.engine != SURUS_WORKER) {
		surus_boot_shutdown_put();
	}
	gc_collect_cycles();
	surus_cycles_note();
	/* What the boot has last asked of a file would be true for all requests to come. */
	php_clear_stat_cache(0, NULL, 0);
	return true;
}

/* Waits for the next event and makes it PHP's request. False: there will be none. */
static bool next(void)
{
	if (!serving.come) {
		if (!come() || !surus_boot_done()) {
			leave();
			return false;
		}
		if (surus_settings.engine == SURUS_REWIND) {
			surus_rewind_mark(); /* comes back here after each event */
		} else if (surus_settings.engine == SURUS_FORK) {
			const char *why = surus_kernel_note();
			if (why) {
				surus_worker_cannot_begin(why);
			}
			surus_random_renew();
		}
	} else if (surus_request->id) {
		if (surus_settings.engine == SURUS_STANDBY) {
			/* The script's end is the event's. */
			surus_self->exit_status = SURUS_EXIT_SERVED;
			return false;
		}
		end();
	}
	if (!surus_worker_take()) {
		if (surus_boots_in_template()) {
			/* The script's end is the template's to come to. */
			_exit(surus_self->exit_status);
		}
		leave();
		return false;
	}
	if (surus_settings.engine == SURUS_REWIND) {
		surus_calls_watch();
	}
	surus_handle_begin();
	if (surus_settings.tells_leaks) {
		if (SURUS_VAR(surus_request, "HTTP_SURUS_LEAKS")) {
			if (!surus_inventory_compare()) {
				/* The process that has served the event before is gone. */
				SG(sapi_headers).http_response_code = 410;
			}
			return next();
		}
		surus_inventory_take();
	}
	return true;
}

/* Ends what a fatal error in a handler leaves to end. */
static void die(void)
{
	if (surus_boots_in_template()) {
		end();
		return;
	}
	surus_self->exit_status = surus_settings.engine == SURUS_STANDBY ? SURUS_EXIT_SERVED
	        : SURUS_EXIT_FAILED;
	zend_bailout();
}

/* --- the functions --- */

static bool may_serve(const char *function)
{
	if (!surus_boots()) {
		zend_throw_error(NULL,
		                 "%s() needs an engine that boots this script once, ahead of the requests: "
		                 "rewind, worker, standby or fork (engine.name); this is `classic`",
		                 function);
		return false;
	}
	if (surus_self->child) {
		zend_throw_error(NULL, "%s() cannot be called by a process that the script has forked",
		        function);
		return false;
	}
	if (surus_self->runs_script) {
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

/* surus_serve(callable $handler): void. Everything before this call is boot; the handler is one
 * request, and is called for each. Returns when there will be no more. */
static PHP_FUNCTION(surus_serve)
{
	if (!may_serve("surus_serve") || !take_handler(INTERNAL_FUNCTION_PARAM_PASSTHRU)) {
		RETURN_THROWS();
	}
	while (next()) {
		if (!surus_handle_call(&serving.handler, &serving.handler_cache)) {
			die();
		} else if (surus_settings.engine == SURUS_STANDBY) {
			/* The request ends as one that has called exit(). */
			surus_self->exit_status = SURUS_EXIT_SERVED;
			zend_throw_unwind_exit();
			return;
		}
	}
}

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_frankenphp_handle_request, 0, 1, _IS_BOOL, 0)

	ZEND_ARG_TYPE_INFO(0, callback, IS_CALLABLE, 0)
ZEND_END_ARG_INFO()

/* frankenphp_handle_request(callable $callback): bool. Serves one request; false when there will be
 * no more and the script has to end. What the script does between two calls belongs to the event
 * before, whose client has its answer. */
static PHP_FUNCTION(frankenphp_handle_request)
{
	if (!may_serve("frankenphp_handle_request") ||
	        !take_handler(INTERNAL_FUNCTION_PARAM_PASSTHRU)) {
		RETURN_THROWS();
	}
	if (!next()) {
		RETURN_FALSE;
	}
	if (!surus_handle_call(&serving.handler, &serving.handler_cache)) {
		die();
	}
	zend_try {
		php_output_end_all();
		php_header();
	} zend_end_try();
	surus_outbox_finish();
	surus_set_state(SURUS_FINISHING);
	RETURN_TRUE;
}

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_surus_checkpoint, 0, 0, IS_VOID, 0)
ZEND_END_ARG_INFO()

/* surus_checkpoint(): void. Everything before this call is boot; returns with a request, which the
 * rest of the script serves and the script's end ends. For applications whose boot and requests
 * cannot be told apart by a function: WordPress, and all that lives in the global scope. */
static PHP_FUNCTION(surus_checkpoint)
{
	ZEND_PARSE_PARAMETERS_NONE();
	if (!may_serve("surus_checkpoint")) {
		RETURN_THROWS();
	}
	if (surus_settings.engine == SURUS_WORKER) {
		zend_throw_error(NULL,
		        "surus_checkpoint() needs an engine that can go back: rewind, standby or fork "
		        "(engine.name); this is `worker`");
		RETURN_THROWS();
	}
	if (serving.come) {
		zend_throw_error(NULL,
		        "surus_checkpoint() can be called once; it has returned with a request already");
		RETURN_THROWS();
	}
	if (surus_settings.warms_up) {
		zend_throw_error(NULL,
		        "surus_checkpoint() cannot run warm-ups, after which the script would be at its "
		        "end; take them out of engine.warmup");
		RETURN_THROWS();
	}
	serving.rest = true;
	if (!next()) {
		zend_throw_unwind_exit();
		return;
	}
	if (surus_settings.engine == SURUS_STANDBY) {
		surus_self->exit_status = SURUS_EXIT_SERVED;
	}
	surus_set_state(SURUS_RUNNING);
	if (!surus_handle_prepend()) {
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
