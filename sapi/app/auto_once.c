/* Detects what auto_prepend_file and auto_append_file do that works only once per process.
 *
 * On `worker`, each request runs with the declarations of earlier ones, so such a file would work
 * for the first request only. */
#include "app/auto_once.h"

#include <stdio.h>
#include <string.h>

#include <php.h>
#include <php_ini.h>
#include <zend_exceptions.h>
#include <zend_observer.h>
#include <php_streams.h>
#include <ext/standard/basic_functions.h>
#include <ext/standard/file.h>

#include "php/exceptions.h"
#include "php/stream_wrappers.h"
#include "worker/worker.h"

void surus_auto_destroy(zend_op_array *code)
{
	zend_destroy_static_vars(code);
	destroy_op_array(code);
	efree_size(code, sizeof(*code));
}

zend_op_array *surus_auto_compile(const char *path)
{
	zend_file_handle file;

	zend_stream_init_filename(&file, path);
	zend_op_array *code = zend_compile_file(&file, ZEND_REQUIRE);
	if (file.opened_path) {
		zend_hash_add_empty_element(&EG(included_files), file.opened_path);
	}
	zend_destroy_file_handle(&file);
	return code;
}

/* --- before the boot: what the code shows --- */

/* The opcode exists since PHP 8.5. */
#ifndef ZEND_DECLARE_ATTRIBUTED_CONST
#define ZEND_DECLARE_ATTRIBUTED_CONST ZEND_DECLARE_CONST
#endif

static const struct {
	const char *name, *does;
} acting_once[] = {
	{"define", "declares a constant"},
	{"class_alias", "declares a class"},
	{"stream_wrapper_register", "registers a stream wrapper"},
	{"stream_filter_register", "registers a stream filter"},
};

/* Checks the name of a called function: as written if it is unknown at compile time, and in lower
 * case. */
static const char *find_in_call(const zend_op *op)
{
	int count = op->opcode == ZEND_INIT_NS_FCALL_BY_NAME ? 3
	            : op->opcode == ZEND_INIT_FCALL_BY_NAME  ? 2
	                                                     : 1;

	for (int i = 0; i < count; i++) {
		const zend_string *name = Z_STR_P(RT_CONSTANT(op, op->op2) + i);
		for (size_t j = 0; j < sizeof(acting_once) / sizeof(*acting_once); j++) {
			if (zend_string_equals_cstr(name, acting_once[j].name, strlen(acting_once[j].name))) {
				return acting_once[j].does;
			}
		}
	}
	return NULL;
}

static const char *find_in_op(const zend_op *op)
{
	if (op->opcode == ZEND_DECLARE_ATTRIBUTED_CONST) {
		return "declares a constant";
	}
	switch (op->opcode) {
	case ZEND_DECLARE_FUNCTION:
		return "declares a function";
	case ZEND_DECLARE_CLASS:
	case ZEND_DECLARE_CLASS_DELAYED:
	case ZEND_DECLARE_ANON_CLASS:
		return "declares a class";
	case ZEND_DECLARE_CONST:
		return "declares a constant";
	case ZEND_INCLUDE_OR_EVAL:
		/* The effect is not known here. */
		return "includes a file or evaluates code";
	case ZEND_INIT_FCALL:
	case ZEND_INIT_FCALL_BY_NAME:
	case ZEND_INIT_NS_FCALL_BY_NAME:
		return find_in_call(op);
	}
	return NULL;
}

static const char *find_in_code(const zend_op_array *code, uint32_t *line)
{
	const char *found = NULL;

	for (const zend_op *op = code->opcodes; op < code->opcodes + code->last && !found; op++) {
		*line = op->lineno;
		found = find_in_op(op);
	}
	for (uint32_t i = 0; i < code->num_dynamic_func_defs && !found; i++) {
		found = find_in_code(code->dynamic_func_defs[i], line);
	}
	return found;
}

static bool is_repeatable(const char *name, const char *path)
{
	uint32_t functions = zend_hash_num_elements(EG(function_table));
	uint32_t classes = zend_hash_num_elements(EG(class_table));
	const char *found;
	uint32_t line = 0;
	char where[32] = "";

	if (!path) {
		return true;
	}
	zend_op_array *code = surus_auto_compile(path);
	if (!code) {
		surus_exceptions_handle();
		return false;
	}
	/* PHP declares top-level functions and classes when it compiles the file. */
	if (zend_hash_num_elements(EG(function_table)) > functions) {
		found = "declares a function";
	} else if (zend_hash_num_elements(EG(class_table)) > classes) {
		found = "declares a class";
	} else {
		found = find_in_code(code, &line);
		snprintf(where, sizeof(where), " in line %u", line);
	}
	surus_auto_destroy(code);
	if (found) {
		fprintf(stderr,
		        "surus-php: %s cannot run for every request on the engine `worker`: %s %s%s, which "
		        "would take effect for the first request of each worker only; choose rewind, fork "
		        "or standby (engine.name), or unset it (%s = \"\" in .user.ini or under [php])\n",
		        name, path, found, where, name);
	}
	return !found;
}

bool surus_auto_once_check(const char *prepended, const char *appended)
{
	return is_repeatable("auto_prepend_file", prepended) &&
	        is_repeatable("auto_append_file", appended);
}

/* --- in a request: what it has done --- */

/* Sizes of tables that scripts only add to. */
struct tables {
	uint32_t functions, classes, constants, wrappers, filters, files;
};

static struct tables seen;
static HashTable files; /* files that they have included in this request */
static zval autoloaders; /* autoloaders before the file ran */
static zval registered; /* autoloaders that the files have added */
static zend_class_entry *(*plain_autoload)(zend_string *name, zend_string *lower);

/* Counts the wrappers of scripts. */
static uint32_t count_wrappers(void)
{
	const php_stream_wrapper *wrapper;
	uint32_t count = 0;

	if (FG(stream_wrappers)) {
		ZEND_HASH_FOREACH_PTR(FG(stream_wrappers), wrapper) {
			count += surus_wrapper_is_userland(wrapper);
		} ZEND_HASH_FOREACH_END();
	}
	return count;
}

static struct tables count(void)
{
	return (struct tables){
		.functions = zend_hash_num_elements(EG(function_table)),
		.classes = zend_hash_num_elements(EG(class_table)),
		.constants = zend_hash_num_elements(EG(zend_constants)),
		.wrappers = count_wrappers(),
		.filters = BG(user_filter_map) ? zend_hash_num_elements(BG(user_filter_map)) : 0,
		.files = zend_hash_num_elements(&EG(included_files)),
	};
}

/* Checks what code of the files has done since the last check. */
static void check_tables(const char *path)
{
	const struct tables now = count();
	const char *found = now.functions > seen.functions   ? "declares a function"
	                    : now.classes > seen.classes     ? "declares a class"
	                    : now.constants > seen.constants ? "declares a constant"
	                    : now.wrappers > seen.wrappers   ? "registers a stream wrapper"
	                    : now.filters > seen.filters     ? "registers a stream filter"
	                                                     : NULL;

	/* New files are the last entries of the table, even if it was rebuilt. */
	uint32_t more = now.files - seen.files;
	zend_string *file;
	ZEND_HASH_REVERSE_FOREACH_STR_KEY(&EG(included_files), file) {
		if (more-- == 0) {
			break;
		}
		zend_hash_add_empty_element(&files, file);
	} ZEND_HASH_FOREACH_END();
	seen = now;
	if (found && surus_worker_exit_after_request()) {
		fprintf(stderr,
		        "surus-php: %s %s, which takes effect once in a process: on the engine `worker`, "
		        "each request ends its worker and needs another boot; choose rewind, fork or "
		        "standby (engine.name)\n",
		        path, found);
	}
}

static const char *running; /* the path of the file */

/* An autoloaded class stays for all requests, as if the handler had needed it first. */
static zend_class_entry *autoload(zend_string *name, zend_string *lower)
{
	check_tables(running);
	zend_autoload = plain_autoload; /* it may need other classes */
	zend_class_entry *class = plain_autoload(name, lower);
	zend_autoload = autoload;
	seen = count();
	return class;
}

static void get_autoloaders(zval *list)
{
	zend_function *function = zend_hash_str_find_ptr(CG(function_table),
	        ZEND_STRL("spl_autoload_functions"));

	ZVAL_NULL(list);
	if (function) {
		zend_call_known_function(function, NULL, NULL, list, 0, NULL, NULL);
	}
}

static bool contains(zval *list, zval *value)
{
	zval *element;

	ZEND_HASH_FOREACH_VAL(Z_ARRVAL_P(list), element) {
		if (zend_is_identical(element, value)) {
			return true;
		}
	} ZEND_HASH_FOREACH_END();
	return false;
}

static void save_autoloaders(void)
{
	zval now, *autoloader;

	get_autoloaders(&now);
	if (Z_TYPE(now) == IS_ARRAY && Z_TYPE(autoloaders) == IS_ARRAY) {
		ZEND_HASH_FOREACH_VAL(Z_ARRVAL(now), autoloader) {
			if (!contains(&autoloaders, autoloader)) {
				Z_TRY_ADDREF_P(autoloader);
				zend_hash_next_index_insert(Z_ARRVAL(registered), autoloader);
			}
		} ZEND_HASH_FOREACH_END();
	}
	zval_ptr_dtor(&now);
	zval_ptr_dtor(&autoloaders);
	ZVAL_UNDEF(&autoloaders);
}

void surus_auto_once_begin(const char *path)
{
	if (Z_TYPE(registered) != IS_ARRAY) {
		array_init(&registered);
		zend_hash_init(&files, 8, NULL, NULL, 0);
	}
	get_autoloaders(&autoloaders);
	running = path;
	seen = count();
	plain_autoload = zend_autoload;
	zend_autoload = autoload;
}

void surus_auto_once_end(void)
{
	zend_autoload = plain_autoload;
	check_tables(running);
	save_autoloaders();
}

void surus_auto_once_undo(void)
{
	zend_function *function = zend_hash_str_find_ptr(CG(function_table),
	        ZEND_STRL("spl_autoload_unregister"));
	zend_string *file;
	zval *autoloader;

	if (Z_TYPE(registered) != IS_ARRAY) {
		return;
	}
	ZEND_HASH_FOREACH_STR_KEY(&files, file) {
		zend_hash_del(&EG(included_files), file);
	} ZEND_HASH_FOREACH_END();
	zend_hash_clean(&files);
	if (function) {
		ZEND_HASH_FOREACH_VAL(Z_ARRVAL(registered), autoloader) {
			zval result;
			zend_call_known_function(function, NULL, NULL, &result, 1, autoloader, NULL);
			zval_ptr_dtor(&result);
		} ZEND_HASH_FOREACH_END();
	}
	zend_hash_clean(Z_ARRVAL(registered));
}

