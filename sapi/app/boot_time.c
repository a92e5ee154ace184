/* Reports constants and static variables in which the boot keeps its REQUEST_TIME: every request
 * would see that time as its own. */
#include "app/boot_time.h"

#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>

#include <php.h>
#include <SAPI.h>

#include "base/scoreboard_layout.h"

enum { MOST = 8 }; /* reports; more have the same cause */
static double boot_time; /* REQUEST_TIME_FLOAT of the boot */
static atomic_bool *reported; /* set by the first worker that reports */
static int named;

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

static bool is_boot_time(const zval *value)
{
	ZVAL_DEREF(value);
	return (Z_TYPE_P(value) == IS_LONG && Z_LVAL_P(value) == (zend_long)boot_time) ||
	       (Z_TYPE_P(value) == IS_DOUBLE && Z_DVAL_P(value) == boot_time);
}

static void name(const char *what, const zend_string *scope, const char *separator,
        const char *name)
{
	if (named++ < MOST) {
		fprintf(stderr,
		        "surus-php: %s %s%s%s keeps the time of the boot, and every request would take it "
		        "for its own; read $_SERVER['REQUEST_TIME'] in the handler instead\n",
		        what, scope ? ZSTR_VAL(scope) : "", separator, name);
	}
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
		if (key && is_boot_time(value)) {
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
		        is_boot_time(value + property->offset)) {
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

void surus_boot_time_report(void)
{
	zend_class_entry *class;
	zend_function *function;
	zend_constant *constant;
	zend_string *key;
	zval *value;

	if (atomic_exchange(reported, true)) {
		return;
	}
	ZEND_HASH_FOREACH_STR_KEY_VAL(EG(zend_constants), key, value) {
		constant = Z_PTR_P(value);
		if (key && ZEND_CONSTANT_MODULE_NUMBER(constant) == PHP_USER_CONSTANT &&
		        is_boot_time(&constant->value)) {
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
