/* Resets what extensions keep of the last call for the whole process: last errors, modes of
 * reporting. PHP resets it where a request begins. */
#include "app/extension_state.h"

#include <string.h>

#include <php.h>
#include <ext/pcre/php_pcre.h>

#include "php/mysqli_mode.h"

/* Functions that forget the last error of their extension where they succeed. */
static const struct {
	const char *function;
	const char *argument; /* NULL: it needs none */
} succeeding[] = {
	{"date_create", "2000-01-01 00:00:00 UTC"},
	{"json_decode", "0"},
	{"normalizer_is_normalized", "a"},
	{"socket_clear_error", NULL},
};

enum { SUCCEEDING = sizeof(succeeding) / sizeof(*succeeding) };

static int *posix_error; /* NULL: the extension is not loaded */
static struct {
	int posix_error;
	zend_long mysqli_mode;
	zval assert_callback;
	uint32_t persistent; /* persistent connections and streams */
} saved;

/* False: there is no such function. */
static bool call(const char *function, const char *argument, zval *result)
{
	zend_function *found = zend_hash_str_find_ptr(EG(function_table), function, strlen(function));
	zval value;

	ZVAL_UNDEF(result);
	if (!found) {
		return false;
	}
	ZVAL_UNDEF(&value);
	if (argument) {
		ZVAL_STRING(&value, argument);
	}
	zend_call_known_function(found, NULL, NULL, result, argument != NULL, &value, NULL);
	zval_ptr_dtor(&value);
	return true;
}

/* The queue that openssl_error_string() empties. */
static void empty_openssl_queue(void)
{
	enum { MOST = 64 };
	zval text;

	for (int i = 0; i < MOST && call("openssl_error_string", NULL, &text); i++) {
		bool is_empty = Z_TYPE(text) != IS_STRING;
		zval_ptr_dtor(&text);
		if (is_empty) {
			return;
		}
	}
}

/* The function that assert_options() has set. Sets another one instead, if `to` is not NULL. */
static void assert_callback(zval *result, const zval *to)
{
	enum { ASSERT_CALLBACK = 2 };
	zend_function *found = zend_hash_str_find_ptr(EG(function_table), ZEND_STRL("assert_options"));
	zval arguments[2], handler;
	int reporting = EG(error_reporting);

	ZVAL_NULL(result);
	if (!found) {
		return;
	}
	ZVAL_LONG(&arguments[0], ASSERT_CALLBACK);
	if (to) {
		ZVAL_COPY_VALUE(&arguments[1], to);
	}
	/* PHP 8.3 says that it is deprecated. */
	ZVAL_COPY_VALUE(&handler, &EG(user_error_handler));
	ZVAL_UNDEF(&EG(user_error_handler));
	EG(error_reporting) = 0;
	zend_call_known_function(found, NULL, NULL, result, to ? 2 : 1, arguments, NULL);
	EG(error_reporting) = reporting;
	ZVAL_COPY_VALUE(&EG(user_error_handler), &handler);
}

static void restore_assert_callback(void)
{
	zval now, before;

	assert_callback(&now, NULL);
	if (!zend_is_identical(&now, &saved.assert_callback)) {
		assert_callback(&before, &saved.assert_callback);
		zval_ptr_dtor(&before);
	}
	zval_ptr_dtor(&now);
}

static int *find_posix_error(void)
{
	zend_module_entry *posix = zend_hash_str_find_ptr(&module_registry, ZEND_STRL("posix"));

	/* The last error is all that the extension keeps (ext/posix/php_posix.h). */
	return posix && posix->globals_size == sizeof(int) ? posix->globals_ptr : NULL;
}

void surus_extension_state_save(void)
{
	posix_error = find_posix_error();
	saved.posix_error = posix_error ? *posix_error : 0;
	saved.mysqli_mode = surus_mysqli_mode(NULL);
	assert_callback(&saved.assert_callback, NULL);
	saved.persistent = zend_hash_num_elements(&EG(persistent_list));
}

void surus_extension_state_free(void)
{
	zval_ptr_dtor(&saved.assert_callback);
}

const char *surus_extension_state_restore(void)
{
	zval result;

	for (int i = 0; i < SUCCEEDING; i++) {
		if (call(succeeding[i].function, succeeding[i].argument, &result)) {
			zval_ptr_dtor(&result);
		}
	}
	empty_openssl_queue();
	PCRE_G(error_code) = PHP_PCRE_NO_ERROR;
	if (posix_error) {
		*posix_error = saved.posix_error;
	}
	if (surus_mysqli_mode(NULL) != saved.mysqli_mode) {
		surus_mysqli_mode(&saved.mysqli_mode);
	}
	restore_assert_callback();
	return zend_hash_num_elements(&EG(persistent_list)) == saved.persistent ? NULL
	        : "a persistent connection";
}
