/* Fills the superglobals for each request of a booted application. */
#include "php/superglobals.h"

#include <string.h>

#include <php.h>
#include <php_variables.h>

#include "base/scoreboard_layout.h"
#include "ipc/request_decode.h"
#include "php/server_variables.h"

/* What the boot has added to $_SERVER and $_ENV, such as a dotenv loader: every request gets it. */
static zval server, env;

static const char *const of_the_request[] = {
	"FRANKENPHP_WORKER", "PHP_SELF", "SCRIPT_NAME", "SCRIPT_FILENAME", "DOCUMENT_ROOT",
	"REQUEST_TIME", "REQUEST_TIME_FLOAT", "argv", "argc",
};

/* Saves in `saved` what `array` contains and the process's environment does not. */
static void save_additions(zval *saved, zval *array)
{
	zval environment;
	zend_string *key;
	zval *value;

	array_init(saved);
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
			zend_hash_update(Z_ARRVAL_P(saved), key, value);
		}
	} ZEND_HASH_FOREACH_END();
	zval_ptr_dtor(&environment);
}

/* Adds the boot's values where the request has none. */
static void restore_additions(zval *saved, zval *array)
{
	zend_string *key;
	zval *value;

	if (Z_TYPE_P(array) != IS_ARRAY) {
		return;
	}
	ZEND_HASH_FOREACH_STR_KEY_VAL(Z_ARRVAL_P(saved), key, value) {
		if (!surus_request_var(surus_request, ZSTR_VAL(key), ZSTR_LEN(key))) {
			Z_TRY_ADDREF_P(value);
			zend_hash_update(Z_ARRVAL_P(array), key, value);
		}
	} ZEND_HASH_FOREACH_END();
}

void surus_superglobals_save(void)
{
	save_additions(&server, zend_hash_str_find(&EG(symbol_table), "_SERVER",
	        sizeof("_SERVER") - 1));
	save_additions(&env, zend_hash_str_find(&EG(symbol_table), "_ENV", sizeof("_ENV") - 1));
}

/* As php_hash_environment() and zend_activate_auto_globals(). PHP fills some superglobals when it
 * first compiles code that mentions them ("just in time"). If that has happened they are filled
 * now, because compiled code will not ask again. Unchanged values are not written, because each
 * lies in a page of its own, which `rewind` would have to restore. */
static void activate(void)
{
	zend_auto_global *global;

	memset(PG(http_globals), 0, sizeof(PG(http_globals)));
	ZEND_HASH_MAP_FOREACH_PTR(CG(auto_globals), global) {
		if (global->jit && global->armed) {
			continue;
		}
		bool armed = global->auto_global_callback && global->auto_global_callback(global->name);
		if (global->armed != armed) {
			global->armed = armed;
		}
	} ZEND_HASH_FOREACH_END();
	/* A superglobal that is filled just in time has argv already, or must not have it. */
	if (PG(register_argc_argv) && !PG(auto_globals_jit)) {
		php_build_argv(SG(request_info).query_string, &PG(http_globals)[TRACK_VARS_SERVER]);
	}
}

void surus_superglobals_reset(void)
{
	for (int i = 0; i < NUM_TRACK_VARS; i++) {
		zval_ptr_dtor(&PG(http_globals)[i]);
	}
	activate();
	restore_additions(&server, &PG(http_globals)[TRACK_VARS_SERVER]);
	restore_additions(&env, &PG(http_globals)[TRACK_VARS_ENV]);
}
