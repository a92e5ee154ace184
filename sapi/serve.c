/* The life of one event in a process whose application has booted: surus_serve(), surus_checkpoint(), frankenphp_handle_request(). */
#include "surus.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <php.h>
#include <SAPI.h>
#include <php_ini.h>
#include <php_main.h>
#include <php_output.h>
#include <php_variables.h>
#include <ext/session/php_session.h>
#include <ext/standard/basic_functions.h>
#include <ext/standard/head.h>
#include <ext/standard/php_filestat.h>
#include <zend_exceptions.h>

#include "inventory.h"
#include "rewind.h"
#include "snapshot.h"

static struct {
	bool come;    /* the script has come to serve for the first time */
	bool calling; /* its handler runs, or what that has registered for the end */
	bool rest;    /* there is none: the rest of the script serves */
	zend_fcall_info handler;
	zend_fcall_info_cache handler_cache;
	/* Those that the boot has registered, while warm-ups run, and on `worker` always: there they run when the script ends, and not
	 * for each event. */
	HashTable *boot_shutdown_functions;
	/* What the boot has put into $_SERVER and $_ENV: there in every request, as behind a dotenv loader in a fresh one. */
	zval server, env;
} serving;

/* Extensions whose request startup or shutdown does something to the answer or to variables, and so belongs to each event. The others
 * have started with the boot. */
static zend_module_entry *each_event[3];
/* The first is the session. */
static const char *const each_event_names[] = {"session", "zlib", "filter"};

/* --- the beginning --- */

static const char *const of_the_request[] = {
	"PHP_SELF", "SCRIPT_NAME", "SCRIPT_FILENAME", "DOCUMENT_ROOT", "REQUEST_TIME", "REQUEST_TIME_FLOAT", "argv", "argc",
};

/* Notes in `noted` what `array` has and the process's environment has not. */
static void note_additions(zval *noted, zval *array)
{
	zval environment;
	zend_string *key;
	zval *value;

	array_init(noted);
	if (!array || Z_TYPE_P(array) != IS_ARRAY) {
		return;
	}
	array_init(&environment);
	surus_variables_import_environment(&environment);
	for (size_t i = 0; i < sizeof(of_the_request) / sizeof(*of_the_request); i++) {
		zend_hash_str_del(Z_ARRVAL(environment), of_the_request[i], strlen(of_the_request[i]));
	}
	ZEND_HASH_FOREACH_STR_KEY_VAL(Z_ARRVAL_P(array), key, value) {
		bool known = false;
		zval *before;

		if (!key) {
			continue;
		}
		for (size_t i = 0; i < sizeof(of_the_request) / sizeof(*of_the_request) && !known; i++) {
			known = zend_string_equals_cstr(key, of_the_request[i], strlen(of_the_request[i]));
		}
		before = zend_hash_find(Z_ARRVAL(environment), key);
		if (!known && !(before && zend_is_identical(before, value))) {
			Z_TRY_ADDREF_P(value);
			zend_hash_update(Z_ARRVAL_P(noted), key, value);
		}
	} ZEND_HASH_FOREACH_END();
	zval_ptr_dtor(&environment);
}

/* Puts what the boot has added behind what the event brings. */
static void restore_additions(zval *noted, zval *array)
{
	zend_string *key;
	zval *value;

	if (Z_TYPE_P(array) != IS_ARRAY) {
		return;
	}
	ZEND_HASH_FOREACH_STR_KEY_VAL(Z_ARRVAL_P(noted), key, value) {
		if (!surus_event_var(&surus_self->event, ZSTR_VAL(key), ZSTR_LEN(key))) {
			Z_TRY_ADDREF_P(value);
			zend_hash_update(Z_ARRVAL_P(array), key, value);
		}
	} ZEND_HASH_FOREACH_END();
}

/* --- the session's save handler, where a process goes on as it is --- */

/* A PHP without sessions has none of it. */
#pragma weak ps_globals

enum { SAVE_FUNCTIONS = sizeof(PS(mod_user_names)) / sizeof(zval) };

/* Ends the session. The functions that session_set_save_handler() was given are the script's, which will not give them again: a
 * service that has been made lives on. PHP would forget them, but not that there have been some. */
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

static bool is_armed(const char *name)
{
	zend_auto_global *global = zend_hash_str_find_ptr(CG(auto_globals), name, strlen(name));
	return global && global->armed;
}

static void fill(const char *name)
{
	zend_string *string = zend_string_init(name, strlen(name), 0);
	zend_is_auto_global(string);
	zend_string_release(string);
}

/* $_GET and its kin of the event in our hands. Those that PHP fills when it first compiles a mention of them are filled now if
 * that has happened: what is compiled already will not ask again. */
static void renew_superglobals(void)
{
	bool server = !is_armed("_SERVER"), env = !is_armed("_ENV"), request = !is_armed("_REQUEST");

	for (int i = 0; i < NUM_TRACK_VARS; i++) {
		zval_ptr_dtor(&PG(http_globals)[i]);
	}
	php_hash_environment();
	if (server) {
		fill("_SERVER");
		restore_additions(&serving.server, &PG(http_globals)[TRACK_VARS_SERVER]);
	}
	if (env) {
		fill("_ENV");
		restore_additions(&serving.env, &PG(http_globals)[TRACK_VARS_ENV]);
	}
	if (request) {
		fill("_REQUEST");
	}
}

/* The ini setting output_handler, when there is one. */
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

static void begin(void)
{
	zend_execute_data *const frame = EG(current_execute_data);
	zval handler;

	surus_outbox_begin(surus_self->event.id);
	surus_abort_begin();
	surus_php_fill_request_info();
	PG(connection_status) = PHP_CONNECTION_NORMAL;
	PG(header_is_being_sent) = 0;
	EG(exit_status) = 0;
	/* As php_request_startup: what is wrong with the request is not the script's doing. */
	PG(during_request_startup) = 1;
	/* Uploads note their progress in the session only before its extension has started. */
	PG(modules_activated) = 0;
	EG(current_execute_data) = NULL;
	zend_try {
		php_output_activate();
		sapi_activate();
		if (set_output_handler(&handler)) {
			php_output_start_user(&handler, 0, PHP_OUTPUT_HANDLER_STDFLAGS);
			zval_ptr_dtor(&handler);
		} else if (PG(output_buffering)) {
			php_output_start_user(NULL, PG(output_buffering) > 1 ? PG(output_buffering) : 0, PHP_OUTPUT_HANDLER_STDFLAGS);
		} else if (PG(implicit_flush)) {
			php_output_set_implicit_flush(1);
		}
		if (PG(expose_php)) {
			sapi_add_header(SAPI_PHP_VERSION_HEADER, sizeof(SAPI_PHP_VERSION_HEADER) - 1, 1);
		}
		renew_superglobals();
		for (size_t i = 0; i < sizeof(each_event) / sizeof(*each_event); i++) {
			zend_module_entry *extension = each_event[i];
			if (extension && extension->request_startup_func) {
				extension->request_startup_func(extension->type, extension->module_number);
			}
		}
		if (EG(timeout_seconds) > 0) {
			zend_set_timeout(EG(timeout_seconds), 0);
		}
	} zend_end_try();
	EG(current_execute_data) = frame;
	PG(modules_activated) = 1;
	PG(during_request_startup) = 0;
}

/* --- the middle --- */

/* Says what nobody has caught, as PHP does at the end of a script; exit() is an exception too, of which nobody hears. */
static void end_exception(void)
{
	zend_execute_data *const frame = EG(current_execute_data);

	if (EG(exception)) {
		EG(current_execute_data) = NULL;
		zend_exception_error(EG(exception), E_ERROR);
		EG(current_execute_data) = frame;
	}
}

/* As zend_user_exception_handler, which calls it without a frame: there an exit() in it would end as a fatal error does. */
static void call_exception_handler(void)
{
	zend_object *exception = EG(exception);
	zval handler, argument, result;

	if (zend_is_unwind_exit(exception)) {
		return;
	}
	EG(exception) = NULL;
	ZVAL_COPY(&handler, &EG(user_exception_handler));
	ZVAL_OBJ(&argument, exception);
	ZVAL_UNDEF(&result);
	if (call_user_function(NULL, NULL, &handler, &result, 1, &argument) == SUCCESS) {
		zval_ptr_dtor(&result);
		OBJ_RELEASE(exception);
	} else {
		EG(exception) = exception;
	}
	zval_ptr_dtor(&handler);
}

/* Runs the handler. False: a fatal error has ended it. */
static bool call(void)
{
	zend_execute_data *const frame = EG(current_execute_data);
	volatile bool survived = true;
	zval result;

	ZVAL_UNDEF(&result);
	serving.handler.retval = &result;
	serving.calling = true;
	surus_set_state(SURUS_RUNNING);
	zend_try {
		zend_call_function(&serving.handler, &serving.handler_cache);
		if (EG(exception) && Z_TYPE(EG(user_exception_handler)) != IS_UNDEF) {
			call_exception_handler();
		}
		end_exception();
		zval_ptr_dtor(&result);
	} zend_catch {
		survived = false;
	} zend_end_try();
	if (EG(exception)) {
		/* It was on its way when a fatal error came (php_execute_script). */
		zend_try {
			zend_exception_error(EG(exception), E_ERROR);
		} zend_catch {
			survived = false;
		} zend_end_try();
	}
	EG(current_execute_data) = frame;
	serving.calling = false;
	/* A fatal error may have been caught on its way and gone on as an exit() would (memory_limit does). */
	return survived && !CG(unclean_shutdown);
}

/* --- the end --- */

static void shut_down_each_event(void)
{
	end_session(each_event[0]);
	for (size_t i = 1; i < sizeof(each_event) / sizeof(*each_event); i++) {
		surus_shut_down(each_event[i]);
	}
	zend_hash_str_del(&EG(symbol_table), "_SESSION", sizeof("_SESSION") - 1);
}

/* The event's end where the process goes on as it is. What a request leaves in PHP's own bookkeeping goes; what it leaves in
 * variables stays. */
static void end_in_worker(void)
{
	zend_execute_data *const frame = EG(current_execute_data);

	/* With our frame: without one, PHP makes a fatal error of an exit() in a shutdown function. */
	serving.calling = true;
	php_call_shutdown_functions();
	serving.calling = false;
	EG(current_execute_data) = frame;
	zend_try {
		end_exception();
	} zend_end_try();
	/* As in PHP's request shutdown: an exception that comes from here is nobody's to catch, and a fatal error. */
	EG(current_execute_data) = NULL;
	php_free_shutdown_functions();
	zend_try {
		php_output_end_all();
	} zend_end_try();
	zend_unset_timeout();
	shut_down_each_event();
	zend_try {
		php_output_deactivate();
	} zend_end_try();
	sapi_deactivate();
	SG(server_context) = NULL;
	surus_outbox_end(SURUS_COMPLETE, EG(exit_status));
	surus_event_close(&surus_self->event);
	EG(current_execute_data) = frame;
	php_clear_stat_cache(0, NULL, 0);
	zend_memory_reset_peak_usage();
}

/* Ends the event in our hands, where its process lives on or ends without ending the script. */
static void end(void)
{
	if (surus_settings.engine == SURUS_WORKER) {
		end_in_worker();
		if (CG(unclean_shutdown)) {
			/* A fatal error at the end of the event; the answer has gone. */
			surus_self->exit_status = SURUS_EXIT_FAILED;
			zend_bailout();
		}
		return;
	}
	surus_isolated_end();
	if (surus_boots_in_template()) {
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

void surus_serve_script_ended(void)
{
	/* On `standby`, the process's end is the event's too. */
	if (serving.rest && surus_self->event.id && surus_boots_in_template()) {
		/* As php_request_shutdown: behind a fatal error it points to frames that are gone. */
		EG(current_execute_data) = NULL;
		end();
	}
}

bool surus_serve_called(void)
{
	return serving.come;
}

bool surus_serve_calls(void)
{
	return serving.calling;
}

void surus_serve_before_shutdown(void)
{
	HashTable *boot = serving.boot_shutdown_functions;

	if (!boot) {
		return;
	}
	serving.boot_shutdown_functions = NULL;
	if (BG(user_shutdown_function_names)) {
		/* A fatal error ends the event and the script: first what the boot has registered, as in a request of its own. */
		HashTable *of_the_event = BG(user_shutdown_function_names);
		BG(user_shutdown_function_names) = boot;
		php_call_shutdown_functions();
		php_free_shutdown_functions();
		BG(user_shutdown_function_names) = of_the_event;
	} else {
		BG(user_shutdown_function_names) = boot;
	}
}

/* --- warm-ups --- */

/* From a place of our own: all workers have the same open file, and where they boot each for itself they read at the same time. */
static bool read_exactly(off_t *from, void *to, size_t len)
{
	char *at = to;

	while (len > 0) {
		ssize_t got = pread(SURUS_FD_WARMUP, at, len, *from);
		if (got <= 0) {
			return false;
		}
		at += got;
		*from += got;
		len -= (size_t)got;
	}
	return true;
}

/* Serves one warm-up. False: it could not be served as an event is, said on stderr. */
static bool warm_up(void)
{
	char uri[256];
	int status;

	snprintf(uri, sizeof(uri), "%s", SURUS_VAR(&surus_self->event, "REQUEST_URI"));
	begin();
	bool survived = call();
	status = SG(sapi_headers).http_response_code;
	end_in_worker();
	survived &= !CG(unclean_shutdown);
	if (!survived || status >= 500) {
		fprintf(stderr, "surus-php: the warm-up %s %s; see the lines above, or take it out of engine.warmup\n", uri,
		        survived ? "was answered with an error" : "ended in a fatal error");
		return false;
	}
	return true;
}

static bool warm_up_all(void)
{
	off_t at = 0;
	uint32_t len;

	if (!surus_settings.warms_up) {
		return true;
	}
	surus_outbox_discard(true);
	while (read_exactly(&at, &len, sizeof(len))) {
		if (len > SURUS_MESSAGE_MAX || !read_exactly(&at, surus_self->message, len) ||
		    !surus_event_decode(&surus_self->event, len) || !warm_up()) {
			return false;
		}
	}
	surus_outbox_discard(false);
	return true;
}

/* --- the way from one event to the next --- */

/* The script has come to serve: ends what was its boot. False: it must not. */
static bool come(void)
{
	serving.come = true;
	zend_unset_timeout();
	note_additions(&serving.server, zend_hash_str_find(&EG(symbol_table), "_SERVER", sizeof("_SERVER") - 1));
	note_additions(&serving.env, zend_hash_str_find(&EG(symbol_table), "_ENV", sizeof("_ENV") - 1));
	for (size_t i = 0; i < sizeof(each_event) / sizeof(*each_event); i++) {
		each_event[i] = zend_hash_str_find_ptr(&module_registry, each_event_names[i], strlen(each_event_names[i]));
	}
	/* What the boot has printed is in the log; what it has set as headers, nobody gets. */
	php_output_end_all();
	shut_down_each_event();
	php_output_deactivate();
	sapi_deactivate();
	serving.boot_shutdown_functions = BG(user_shutdown_function_names);
	BG(user_shutdown_function_names) = NULL;
	if (!warm_up_all()) {
		return false;
	}
	if (surus_settings.engine != SURUS_WORKER) {
		BG(user_shutdown_function_names) = serving.boot_shutdown_functions;
		serving.boot_shutdown_functions = NULL;
	}
	gc_collect_cycles();
	return true;
}

/* Gives the script what it needs to come to its end without an event. */
static void leave(void)
{
	SG(server_context) = NULL;
	php_output_activate();
	sapi_activate();
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
			surus_kernel_note();
			surus_random_renew();
		}
	} else if (surus_self->event.id) {
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
	begin();
	if (surus_settings.tells_leaks) {
		if (SURUS_VAR(&surus_self->event, "HTTP_SURUS_LEAKS")) {
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
	surus_self->exit_status = surus_settings.engine == SURUS_STANDBY ? SURUS_EXIT_SERVED : SURUS_EXIT_FAILED;
	zend_bailout();
}

/* --- the functions --- */

static bool may_serve(const char *function)
{
	if (!surus_boots()) {
		zend_throw_error(NULL,
		                 "%s() needs an engine that boots this script once, ahead of the requests: rewind, worker, standby or fork "
		                 "(engine.name); this is `classic`", function);
		return false;
	}
	if (serving.calling) {
		zend_throw_error(NULL, "%s() cannot be called by a handler, while a request is served", function);
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

/* surus_serve(callable $handler): void. Everything before this call is boot; the handler is one request, and is called for each.
 * Returns when there will be no more. */
static PHP_FUNCTION(surus_serve)
{
	if (!may_serve("surus_serve") || !take_handler(INTERNAL_FUNCTION_PARAM_PASSTHRU)) {
		RETURN_THROWS();
	}
	while (next()) {
		if (!call()) {
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

/* frankenphp_handle_request(callable $callback): bool. Serves one request; false when there will be no more and the script has to
 * end. What the script does between two calls belongs to the event before, whose client has its answer. */
static PHP_FUNCTION(frankenphp_handle_request)
{
	if (!may_serve("frankenphp_handle_request") || !take_handler(INTERNAL_FUNCTION_PARAM_PASSTHRU)) {
		RETURN_THROWS();
	}
	if (!next()) {
		RETURN_FALSE;
	}
	if (!call()) {
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

/* surus_checkpoint(): void. Everything before this call is boot; returns with a request, which the rest of the script serves and
 * the script's end ends. For applications whose boot and requests cannot be told apart by a function: WordPress, and all that lives
 * in the global scope. */
static PHP_FUNCTION(surus_checkpoint)
{
	ZEND_PARSE_PARAMETERS_NONE();
	if (!may_serve("surus_checkpoint")) {
		RETURN_THROWS();
	}
	if (surus_settings.engine == SURUS_WORKER) {
		zend_throw_error(NULL, "surus_checkpoint() needs an engine that can go back: rewind, standby or fork (engine.name); this is "
		                       "`worker`");
		RETURN_THROWS();
	}
	if (serving.come) {
		zend_throw_error(NULL, "surus_checkpoint() can be called once; it has returned with a request already");
		RETURN_THROWS();
	}
	if (surus_settings.warms_up) {
		zend_throw_error(NULL, "surus_checkpoint() cannot run warm-ups, after which the script would be at its end; take them out of "
		                       "engine.warmup");
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
