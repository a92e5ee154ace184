/* Saves settings of the process that PHP code can change, and restores or compares them later. */
#include "app/saved_settings.h"

#include <locale.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <php.h>
#include <php_ini.h>
#include <zend_smart_str.h>

#include "app/saved_values.h"

extern char **environ;

/* Functions whose results scripts can change and no ini setting shows. Arguments that they need are
 * null. */
static const char *const getters[] = {"date_default_timezone_get", "get_include_path",
	    "libxml_get_external_entity_loader", "libxml_use_internal_errors", "locale_get_default",
	    "mb_detect_order", "mb_http_output", "mb_internal_encoding", "mb_language",
	    "mb_regex_encoding", "mb_substitute_character", "mysqli_connect_errno",
	    "pcntl_async_signals", "readline_info", "readline_list_history", "spl_autoload_extensions",
	    "spl_autoload_functions", "stream_get_filters", "stream_get_transports",
	    "stream_get_wrappers", "textdomain"};

enum { GETTERS = sizeof(getters) / sizeof(*getters) };

static HashTable settings; /* values of ini settings by name */
static uint32_t constants;
static zval results[GETTERS], error_handler, exception_handler;
static int handled_errors;
static zend_string *process;
static char changed[200];

/* The earlier handlers, which restore_error_handler() and restore_exception_handler() take back. */
static struct {
	zend_stack *stack;
	size_t size; /* of an element */
	bool holds_values;
	int count; /* as saved */
	void *elements;
} stacks[] = {
	{.stack = &EG(user_error_handlers), .size = sizeof(zval), .holds_values = true},
	{.stack = &EG(user_error_handlers_error_reporting), .size = sizeof(int)},
	{.stack = &EG(user_exception_handlers), .size = sizeof(zval), .holds_values = true},
};

enum { STACKS = sizeof(stacks) / sizeof(*stacks) };

static void save_stacks(void)
{
	for (int i = 0; i < STACKS; i++) {
		const zend_stack *stack = stacks[i].stack;
		stacks[i].count = zend_stack_count(stack);
		stacks[i].elements = safe_emalloc((size_t)stacks[i].count, stacks[i].size, 1);
		if (stacks[i].count > 0) {
			memcpy(stacks[i].elements, zend_stack_base(stack),
			        (size_t)stacks[i].count * stacks[i].size);
		}
		for (int at = 0; stacks[i].holds_values && at < stacks[i].count; at++) {
			Z_TRY_ADDREF(((zval *)stacks[i].elements)[at]);
		}
	}
}

static void restore_stacks(void)
{
	for (int i = 0; i < STACKS; i++) {
		zend_stack *stack = stacks[i].stack;
		for (int at = 0; stacks[i].holds_values && at < zend_stack_count(stack); at++) {
			surus_values_free_later((zval *)zend_stack_base(stack) + at);
		}
		zend_stack_clean(stack, NULL, true);
		for (int at = 0; at < stacks[i].count; at++) {
			const void *element = (char *)stacks[i].elements + (size_t)at * stacks[i].size;
			zend_stack_push(stack, element);
			if (stacks[i].holds_values) {
				Z_TRY_ADDREF(*(zval *)element);
			}
		}
	}
}

static void free_stacks(void)
{
	for (int i = 0; i < STACKS; i++) {
		for (int at = 0; stacks[i].holds_values && at < stacks[i].count; at++) {
			zval_ptr_dtor((zval *)stacks[i].elements + at);
		}
		efree(stacks[i].elements);
	}
}

static void ask(const char *function, zval *answer)
{
	zend_function *found = zend_hash_str_find_ptr(EG(function_table), function, strlen(function));
	zval null;

	ZVAL_UNDEF(answer);
	ZVAL_NULL(&null);
	if (found && found->common.required_num_args <= 1) {
		zend_call_known_function(found, NULL, NULL, answer, found->common.required_num_args, &null,
		        NULL);
	}
}

/* The state outside PHP: environment, directory, umask, locale. */
static zend_string *describe_process(void)
{
	char path[4096];
	smart_str text = {0};
	mode_t mask = umask(0);

	umask(mask);
	smart_str_append_printf(&text, "%o %s %s", (unsigned)mask,
	        getcwd(path, sizeof(path)) ? path : "?", setlocale(LC_ALL, NULL));
	for (char **pair = environ; *pair; pair++) {
		smart_str_append_printf(&text, "\n%s", *pair);
	}
	smart_str_0(&text);
	return text.s;
}

/* Counts the constants that PHP code has defined, and finds the last one. */
static uint32_t count_constants(const char **last)
{
	uint32_t count = 0;
	zend_constant *constant;

	ZEND_HASH_FOREACH_PTR(EG(zend_constants), constant) {
		if (ZEND_CONSTANT_MODULE_NUMBER(constant) == PHP_USER_CONSTANT && constant->name) {
			count++;
			if (last) {
				*last = ZSTR_VAL(constant->name);
			}
		}
	} ZEND_HASH_FOREACH_END();
	return count;
}

void surus_saved_settings_save(void)
{
	zend_ini_entry *entry;

	zend_hash_init(&settings, 512, NULL, ZVAL_PTR_DTOR, 0);
	ZEND_HASH_FOREACH_PTR(EG(ini_directives), entry) {
		if (entry->value) {
			zval value;
			/* A copy, because PHP frees the current value where it sets another one. */
			ZVAL_STRINGL(&value, ZSTR_VAL(entry->value), ZSTR_LEN(entry->value));
			zend_hash_update(&settings, entry->name, &value);
		}
	} ZEND_HASH_FOREACH_END();
	constants = count_constants(NULL);
	for (int i = 0; i < GETTERS; i++) {
		ask(getters[i], &results[i]);
	}
	ZVAL_COPY(&error_handler, &EG(user_error_handler));
	ZVAL_COPY(&exception_handler, &EG(user_exception_handler));
	handled_errors = EG(user_error_handler_error_reporting);
	save_stacks();
	process = describe_process();
}

static bool is_same_text(const zval *then, const zend_string *now)
{
	return then && now ? zend_string_equals(Z_STR_P(then), (zend_string *)now) : !then == !now;
}

static const char *restore_ini(void)
{
	zend_ini_entry *entry;
	const char *unrestored = NULL;

	ZEND_HASH_FOREACH_PTR(EG(ini_directives), entry) {
		zval *then = zend_hash_find(&settings, entry->name);
		if (is_same_text(then, entry->value)) {
			continue;
		}
		/* Restored as at the end of a request, because some settings accept their value only
		 * then. */
		if (entry->modified && is_same_text(then, entry->orig_value)) {
			zend_restore_ini_entry(entry->name, PHP_INI_STAGE_DEACTIVATE);
		} else if (then) {
			zend_alter_ini_entry_ex(entry->name, Z_STR_P(then), PHP_INI_SYSTEM,
			        PHP_INI_STAGE_DEACTIVATE, true);
		}
		if (!is_same_text(then, entry->value)) {
			unrestored = ZSTR_VAL(entry->name);
		}
	} ZEND_HASH_FOREACH_END();
	return unrestored;
}

const char *surus_saved_settings_restore(void)
{
	const char *ini = restore_ini(), *constant = "?";

	surus_values_set(&EG(user_error_handler), &error_handler, NULL);
	surus_values_set(&EG(user_exception_handler), &exception_handler, NULL);
	EG(user_error_handler_error_reporting) = handled_errors;
	restore_stacks();
	surus_values_free_replaced();
	if (ini) {
		snprintf(changed, sizeof(changed), "the setting %s", ini);
		return changed;
	}
	if (count_constants(&constant) != constants) {
		snprintf(changed, sizeof(changed), "the constant %s", constant);
		return changed;
	}
	for (int i = 0; i < GETTERS; i++) {
		zval now;
		ask(getters[i], &now);
		bool is_same = Z_TYPE(now) == Z_TYPE(results[i]) && zend_is_identical(&now, &results[i]);
		zval_ptr_dtor(&now);
		if (!is_same) {
			snprintf(changed, sizeof(changed), "what %s() returns", getters[i]);
			return changed;
		}
	}
	zend_string *now = describe_process();
	bool is_same = zend_string_equals(now, process);
	zend_string_release(now);
	return is_same ? NULL : "the environment, the locale, the directory or the umask";
}

void surus_saved_settings_free(void)
{
	zend_hash_destroy(&settings);
	for (int i = 0; i < GETTERS; i++) {
		zval_ptr_dtor(&results[i]);
	}
	zval_ptr_dtor(&error_handler);
	zval_ptr_dtor(&exception_handler);
	free_stacks();
	zend_string_release(process);
}
