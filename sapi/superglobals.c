/* $_GET and its kin in a process whose application has booted. */
#include "surus.h"

#include <string.h>

#include <php.h>
#include <php_variables.h>

/* What the boot has put into $_SERVER and $_ENV: there in every request, as behind a dotenv loader in a fresh one. */
static zval server, env;

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

void surus_superglobals_note(void)
{
	note_additions(&server, zend_hash_str_find(&EG(symbol_table), "_SERVER", sizeof("_SERVER") - 1));
	note_additions(&env, zend_hash_str_find(&EG(symbol_table), "_ENV", sizeof("_ENV") - 1));
}

/* Those that PHP fills when it first compiles a mention of them are filled now if that has happened: what is compiled already will not
 * ask again. */
void surus_superglobals_renew(void)
{
	bool renews_server = !is_armed("_SERVER"), renews_env = !is_armed("_ENV"), renews_request = !is_armed("_REQUEST");

	for (int i = 0; i < NUM_TRACK_VARS; i++) {
		zval_ptr_dtor(&PG(http_globals)[i]);
	}
	php_hash_environment();
	if (renews_server) {
		fill("_SERVER");
		restore_additions(&server, &PG(http_globals)[TRACK_VARS_SERVER]);
	}
	if (renews_env) {
		fill("_ENV");
		restore_additions(&env, &PG(http_globals)[TRACK_VARS_ENV]);
	}
	if (renews_request) {
		fill("_REQUEST");
	}
}
