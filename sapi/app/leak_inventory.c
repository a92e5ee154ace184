/* Lists what a request has left in the process, for `surus leaks` on the engine `worker`. */
#include "app/leak_inventory.h"

#include <dirent.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <php.h>
#include <php_output.h>
#include <php_streams.h>
#include <zend_closures.h>
#include <ext/standard/basic_functions.h>

#include "app/value_digest.h"

extern char **environ;

/* The inventory before the request: name and short description of each thing. */
static HashTable before;

static HashTable *into;

static void save(zend_string *name, zend_string *value)
{
	zval zv;
	ZVAL_STR(&zv, value);
	zend_hash_update(into, name, &zv);
	zend_string_release(name);
}

#define SAVE(value, ...) save(strpprintf(0, __VA_ARGS__), value)

/* --- PHP's tables --- */

/* Set for each request. */
static bool is_superglobal(const char *name)
{
	static const char *const names[] = {"_GET", "_POST", "_COOKIE", "_FILES", "_SERVER", "_ENV",
	        "_REQUEST", "_SESSION", "GLOBALS"};

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		if (strcmp(name, names[i]) == 0) {
			return true;
		}
	}
	return false;
}

static void save_globals(void)
{
	zend_string *name;
	zval *value;

	ZEND_HASH_FOREACH_STR_KEY_VAL_IND(&EG(symbol_table), name, value) {
		if (name && Z_TYPE_P(value) != IS_UNDEF && !is_superglobal(ZSTR_VAL(name))) {
			SAVE(surus_value_describe(value), "global $%s", ZSTR_VAL(name));
		}
	} ZEND_HASH_FOREACH_END();
}

/* `of` names the owner. */
static void save_statics(zend_op_array *code, const char *of)
{
	HashTable *statics = code->static_variables ? ZEND_MAP_PTR_GET(code->static_variables_ptr)
	        : NULL;
	zend_string *name;
	zval *value;

	if (!statics) {
		return;
	}
	ZEND_HASH_FOREACH_STR_KEY_VAL(statics, name, value) {
		if (Z_TYPE_P(value) != IS_CONSTANT_AST) {
			SAVE(surus_value_describe(value), "static variable $%s of %s", ZSTR_VAL(name), of);
		}
	} ZEND_HASH_FOREACH_END();
}

static void save_statics_of(zend_op_array *code, const char *class_name)
{
	zend_string *of = strpprintf(0, "%s%s%s()", class_name ? class_name : "",
	        class_name ? "::" : "", ZSTR_VAL(code->function_name));

	save_statics(code, ZSTR_VAL(of));
	zend_string_release(of);
}

/* Static and bound (`use`) variables: each closure has its own. */
static void save_closures(void)
{
	for (uint32_t i = 1; i < EG(objects_store).top; i++) {
		zend_object *object = EG(objects_store).object_buckets[i];
		if (!IS_OBJ_VALID(object) || object->ce != zend_ce_closure) {
			continue;
		}
		const zend_function *function = zend_get_closure_method_def(object);
		if (function->type == ZEND_USER_FUNCTION) {
			zend_op_array *code = (zend_op_array *)&function->op_array;
			zend_string *of = strpprintf(0, "the closure %u of %s:%u", i, ZSTR_VAL(code->filename),
			        code->line_start);
			save_statics(code, ZSTR_VAL(of));
			zend_string_release(of);
		}
	}
}

static void save_classes_and_functions(void)
{
	zend_class_entry *class;
	zend_function *function;

	ZEND_HASH_FOREACH_PTR(EG(class_table), class) {
		if (class->type != ZEND_USER_CLASS) {
			continue;
		}
		SAVE(ZSTR_EMPTY_ALLOC(), "class %s", ZSTR_VAL(class->name));
		zval *statics = class->default_static_members_count ? CE_STATIC_MEMBERS(class) : NULL;
		zend_property_info *property;
		if (statics) {
			ZEND_HASH_FOREACH_PTR(&class->properties_info, property) {
				if ((property->flags & ZEND_ACC_STATIC) && property->ce == class) {
					const char *short_name, *of;
					zend_unmangle_property_name(property->name, &of, &short_name);
					zend_string *text = surus_value_describe(&statics[property->offset]);
					SAVE(text, "static property %s::$%s", ZSTR_VAL(class->name), short_name);
				}
			} ZEND_HASH_FOREACH_END();
		}
		ZEND_HASH_FOREACH_PTR(&class->function_table, function) {
			if (function->type == ZEND_USER_FUNCTION && function->common.scope == class) {
				save_statics_of(&function->op_array, ZSTR_VAL(class->name));
			}
		} ZEND_HASH_FOREACH_END();
	} ZEND_HASH_FOREACH_END();
	ZEND_HASH_FOREACH_PTR(EG(function_table), function) {
		if (function->type == ZEND_USER_FUNCTION) {
			SAVE(ZSTR_EMPTY_ALLOC(), "function %s()", ZSTR_VAL(function->common.function_name));
			save_statics_of(&function->op_array, NULL);
		}
	} ZEND_HASH_FOREACH_END();
}

static void save_constants(void)
{
	zend_constant *constant;

	ZEND_HASH_FOREACH_PTR(EG(zend_constants), constant) {
		if (ZEND_CONSTANT_MODULE_NUMBER(constant) == PHP_USER_CONSTANT && constant->name) {
			SAVE(surus_value_describe(&constant->value), "constant %s", ZSTR_VAL(constant->name));
		}
	} ZEND_HASH_FOREACH_END();
}

static void save_settings(void)
{
	zend_ini_entry *entry;

	ZEND_HASH_FOREACH_PTR(EG(ini_directives), entry) {
		SAVE(entry->value ? zend_string_copy(entry->value) : ZSTR_EMPTY_ALLOC(), "ini setting %s",
		        ZSTR_VAL(entry->name));
	} ZEND_HASH_FOREACH_END();
}

static void save_objects(void)
{
	HashTable counts;
	zend_string *name;
	zval *count;

	zend_hash_init(&counts, 64, NULL, NULL, 0);
	for (uint32_t i = 1; i < EG(objects_store).top; i++) {
		zend_object *object = EG(objects_store).object_buckets[i];
		if (IS_OBJ_VALID(object)) {
			zval one;
			ZVAL_LONG(&one, 1);
			count = zend_hash_find(&counts, object->ce->name);
			if (count) {
				Z_LVAL_P(count)++;
			} else {
				zend_hash_add(&counts, object->ce->name, &one);
			}
		}
	}
	ZEND_HASH_FOREACH_STR_KEY_VAL(&counts, name, count) {
		SAVE(zend_long_to_str(Z_LVAL_P(count)), "objects of class %s", ZSTR_VAL(name));
	} ZEND_HASH_FOREACH_END();
	zend_hash_destroy(&counts);
}

static zend_string *callable(const zval *value)
{
	return Z_TYPE_P(value) == IS_UNDEF ? zend_string_copy(ZSTR_CHAR('-'))
	        : zend_get_callable_name((zval *)value);
}

/* Calls a function without arguments, if it exists. */
static bool ask(const char *function, zval *answer)
{
	zval name;
	bool known = zend_hash_str_exists(EG(function_table), function, strlen(function));

	ZVAL_UNDEF(answer);
	if (known) {
		ZVAL_STRING(&name, function);
		known = call_user_function(NULL, NULL, &name, answer, 0, NULL) == SUCCESS;
		zval_ptr_dtor(&name);
	}
	return known;
}

static void save_handlers(void)
{
	zval functions, *function;
	uint32_t number = 0;

	SAVE(callable(&EG(user_error_handler)), "error handler");
	SAVE(callable(&EG(user_exception_handler)), "exception handler");
	SAVE(zend_long_to_str(php_output_get_level()), "output buffers");
	if (ask("spl_autoload_functions", &functions) && Z_TYPE(functions) == IS_ARRAY) {
		ZEND_HASH_FOREACH_VAL(Z_ARRVAL(functions), function) {
			SAVE(callable(function), "autoloader %u", ++number);
		} ZEND_HASH_FOREACH_END();
	}
	zval_ptr_dtor(&functions);
}

static void save_names(HashTable *table, const char *what)
{
	zend_string *name;

	ZEND_HASH_FOREACH_STR_KEY(table, name) {
		if (name) {
			SAVE(ZSTR_EMPTY_ALLOC(), "%s %s", what, ZSTR_VAL(name));
		}
	} ZEND_HASH_FOREACH_END();
}

/* State of extensions that ini settings do not show. */
static void save_extensions(void)
{
	static const char *const says[] = {"date_default_timezone_get", "mb_internal_encoding",
	        "mb_language", "mb_regex_encoding",
	                                   "mb_substitute_character", "mb_detect_order",
	                                   "mb_http_output", "spl_autoload_extensions"};

	for (size_t i = 0; i < sizeof(says) / sizeof(*says); i++) {
		zval answer;
		if (ask(says[i], &answer)) {
			zend_string *text = Z_TYPE(answer) == IS_STRING ? zend_string_copy(Z_STR(answer))
			        : surus_value_describe(&answer);
			SAVE(text, "%s()", says[i]);
		}
		zval_ptr_dtor(&answer);
	}
	save_names(php_stream_get_url_stream_wrappers_hash(), "stream wrapper");
	save_names(php_get_stream_filters_hash(), "stream filter");
}

/* --- the process --- */

static void save_signals(void)
{
	FILE *status = fopen("/proc/self/status", "re");
	char line[256], name[8], value[32];

	while (status && fgets(line, sizeof(line), status)) {
		if (sscanf(line, "Sig%7[^:]: %31s", name, value) == 2) {
			const char *what = strcmp(name, "Cgt") == 0   ? "signals with a handler"
			                   : strcmp(name, "Ign") == 0 ? "ignored signals"
			                   : strcmp(name, "Blk") == 0 ? "blocked signals"
			                                              : NULL;
			if (what) {
				SAVE(strpprintf(0, "%s", value), "%s", what);
			}
		}
	}
	if (status) {
		fclose(status);
	}
}

static void save_process(void)
{
	char path[4096];
	mode_t mask = umask(0);
	DIR *directory = opendir("/proc/self/fd");
	struct dirent *entry;

	umask(mask);
	SAVE(strpprintf(0, "%04o", (unsigned)mask), "umask");
	SAVE(strpprintf(0, "%s", getcwd(path, sizeof(path)) ? path : "?"), "working directory");
	SAVE(strpprintf(0, "%s", setlocale(LC_ALL, NULL)), "locale");
	for (char **pair = environ; *pair; pair++) {
		const char *equals = strchr(*pair, '=');
		if (equals) {
			SAVE(strpprintf(0, "%s", equals + 1), "environment variable %.*s",
			        (int)(equals - *pair), *pair);
		}
	}
	while (directory && (entry = readdir(directory))) {
		char link[300];
		snprintf(link, sizeof(link), "/proc/self/fd/%s", entry->d_name);
		ssize_t len = readlink(link, path, sizeof(path) - 1);
		if (len > 0 && atoi(entry->d_name) != dirfd(directory)) {
			path[len] = '\0';
			SAVE(strpprintf(0, "%s", path), "descriptor %s", entry->d_name);
		}
	}
	if (directory) {
		closedir(directory);
	}
}

static void take(HashTable *inventory)
{
	zend_hash_init(inventory, 4096, NULL, ZVAL_PTR_DTOR, 0);
	into = inventory;
	save_globals();
	save_classes_and_functions();
	save_constants();
	save_settings();
	save_closures();
	save_objects();
	save_handlers();
	save_extensions();
	save_signals();
	save_process();
}

void surus_inventory_save(void)
{
	if (before.arData) {
		zend_hash_destroy(&before);
	}
	take(&before);
}

bool surus_inventory_compare(void)
{
	HashTable after;
	zend_string *name;
	zval *now, *then;

	if (!before.arData) {
		return false;
	}
	take(&after);
	ZEND_HASH_FOREACH_STR_KEY_VAL(&after, name, now) {
		then = zend_hash_find(&before, name);
		if (!then) {
			php_printf("%s appeared%s%s\n", ZSTR_VAL(name), Z_STRLEN_P(now) ? ": " : "",
			        Z_STRVAL_P(now));
		} else if (!zend_string_equals(Z_STR_P(then), Z_STR_P(now))) {
			if (strcmp(Z_STRVAL_P(then), Z_STRVAL_P(now)) == 0) {
				php_printf("%s changed inside: %s\n", ZSTR_VAL(name), Z_STRVAL_P(now));
			} else {
				php_printf("%s changed: %s, was %s\n", ZSTR_VAL(name), Z_STRVAL_P(now),
				        Z_STRVAL_P(then));
			}
		}
	} ZEND_HASH_FOREACH_END();
	ZEND_HASH_FOREACH_STR_KEY_VAL(&before, name, then) {
		if (!zend_hash_exists(&after, name)) {
			php_printf("%s is missing%s%s\n", ZSTR_VAL(name), Z_STRLEN_P(then) ? ": was " : "",
			        Z_STRVAL_P(then));
		}
	} ZEND_HASH_FOREACH_END();
	zend_hash_destroy(&after);
	return true;
}
