/* Asks OPcache for its state, and sets its time of the request. */
#include "php/opcache.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <php.h>
#include <php_ini.h>
#include <php_main.h>
#include <zend_extensions.h>

#include "base/scoreboard_layout.h"

static time_t *request_time; /* field of OPcache's globals */

static bool is_queryable(void)
{
	return !zend_ini_string("opcache.restrict_api", sizeof("opcache.restrict_api") - 1, 0)[0] &&
	       zend_hash_str_exists(CG(function_table), "opcache_get_status",
	       sizeof("opcache_get_status") - 1);
}

/* Calls opcache_get_status(false), which has no C interface; undefined if that fails. */
static void ask(zval *status)
{
	zval name, arg;

	ZVAL_UNDEF(status);
	ZVAL_STRING(&name, "opcache_get_status");
	ZVAL_FALSE(&arg);
	if (call_user_function(NULL, NULL, &name, status, 1, &arg) != SUCCESS) {
		ZVAL_UNDEF(status);
	}
	zval_ptr_dtor(&name);
}

static bool says(zval *status, const char *what)
{
	zval *value = Z_TYPE_P(status) == IS_ARRAY
	        ? zend_hash_str_find(Z_ARRVAL_P(status), what, strlen(what)) : NULL;

	return value && Z_TYPE_P(value) == IS_TRUE;
}

void surus_opcache_explain_preload(void)
{
	const char *file = EG(ini_directives)
	        ? zend_ini_string("opcache.preload", sizeof("opcache.preload") - 1, 0) : NULL;

	if (!file || !*file) {
		return;
	}
	if (access(file, R_OK) != 0) {
		fprintf(stderr, "surus-php: cannot read %s (opcache.preload): %m\n", file);
	} else {
		fprintf(stderr, "surus-php: PHP did not start, most likely because %s failed "
		        "(opcache.preload); %s\n", file, zend_ini_long(ZEND_STRL("log_errors"), 0)
		        ? "if there is no error above, the file ends by exit, which preloading does "
		          "not allow"
		        : "set log_errors = 1 to see the error");
	}
}

const char *surus_opcache_state(void)
{
	const char *volatile state = "failed"; /* survives the longjmp of a bailout */
	zval status;

	if (!zend_get_extension("Zend OPcache")) {
		return "absent";
	}
	if (!zend_ini_long("opcache.enable", sizeof("opcache.enable") - 1, 0)) {
		return "disabled";
	}
	if (!is_queryable()) {
		return "on";
	}
	/* Needs a PHP request, the only one that the master process runs outside of a boot. */
	if (php_request_startup() != SUCCESS) {
		return state;
	}
	zend_try {
		ask(&status);
		if (says(&status, "opcache_enabled")) {
			state = "on";
		} else if (says(&status, "file_cache_only")) {
			/* opcache_enabled is false because it means the shared memory. */
			state = "file cache only";
		}
		zval_ptr_dtor(&status);
	} zend_end_try();
	php_request_shutdown(NULL);
	return state;
}

const char *surus_opcache_blocked(void)
{
	const char *volatile why = NULL;
	zval status;

	if (!zend_get_extension("Zend OPcache") || !is_queryable()) {
		return NULL;
	}
	zend_try {
		ask(&status);
		why = says(&status, "restart_pending") ? "restart" : says(&status, "cache_full") ? "full"
		        : NULL;
		zval_ptr_dtor(&status);
	} zend_end_try();
	return why;
}

/* OPcache's time of the request is a field of zend_accel_globals, whose layout is not in PHP's
 * installed headers (ext/opcache/ZendAccelerator.h). An ini entry contains the address of these
 * globals and the offset of its field. The wanted field lies some 200 bytes behind it;
 * accel_activate() has just set it to sapi_get_request_time(). The globals are 32 KiB long. */
void surus_opcache_boot_begin(void)
{
	enum { WITHIN = 512 };
	zend_ini_entry *entry = zend_hash_str_find_ptr(EG(ini_directives),
	        ZEND_STRL("opcache.file_update_protection"));
	time_t now = (time_t)sapi_get_request_time();

	if (!entry || !zend_get_extension("Zend OPcache")) {
		return;
	}
	time_t *first = (time_t *)((char *)entry->mh_arg2 + (size_t)entry->mh_arg1);
	for (time_t *field = first; field < first + WITHIN / sizeof(*field); field++) {
		if (*field == now) {
			request_time = field;
			return;
		}
	}
}

void surus_opcache_request_begin(void)
{
	if (request_time) {
		*request_time = (time_t)sapi_get_request_time();
	}
}
