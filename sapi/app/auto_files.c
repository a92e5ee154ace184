/* auto_prepend_file and auto_append_file of a booted application: they belong to its requests, and
 * the boot is none. PHP runs both around its main script, which would be once, at the boot. */
#include "app/auto_files.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <php.h>
#include <php_ini.h>
#include <zend_exceptions.h>
#include <zend_observer.h>

#include "app/auto_once.h"
#include "base/process_state.h"
#include "base/settings.h"
#include "php/exceptions.h"

/* NULL where there is none. */
static const char *prepended, *appended;

/* Global variables that the files have made for the event in our hands, where the next one runs in
 * the same process: a guard among them (`if (isset($checked)) return;`) would let that one pass. */
static HashTable its_globals;

static const char *setting(const char *name)
{
	const char *value = zend_ini_string(name, strlen(name), 0);

	return value && *value ? value : NULL;
}

void surus_auto_files_take(void)
{
	prepended = setting("auto_prepend_file");
	zend_hash_init(&its_globals, 0, NULL, NULL, 0);
	appended = setting("auto_append_file");
	/* The settings stay as they are for ini_get(). Only php_execute_script reads these. */
	PG(auto_prepend_file) = NULL;
	PG(auto_append_file) = NULL;
}

/* A request may change the working directory and include_path, and the next one must not run
 * another file, or none. A file that is missing now is missed where it would be now. */
static const char *pin(const char *name)
{
	char path[MAXPATHLEN], directory[MAXPATHLEN];

	if (!name || IS_ABSOLUTE_PATH(name, strlen(name)) || strstr(name, "://")) {
		return name;
	}
	zend_string *file = zend_string_init(name, strlen(name), 0);
	zend_string *found = zend_resolve_path(file);
	const char *pinned = name;
	if (found) {
		pinned = pestrdup(ZSTR_VAL(found), 1);
		zend_string_release(found);
	} else if (getcwd(directory, sizeof(directory)) &&
	           (size_t)snprintf(path, sizeof(path), "%s/%s", directory, name) < sizeof(path)) {
		pinned = pestrdup(path, 1);
	}
	zend_string_release(file);
	return pinned;
}

void surus_auto_files_pin(void)
{
	prepended = pin(prepended);
	appended = pin(appended);
}

/* As zend_execute_scripts, but in the global scope however deep the boot script stands, and with
 * its frames below, because PHP reattaches their variables where they share this scope. */
static void execute(zend_op_array *code)
{
	zend_execute_data *call = zend_vm_stack_push_call_frame(
	    ZEND_CALL_TOP_CODE | ZEND_CALL_HAS_SYMBOL_TABLE, (zend_function *)code, 0, NULL);

	call->symbol_table = &EG(symbol_table);
	call->prev_execute_data = EG(current_execute_data);
	zend_init_code_execute_data(call, code, NULL);
	ZEND_OBSERVER_FCALL_BEGIN(call);
	zend_execute_ex(call);
	zend_vm_stack_free_call_frame(call);
#if PHP_VERSION_ID < 80600
	zend_exception_restore();
#endif
}

/* False: the request ends here, by exit() or an exception. */
static bool run(const char *path)
{
	/* Warm-ups belong to the boot. What they declared could not be declared again. */
	if (!path || (surus_self->has_no_client && !surus_self->child)) {
		return true;
	}
	zend_op_array *code = surus_auto_compile(path);
	if (code) {
		execute(code);
	}
	bool goes_on = surus_handle_exception();
	if (code) {
		surus_auto_destroy(code);
	}
	return code && goes_on;
}

/* Puts the names of all into `names`, but for those that are there already or in `known`. */
static void note_globals(HashTable *names, HashTable *known)
{
	zend_string *name;
	zval *value;

	ZEND_HASH_FOREACH_STR_KEY_VAL_IND(&EG(symbol_table), name, value) {
		(void)value;
		if (name && !(known && zend_hash_exists(known, name)) &&
		        !zend_hash_exists(CG(auto_globals), name)) {
			zend_hash_add_empty_element(names, name);
		}
	} ZEND_HASH_FOREACH_END();
}

/* Runs it so that it can be run again. */
static bool run_for_event(const char *path)
{
	HashTable before;

	if (!path || surus_settings.engine != SURUS_WORKER) {
		return run(path);
	}
	zend_hash_init(&before, 32, NULL, NULL, 0);
	note_globals(&before, NULL);
	surus_auto_once_begin(path);
	bool goes_on = run(path);
	surus_auto_once_end();
	note_globals(&its_globals, &before);
	zend_hash_destroy(&before);
	return goes_on;
}

bool surus_auto_prepend(void)
{
	return run_for_event(prepended);
}

void surus_auto_append(void)
{
	run_for_event(appended);
}

/* As PHP's shutdown_destructors: objects that nothing but a variable has, the last variable
 * first. */
static void destroy_objects(void)
{
	zend_string *name;
	bool again;

	do {
		again = false;
		ZEND_HASH_REVERSE_FOREACH_STR_KEY(&its_globals, name) {
			zval *value = zend_hash_find_ind(&EG(symbol_table), name);
			if (value && Z_TYPE_P(value) == IS_OBJECT && Z_REFCOUNT_P(value) == 1) {
				zend_hash_del_ind(&EG(symbol_table), name);
				again = true;
			}
		} ZEND_HASH_FOREACH_END();
	} while (again);
}

/* Holds the objects in a value, which it may share with other variables. */
static void hold(HashTable *held, zval *value)
{
	zval *element;

	ZVAL_DEREF(value);
	if (Z_TYPE_P(value) == IS_OBJECT && zend_hash_index_add(held, Z_OBJ_HANDLE_P(value), value)) {
		Z_ADDREF_P(value);
	} else if (Z_TYPE_P(value) == IS_ARRAY && Z_REFCOUNTED_P(value) && !Z_IS_RECURSIVE_P(value)) {
		Z_PROTECT_RECURSION_P(value);
		ZEND_HASH_FOREACH_VAL(Z_ARRVAL_P(value), element) {
			hold(held, element);
		} ZEND_HASH_FOREACH_END();
		Z_UNPROTECT_RECURSION_P(value);
	}
}

/* All other objects, when no variable of the files is left: PHP destroys them in the order in which
 * they were made, which mostly is that of the variables. */
static void destroy_rest(void)
{
	HashTable held;
	zend_string *name;

	zend_hash_init(&held, 8, NULL, ZVAL_PTR_DTOR, 0);
	ZEND_HASH_FOREACH_STR_KEY(&its_globals, name) {
		zval *value = zend_hash_find_ind(&EG(symbol_table), name);
		if (value) {
			hold(&held, value);
		}
	} ZEND_HASH_FOREACH_END();
	ZEND_HASH_FOREACH_STR_KEY(&its_globals, name) {
		zend_hash_del_ind(&EG(symbol_table), name);
	} ZEND_HASH_FOREACH_END();
	zend_hash_destroy(&held);
}

void surus_auto_files_end(void)
{
	zend_try {
		destroy_objects();
		destroy_rest();
		zend_hash_clean(&its_globals);
		surus_auto_once_undo();
	} zend_catch {
		/* As PHP where a destructor ends the request; it costs this worker. */
		zend_objects_store_mark_destructed(&EG(objects_store));
	} zend_end_try();
}

/* Sections of php.ini for a host, which only a request names; those for a path apply to the boot's
 * script. */
static bool is_any_of_host(void)
{
	static const char *const names[] = {"auto_prepend_file", "auto_append_file"};
	zend_string *section;
	zval *value;

	if (!php_ini_has_per_host_config()) {
		return false;
	}
	ZEND_HASH_FOREACH_STR_KEY_VAL(php_ini_get_configuration_hash(), section, value) {
		/* Those for a path are absolute ones. */
		if (!section || ZSTR_LEN(section) == 0 || Z_TYPE_P(value) != IS_ARRAY ||
		        ZSTR_VAL(section)[0] == '/') {
			continue;
		}
		for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
			if (zend_hash_str_exists(Z_ARRVAL_P(value), names[i], strlen(names[i]))) {
				fprintf(stderr,
				        "surus-php: php.ini sets %s under [HOST=%s], which is unknown at the boot; "
				        "choose the engine `classic` (engine.name), or set it for all hosts or "
				        "under [PATH=...]\n",
				        names[i], ZSTR_VAL(section));
				return true;
			}
		}
	} ZEND_HASH_FOREACH_END();
	return false;
}

bool surus_auto_files_are_repeatable(void)
{
	if (is_any_of_host()) {
		return false;
	}
	return surus_settings.engine != SURUS_WORKER || surus_auto_once_none(prepended, appended);
}
