/* Finds constants, globals and static variables that keep the REQUEST_TIME of the boot or a
 * warm-up, or time() or microtime() of the boot.
 *
 * Every request would see that time as its own. Arrays, objects and texts are looked into for
 * REQUEST_TIME, those of constants for any time of the boot. Elsewhere they may have a time between
 * begin and end for a good reason, such as the container.build_time of Symfony. */
#include "app/boot_time.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>

#include <php.h>
#include <SAPI.h>
#include <zend_closures.h>

#include "base/scoreboard_layout.h"
#include "base/settings.h"

enum { MOST = 8 }; /* reports; more have the same cause */
static double boot_time; /* REQUEST_TIME_FLOAT of the boot */
static atomic_bool *reported; /* set by the first worker that reports */
static int named;

/* The current search: a REQUEST_TIME_FLOAT, the end of the boot that began then, and the function
 * that gets each variable. */
static double wanted, until;
static void (*take)(const char *variable);

bool surus_boot_time_start(void)
{
	void *shared = mmap(NULL, sizeof(*reported), PROT_READ | PROT_WRITE,
	        MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	reported = shared;
	return shared != MAP_FAILED;
}

void surus_boot_time_begin(void)
{
	boot_time = sapi_get_request_time();
}

/* --- values --- */

/* Bounds of the search, so that a large boot costs at most a few milliseconds. */
enum {
	DEPTH = 5, /* arrays and objects within each other */
	OF_ONE = 5000, /* values of one variable */
	OF_ALL = 200000,
	TEXT = 256, /* bytes of a text; a longer one is a document */
};

static char path[160]; /* to the value within the variable: ['a']->b */
static int left_of_one, left_of_all;
static double latest; /* a time from `wanted` to this one is found */

static bool is_time(const zval *value)
{
	if (Z_TYPE_P(value) == IS_LONG) {
		return Z_LVAL_P(value) >= (zend_long)wanted && Z_LVAL_P(value) <= (zend_long)latest;
	}
	return Z_TYPE_P(value) == IS_DOUBLE && Z_DVAL_P(value) >= wanted && Z_DVAL_P(value) <= latest;
}

/* Whether a text has the seconds of a time as a number of its own. */
static bool names_time(const zend_string *text)
{
	char first[24], last[24];
	size_t len = (size_t)snprintf(first, sizeof(first), ZEND_LONG_FMT, (zend_long)wanted);
	size_t shared = 0; /* digits in which all these seconds begin */
	const char *end = ZSTR_VAL(text) + ZSTR_LEN(text), *at = ZSTR_VAL(text);

	snprintf(last, sizeof(last), ZEND_LONG_FMT, (zend_long)latest);
	while (shared < len && first[shared] == last[shared]) {
		shared++;
	}
	if (shared == 0 || ZSTR_LEN(text) < len || ZSTR_LEN(text) > TEXT) {
		return false;
	}
	for (; (at = memmem(at, (size_t)(end - at), first, shared)); at++) {
		size_t digits = strspn(at, "0123456789");
		bool begins = at == ZSTR_VAL(text) || at[-1] < '0' || at[-1] > '9';
		if (begins && digits == len && memcmp(at, first, len) >= 0 && memcmp(at, last, len) <= 0) {
			return true;
		}
	}
	return false;
}

/* A copy of $_SERVER, as a request object has it, which the next request replaces. */
static bool is_of_server(const zend_string *key)
{
	return key && (zend_string_equals_literal(key, "REQUEST_TIME") ||
	               zend_string_equals_literal(key, "REQUEST_TIME_FLOAT"));
}

static bool keeps(zval *value, size_t at, int depth);

static bool table_keeps(HashTable *table, size_t at, int depth, const char *format,
        const char *number_format)
{
	zend_ulong number;
	zend_string *key;
	zval *value;

	/* Arrays of the code are older than the boot. */
	if (!table || GC_FLAGS(table) & GC_IMMUTABLE) {
		return false;
	}
	ZEND_HASH_FOREACH_KEY_VAL_IND(table, number, key, value) {
		if (is_of_server(key)) {
			continue;
		}
		size_t room = sizeof(path) - at;
		int len = key ? snprintf(path + at, room, format,
		                         zend_get_unmangled_property_name(key))
		              : snprintf(path + at, room, number_format, number);
		if (keeps(value, at + (size_t)len, depth)) {
			return true;
		}
	} ZEND_HASH_FOREACH_END();
	return false;
}

/* The variables that a closure has taken from its scope. */
static bool closure_keeps(zend_object *closure, size_t at, int depth)
{
	const zend_function *function = zend_get_closure_method_def(closure);

	if (!ZEND_USER_CODE(function->type) || !ZEND_MAP_PTR(function->op_array.static_variables_ptr)) {
		return false;
	}
	HashTable *taken = ZEND_MAP_PTR_GET(function->op_array.static_variables_ptr);
	return table_keeps(taken, at, depth, "{$%s}", "{%lu}");
}

static bool object_keeps(zend_object *object, size_t at, int depth)
{
	zend_class_entry *class = object->ce;

	if (class == zend_ce_closure) {
		return closure_keeps(object, at, depth);
	}
	for (int i = 0; i < class->default_properties_count; i++) {
		const zend_property_info *property = class->properties_info_table[i];
		zval *value = &object->properties_table[i];
		if (!property || Z_TYPE_P(value) == IS_UNDEF) {
			continue;
		}
		int len = snprintf(path + at, sizeof(path) - at, "->%s",
		                   zend_get_unmangled_property_name(property->name));
		if (keeps(value, at + (size_t)len, depth)) {
			return true;
		}
	}
	/* The table has the declared ones, too, once something has asked for it. */
	return table_keeps(object->properties, at, depth, "->%s", "->%lu");
}

/* Whether the value, or one within it, is the time. Then `path` leads to it. */
static bool keeps(zval *value, size_t at, int depth)
{
	ZVAL_DEREF(value);
	if (at >= sizeof(path) || left_of_one-- <= 0 || left_of_all-- <= 0) {
		return false;
	}
	path[at] = '\0';
	switch (Z_TYPE_P(value)) {
	case IS_STRING:
		return names_time(Z_STR_P(value));
	case IS_ARRAY:
		return depth > 0 &&
		       table_keeps(Z_ARRVAL_P(value), at, depth - 1, "['%s']", "[%lu]");
	case IS_OBJECT:
		return depth > 0 && object_keeps(Z_OBJ_P(value), at, depth - 1);
	default:
		return is_time(value);
	}
}

static bool is_found_in(const zval *value)
{
	/* The shortest path first: objects may refer to each other. */
	for (int depth = 0; depth <= DEPTH; depth++) {
		left_of_one = OF_ONE;
		if (keeps((zval *)value, 0, depth)) {
			return true;
		}
		if (depth > 0 && left_of_one == OF_ONE - 1) {
			return false; /* it has no values within */
		}
	}
	return false;
}

/* Whether a variable keeps the time, or is itself a number between begin and end of the boot. */
static bool is_kept_in(zval *value)
{
	latest = until;
	path[0] = '\0';
	ZVAL_DEREF(value);
	if (is_time(value)) {
		return true;
	}
	latest = wanted;
	return is_found_in(value);
}

/* Whether a constant keeps any time of the boot. */
static bool is_kept_in_constant(const zval *value)
{
	latest = until;
	return is_found_in(value);
}

/* --- variables --- */

/* Constants and a variable that Surus's scripts and its Composer package renew for each request. */
static bool is_renewed(const char *name)
{
	static const char *const names[] = {"LARAVEL_START", "WP_START_TIMESTAMP", "timestart"};

	if (!surus_settings.code
	    && !zend_hash_str_exists(EG(class_table), ZEND_STRL("surus\\laravel\\runner"))) {
		return false;
	}
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		if (strcmp(name, names[i]) == 0) {
			return true;
		}
	}
	return false;
}

static void name(const char *what, const zend_string *scope, const char *separator,
        const char *name)
{
	char variable[512];

	snprintf(variable, sizeof(variable), "%s %s%s%s%s", what, scope ? ZSTR_VAL(scope) : "",
	        separator, name, path);
	take(variable);
}

/* Variables of the boot script, which its handler may use. */
static void check_globals(void)
{
	static const char *const others[] = {"_SERVER", "_ENV", "_GET", "_POST", "_COOKIE", "_FILES",
	                                     "_REQUEST", "_SESSION", "GLOBALS", "argv"};
	zend_string *key;
	zval *value;

	ZEND_HASH_FOREACH_STR_KEY_VAL_IND(&EG(symbol_table), key, value) {
		bool is_php = !key || is_renewed(ZSTR_VAL(key));
		for (size_t i = 0; key && i < sizeof(others) / sizeof(*others); i++) {
			is_php |= strcmp(ZSTR_VAL(key), others[i]) == 0;
		}
		if (!is_php && is_kept_in(value)) {
			name("the variable", NULL, "$", ZSTR_VAL(key));
		}
	} ZEND_HASH_FOREACH_END();
}

static void check_function(const zend_function *function)
{
	HashTable *statics;
	zend_string *key;
	zval *value;

	if (!ZEND_USER_CODE(function->type) || !ZEND_MAP_PTR(function->op_array.static_variables_ptr)) {
		return;
	}
	statics = ZEND_MAP_PTR_GET(function->op_array.static_variables_ptr);
	if (!statics) {
		return; /* it has not been called */
	}
	ZEND_HASH_FOREACH_STR_KEY_VAL(statics, key, value) {
		if (key && is_kept_in(value)) {
			name("the static variable", function->common.function_name, "(): $", ZSTR_VAL(key));
		}
	} ZEND_HASH_FOREACH_END();
}

static void check_class(zend_class_entry *class)
{
	zend_property_info *property;
	zend_function *function;

	if (class->type != ZEND_USER_CLASS) {
		return;
	}
	ZEND_HASH_FOREACH_PTR(&class->properties_info, property) {
		zval *value = CE_STATIC_MEMBERS(class);
		if (property->flags & ZEND_ACC_STATIC && property->ce == class && value &&
		        is_kept_in(value + property->offset)) {
			name("the static property", class->name, "::$",
			        zend_get_unmangled_property_name(property->name));
		}
	} ZEND_HASH_FOREACH_END();
	ZEND_HASH_FOREACH_PTR(&class->function_table, function) {
		if (function->common.scope == class) {
			check_function(function);
		}
	} ZEND_HASH_FOREACH_END();
}

/* Passes each variable that keeps the time, or one up to `end`, to `with`. */
static void search(double time, double end, void (*with)(const char *variable))
{
	zend_class_entry *class;
	zend_function *function;
	zend_constant *constant;
	zend_string *key;
	zval *value;

	wanted = time;
	until = end;
	take = with;
	left_of_all = OF_ALL;
	check_globals();
	ZEND_HASH_FOREACH_STR_KEY_VAL(EG(zend_constants), key, value) {
		constant = Z_PTR_P(value);
		if (key && ZEND_CONSTANT_MODULE_NUMBER(constant) == PHP_USER_CONSTANT &&
		        !is_renewed(ZSTR_VAL(key)) && is_kept_in_constant(&constant->value)) {
			name("the constant", NULL, "", ZSTR_VAL(key));
		}
	} ZEND_HASH_FOREACH_END();
	ZEND_HASH_FOREACH_PTR(EG(function_table), function) {
		check_function(function);
	} ZEND_HASH_FOREACH_END();
	ZEND_HASH_FOREACH_PTR(EG(class_table), class) {
		check_class(class);
	} ZEND_HASH_FOREACH_END();
}

static void report(const char *variable)
{
	if (named++ < MOST) {
		fprintf(stderr,
		        "surus-php: %s keeps the time of the boot, and every request would take it for its "
		        "own; read $_SERVER['REQUEST_TIME'] in the handler instead\n", variable);
	}
}

bool surus_boot_time_report(void)
{
	struct timeval now;

	if (atomic_exchange(reported, true)) {
		return false;
	}
	gettimeofday(&now, NULL);
	search(boot_time, (double)now.tv_sec + (double)now.tv_usec / 1e6, report);
	return true;
}

static char first[200]; /* the first variable that a search has found */

static void keep_first(const char *variable)
{
	if (!first[0]) {
		snprintf(first, sizeof(first), "%s", variable);
	}
}

const char *surus_boot_time_find(double time, const zval *handler)
{
	first[0] = '\0';
	search(time, time, keep_first);
	/* It may be a closure that no variable has, with static variables. */
	left_of_all = OF_ALL;
	if (is_kept_in((zval *)handler)) {
		name("the handler", NULL, "", "");
	}
	return first[0] ? first : NULL;
}
