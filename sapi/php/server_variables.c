/* Provides a request's variables: $_SERVER, $_ENV, getenv() and filter_input(). */
#include "php/server_variables.h"

#include <dlfcn.h>
#include <string.h>

#include <php.h>
#include <SAPI.h>
#include <php_main.h>
#include <php_variables.h>
#include <ext/filter/php_filter.h>

#include "base/scoreboard_layout.h"
#include "base/settings.h"
#include "ipc/request_decode.h"

static struct {
	void (*import_environment)(zval *array); /* PHP's function: the environment of the process */
	/* globals of PHP's filter extension; NULL if another extension filters input, or none */
	zend_filter_globals *filter;
	zend_long unsafe_raw; /* the filter that changes nothing */
} php;

/* Names of common variables, interned so that they are not allocated for each request. */
static const char *const usual[] = {
	"QUERY_STRING", "REQUEST_METHOD", "CONTENT_TYPE", "CONTENT_LENGTH", "SCRIPT_NAME",
	"REQUEST_URI", "DOCUMENT_URI",
	"DOCUMENT_ROOT", "SERVER_PROTOCOL", "REQUEST_SCHEME", "HTTPS", "GATEWAY_INTERFACE",
	"SERVER_SOFTWARE", "REMOTE_ADDR",
	"REMOTE_PORT", "SERVER_ADDR", "SERVER_PORT", "SERVER_NAME", "REDIRECT_STATUS", "REDIRECT_URL",
	"REDIRECT_QUERY_STRING", "FCGI_ROLE",
	"SCRIPT_FILENAME", "PATH_INFO",
	"PATH_TRANSLATED", "HTTP_HOST", "HTTP_USER_AGENT", "HTTP_ACCEPT", "HTTP_ACCEPT_ENCODING",
	"HTTP_ACCEPT_LANGUAGE",
	"HTTP_AUTHORIZATION", "HTTP_CACHE_CONTROL", "HTTP_CONNECTION", "HTTP_COOKIE", "HTTP_FORWARDED",
	"HTTP_IF_MODIFIED_SINCE",
	"HTTP_IF_NONE_MATCH", "HTTP_ORIGIN", "HTTP_PRAGMA", "HTTP_PRIORITY", "HTTP_RANGE",
	"HTTP_REFERER", "HTTP_SEC_CH_UA",
	"HTTP_SEC_CH_UA_MOBILE", "HTTP_SEC_CH_UA_PLATFORM", "HTTP_SEC_FETCH_DEST",
	"HTTP_SEC_FETCH_MODE", "HTTP_SEC_FETCH_SITE",
	"HTTP_SEC_FETCH_USER", "HTTP_TRACEPARENT", "HTTP_UPGRADE_INSECURE_REQUESTS",
	"HTTP_X_FORWARDED_FOR", "HTTP_X_FORWARDED_HOST",
	"HTTP_X_FORWARDED_PORT", "HTTP_X_FORWARDED_PROTO", "HTTP_X_REAL_IP", "HTTP_X_REQUEST_ID",
	"HTTP_X_REQUESTED_WITH", "USER",
	"HOME", "PHP_SELF", "REQUEST_TIME", "REQUEST_TIME_FLOAT",
};

void surus_variables_intern(void)
{
	for (size_t i = 0; i < sizeof(usual) / sizeof(*usual); i++) {
		zend_string_init_interned(usual[i], strlen(usual[i]), 1);
	}
}

/* --- into an array --- */

/* Whether PHP would keep this name as it is in an array. It would for those of Surus and of common
 * headers. */
static bool is_plain(const char *name, size_t len)
{
	if (len == 0 || (*name >= '0' && *name <= '9')) {
		return false;
	}
	for (size_t i = 0; i < len; i++) {
		char c = name[i];
		if (!((c >= 'A' && c <= 'Z') || c == '_' || (c >= '0' && c <= '9'))) {
			return false;
		}
	}
	return true;
}

enum { LONGEST_NAME = 255 };

/* Puts a variable into `array` unfiltered. */
static void put(const char *name, size_t name_len, const char *value, size_t value_len, zval *array)
{
	if (is_plain(name, name_len)) {
		zend_string *key = zend_string_init_interned(name, name_len, 0);
		zval string;

		ZVAL_STRINGL_FAST(&string, value, value_len);
		zend_hash_update(Z_ARRVAL_P(array), key, &string);
		zend_string_release_ex(key, 0);
	} else {
		char key[LONGEST_NAME + 1];
		zval string;

		memcpy(key, name, name_len);
		key[name_len] = '\0';
		ZVAL_STRINGL(&string, value, value_len);
		php_register_variable_ex(key, &string, array);
	}
}

/* Whether PHP's filter changes nothing, so that it can be bypassed. The filter keeps a copy of each
 * variable for filter_input(), which is made on demand (see below). */
static bool is_unfiltered(int source)
{
	return source == PARSE_SERVER && php.filter && php.filter->default_filter == php.unsafe_raw;
}

/* Puts a variable into $_SERVER or $_ENV, as `source` says. */
static void put_filtered(const char *name, size_t name_len, char *value, size_t value_len,
        zval *array, int source)
{
	char key[LONGEST_NAME + 1];

	if (name_len > LONGEST_NAME) {
		return;
	}
	if (!is_unfiltered(source)) {
		memcpy(key, name, name_len);
		key[name_len] = '\0';
		if (!sapi_module.input_filter(source, key, &value, value_len, &value_len)) {
			return; /* the filter has put it there itself */
		}
	}
	put(name, name_len, value, value_len, array);
}

/* In CGI, and so in php-fpm, the request's variables are part of the environment and of $_ENV. */
static void import_environment(zval *array)
{
	bool is_env = Z_TYPE(PG(http_globals)[TRACK_VARS_ENV]) == IS_ARRAY &&
	              Z_ARR_P(array) == Z_ARR(PG(http_globals)[TRACK_VARS_ENV]);
	struct surus_request *request = surus_request;

	zend_hash_extend(Z_ARRVAL_P(array), request->var_count + 16, false);
	php.import_environment(array);
	for (uint32_t i = 0; i < request->var_count; i++) {
		struct surus_var *var = &request->vars[i];
		put_filtered(var->name, var->name_len, var->value, var->value_len, array,
		        is_env ? PARSE_ENV : PARSE_SERVER);
	}
}

static void put_request(zval *array)
{
	struct surus_request *request = surus_request;

	for (uint32_t i = 0; i < request->var_count; i++) {
		struct surus_var *var = &request->vars[i];
		if (var->name_len <= LONGEST_NAME) {
			put(var->name, var->name_len, var->value, var->value_len, array);
		}
	}
}

/* Returns what getenv() without arguments does. */
static void load_environment(zval *array)
{
	php.import_environment(array);
	put_request(array);
}

void surus_variables_import_environment(zval *array)
{
	php.import_environment(array);
}

/* --- $_SERVER --- */

/* Fills $_SERVER of a boot, which has no request. */
static void register_boot(zval *array)
{
	char *script = surus_settings.script, *root = surus_settings.document_root;
	char *name = strrchr(script, '/');
	size_t root_len = root ? strlen(root) : 0;

	if (root && strncmp(script, root, root_len) == 0 && script[root_len] == '/') {
		name = script + root_len;
	}
	if (name) {
		put_filtered("PHP_SELF", sizeof("PHP_SELF") - 1, name, strlen(name), array, PARSE_SERVER);
		put_filtered("SCRIPT_NAME", sizeof("SCRIPT_NAME") - 1, name, strlen(name), array,
		        PARSE_SERVER);
	}
	put_filtered("SCRIPT_FILENAME", sizeof("SCRIPT_FILENAME") - 1, script, strlen(script), array,
	        PARSE_SERVER);
	if (root) {
		put_filtered("DOCUMENT_ROOT", sizeof("DOCUMENT_ROOT") - 1, root, root_len, array,
		        PARSE_SERVER);
	}
}

/* PHP_SELF is the script's name and PATH_INFO (main/php_variables.c leaves it to the SAPI). */
static char *php_self(size_t *len)
{
	const char *script = SG(request_info).request_uri ? SG(request_info).request_uri : "";
	const char *path_info = SURUS_VAR(surus_request, "PATH_INFO");
	size_t script_len = strlen(script), path_len = path_info ? strlen(path_info) : 0;
	char *self = emalloc(script_len + path_len + 1);

	memcpy(self, script, script_len);
	memcpy(self + script_len, path_info ? path_info : "", path_len);
	self[script_len + path_len] = '\0';
	*len = script_len + path_len;
	return self;
}

void surus_variables_register_server(zval *array)
{
	size_t len;

	php_import_environment_variables(array);
	if (surus_engine_boots_app()) {
		/* Octane and Symfony's Runtime use FrankenPHP's loop if this is set. */
		char is_worker[] = "1";
		put_filtered(ZEND_STRL("FRANKENPHP_WORKER"), is_worker, 1, array, PARSE_SERVER);
	}
	if (!surus_request->id && surus_engine_boots_app()) {
		register_boot(array);
		return;
	}
	char *self = php_self(&len);
	put_filtered("PHP_SELF", sizeof("PHP_SELF") - 1, self, len, array, PARSE_SERVER);
	efree(self);
}

/* --- filter_input() --- */

/* Fills the filter's copy of the request's variables, at its first use. */
static void fill_filter(void)
{
	size_t len;

	zend_is_auto_global(ZSTR_KNOWN(ZEND_STR_AUTOGLOBAL_SERVER));
	if (!surus_request->id || !is_unfiltered(PARSE_SERVER) ||
	        !Z_ISUNDEF(php.filter->server_array)) {
		return;
	}
	array_init_size(&php.filter->server_array, surus_request->var_count + 1);
	put_request(&php.filter->server_array);
	char *self = php_self(&len);
	put("PHP_SELF", sizeof("PHP_SELF") - 1, self, len, &php.filter->server_array);
	efree(self);
}

#define FILLING(name) \
	static zif_handler plain_##name; \
	static ZEND_FUNCTION(surus_##name) \
	{ \
		fill_filter(); \
		plain_##name(INTERNAL_FUNCTION_PARAM_PASSTHRU); \
	}

FILLING(filter_input)
FILLING(filter_input_array)
FILLING(filter_has_var)

static bool hook(const char *name, zif_handler *plain, zif_handler replacement)
{
	zend_function *function = zend_hash_str_find_ptr(CG(function_table), name, strlen(name));

	if (!function || function->type != ZEND_INTERNAL_FUNCTION) {
		return false;
	}
	*plain = function->internal_function.handler;
	function->internal_function.handler = replacement;
	return true;
}

/* The globals of PHP's filter extension, found through its ini setting; NULL if another extension
 * filters input or the layout is unexpected. */
static zend_filter_globals *find_filter(void)
{
	zend_module_entry *module = zend_hash_str_find_ptr(&module_registry, "filter",
	        sizeof("filter") - 1);
	zend_ini_entry *setting = zend_hash_str_find_ptr(EG(ini_directives), "filter.default",
	        sizeof("filter.default") - 1);
	Dl_info own, theirs;

	if (!module || !setting || (size_t)setting->mh_arg1 !=
	        offsetof(zend_filter_globals, default_filter) ||
	    !dladdr((void *)module->request_shutdown_func, &own) ||
	    !dladdr((void *)sapi_module.input_filter, &theirs) ||
	    own.dli_fbase != theirs.dli_fbase) {
		return NULL;
	}
	return setting->mh_arg2;
}

void surus_variables_start(void)
{
	zend_filter_globals *filter = find_filter();
	zval *unsafe_raw = zend_get_constant_str("FILTER_UNSAFE_RAW", sizeof("FILTER_UNSAFE_RAW") - 1);

	php.import_environment = php_import_environment_variables;
	php_import_environment_variables = import_environment;
	php_load_environment_variables = load_environment;
	if (filter && unsafe_raw && Z_TYPE_P(unsafe_raw) == IS_LONG &&
	    hook("filter_input", &plain_filter_input, ZEND_FN(surus_filter_input)) &&
	    hook("filter_input_array", &plain_filter_input_array, ZEND_FN(surus_filter_input_array)) &&
	    hook("filter_has_var", &plain_filter_has_var, ZEND_FN(surus_filter_has_var))) {
		php.unsafe_raw = Z_LVAL_P(unsafe_raw);
		php.filter = filter;
	}
}
