/* Runs auto_prepend_file and auto_append_file around the requests of a booted application. PHP
 * would run them once, around the boot's script. */
#include "app/auto_files.h"

#include <string.h>

#include <php.h>
#include <php_ini.h>
#include <zend_exceptions.h>
#include <zend_observer.h>

#include "app/auto_once.h"
#include "base/process_state.h"
#include "base/settings.h"
#include "php/exceptions.h"

/* NULL if not set. */
static const char *prepended, *appended;

/* Global variables that the files have set in the current request, in a process that continues.
 * They are deleted, because a guard such as `if (isset($checked)) return;` would let the next
 * request pass. */
static HashTable file_globals;

static const char *setting(const char *name)
{
	const char *value = zend_ini_string(name, strlen(name), 0);

	return value && *value ? value : NULL;
}

void surus_auto_files_take(void)
{
	prepended = setting("auto_prepend_file");
	zend_hash_init(&file_globals, 0, NULL, NULL, 0);
	appended = setting("auto_append_file");
	/* ini_get() still shows the settings. Only php_execute_script() reads these two. */
	PG(auto_prepend_file) = NULL;
	PG(auto_append_file) = NULL;
}

/* Resolves a relative name once. A request may change the working directory and include_path, and
 * the next request must not run another file or none. A missing file gets a path in the current
 * directory if `is_last`. */
static const char *pin(const char *name, bool is_last)
{
	char path[MAXPATHLEN], directory[MAXPATHLEN];

	if (!name || IS_ABSOLUTE_PATH(name, strlen(name)) || strstr(name, "://")) {
		return name;
	}
	/* Not zend_resolve_path(): OPcache would keep the file that it found, and run it in the place
	 * of the boot's script (persistent_compile_file() in ext/opcache/ZendAccelerator.c). */
	zend_string *found = php_resolve_path(name, strlen(name), PG(include_path));
	const char *pinned = name;
	if (found) {
		pinned = pestrdup(ZSTR_VAL(found), 1);
		zend_string_release(found);
	} else if (is_last && getcwd(directory, sizeof(directory)) &&
	           (size_t)snprintf(path, sizeof(path), "%s/%s", directory, name) < sizeof(path)) {
		pinned = pestrdup(path, 1);
	}
	return pinned;
}

void surus_auto_files_pin(bool is_last)
{
	prepended = pin(prepended, is_last);
	appended = pin(appended, is_last);
}

/* As zend_execute_scripts(), but in the global scope at any depth of the boot's script, and with
 * its frames below: PHP reattaches their variables if they share this scope. */
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
	/* Warm-ups belong to the boot. Requests could not declare again what warm-ups have declared. */
	if (!path || (surus_process->has_no_client && !surus_process->child)) {
		return true;
	}
	zend_op_array *code = surus_auto_compile(path);
	if (code) {
		execute(code);
	}
	bool goes_on = surus_exceptions_handle();
	if (code) {
		surus_auto_destroy(code);
	}
	return code && goes_on;
}

/* Adds the names of all globals to `names`, except those in `known`. */
static void save_globals(HashTable *names, HashTable *known)
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

/* Runs the file such that it can run again. */
static bool run_for_request(const char *path)
{
	HashTable before;

	if (!path || surus_settings.engine != SURUS_WORKER) {
		return run(path);
	}
	zend_hash_init(&before, 32, NULL, NULL, 0);
	save_globals(&before, NULL);
	surus_auto_once_begin(path);
	bool goes_on = run(path);
	surus_auto_once_end();
	save_globals(&file_globals, &before);
	zend_hash_destroy(&before);
	return goes_on;
}

bool surus_auto_prepend(void)
{
	return run_for_request(prepended);
}

void surus_auto_append(void)
{
	run_for_request(appended);
}

/* As PHP's shutdown_destructors(): objects that only a variable refers to, the last variable
 * first. */
static void destroy_objects(void)
{
	zend_string *name;
	bool again;

	do {
		again = false;
		ZEND_HASH_REVERSE_FOREACH_STR_KEY(&file_globals, name) {
			zval *value = zend_hash_find_ind(&EG(symbol_table), name);
			if (value && Z_TYPE_P(value) == IS_OBJECT && Z_REFCOUNT_P(value) == 1) {
				zend_hash_del_ind(&EG(symbol_table), name);
				again = true;
			}
		} ZEND_HASH_FOREACH_END();
	} while (again);
}

/* Keeps references to the objects in a value, which may share them with other variables. */
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

/* Destroys all other objects, after the variables of the files: PHP destroys them in the order of
 * their creation, which is mostly that of the variables. */
static void destroy_rest(void)
{
	HashTable held;
	zend_string *name;

	zend_hash_init(&held, 8, NULL, ZVAL_PTR_DTOR, 0);
	ZEND_HASH_FOREACH_STR_KEY(&file_globals, name) {
		zval *value = zend_hash_find_ind(&EG(symbol_table), name);
		if (value) {
			hold(&held, value);
		}
	} ZEND_HASH_FOREACH_END();
	ZEND_HASH_FOREACH_STR_KEY(&file_globals, name) {
		zend_hash_del_ind(&EG(symbol_table), name);
	} ZEND_HASH_FOREACH_END();
	zend_hash_destroy(&held);
}

void surus_auto_files_end(void)
{
	zend_try {
		destroy_objects();
		destroy_rest();
		zend_hash_clean(&file_globals);
		surus_auto_once_undo();
	} zend_catch {
		/* As PHP if a destructor ends the request; this worker will exit. */
		zend_objects_store_mark_destructed(&EG(objects_store));
	} zend_end_try();
}

/* Whether `path` is in the directory, at any depth. */
static bool is_below(const char *path, const char *directory)
{
	size_t len = strlen(directory);

	while (len > 0 && directory[len - 1] == '/') {
		len--;
	}
	return strncmp(path, directory, len) == 0 && path[len] == '/';
}

/* Whether requests to this engine may run scripts to which php.ini's section for this directory
 * applies, although it does not apply to the boot's script. */
static bool is_for_others(const char *directory)
{
	return !surus_settings.leaves_others && surus_settings.document_root &&
	        is_below(directory, surus_settings.document_root) &&
	        !is_below(surus_settings.script, directory);
}

/* Whether the value names a file that requests do not run anyway. */
static bool names_another(const char *name, const zval *value)
{
	const char *current = setting(name);

	if (Z_TYPE_P(value) != IS_STRING || Z_STRLEN_P(value) == 0) {
		return false;
	}
	return !IS_ABSOLUTE_PATH(Z_STRVAL_P(value), Z_STRLEN_P(value)) || !current ||
	        strcmp(current, Z_STRVAL_P(value)) != 0;
}

/* Whether php.ini sets one of the files in a section that the boot cannot apply. A host is only
 * known in a request, and a directory may be that of other scripts. */
static bool is_any_in_unread_section(void)
{
	static const char *const names[] = {"auto_prepend_file", "auto_append_file"};
	zend_string *section;
	zval *values;

	ZEND_HASH_FOREACH_STR_KEY_VAL(php_ini_get_configuration_hash(), section, values) {
		if (!section || ZSTR_LEN(section) == 0 || Z_TYPE_P(values) != IS_ARRAY) {
			continue;
		}
		/* Sections for a path have absolute names. */
		const char *place = ZSTR_VAL(section);
		bool is_path = php_ini_has_per_dir_config() && place[0] == '/' && is_for_others(place);
		bool is_host = php_ini_has_per_host_config() && place[0] != '/';
		for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
			zval *value = zend_hash_str_find(Z_ARRVAL_P(values), names[i], strlen(names[i]));
			if (value && is_host) {
				fprintf(stderr,
				        "surus-php: php.ini sets %s under [HOST=%s], which is unknown at the boot; "
				        "choose the engine `classic` (engine.name), or set it for all hosts or "
				        "for the document root, under [PATH=...]\n",
				        names[i], place);
				return true;
			}
			if (value && is_path && names_another(names[i], value)) {
				fprintf(stderr,
				        "surus-php: php.ini sets %s under [PATH=%s], which does not apply to the "
				        "boot's script %s, so no request would run that file; choose the engine "
				        "`classic` (engine.name), or set it under [PATH=%s]\n",
				        names[i], place, surus_settings.script, surus_settings.document_root);
				return true;
			}
		}
	} ZEND_HASH_FOREACH_END();
	return false;
}

bool surus_auto_files_are_repeatable(void)
{
	if (is_any_in_unread_section()) {
		return false;
	}
	return surus_settings.engine != SURUS_WORKER || surus_auto_once_check(prepended, appended);
}
