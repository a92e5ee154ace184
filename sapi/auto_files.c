/* auto_prepend_file and auto_append_file of a booted application: they belong to its requests, and the
 * boot is none. PHP runs both around its main script, which would be once, at the boot. */
#include "surus.h"

#include <php.h>
#include <php_ini.h>
#include <zend_exceptions.h>
#include <zend_observer.h>

/* NULL where there is none. */
static const char *prepended, *appended;

/* Global variables that the prepended file has made for the event in our hands, where the next one runs in
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

/* As zend_execute_scripts, but in the global scope however deep the boot script stands, and with its
 * frames below, because PHP reattaches their variables where they share this scope. */
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

static void destroy(zend_op_array *code)
{
	zend_destroy_static_vars(code);
	destroy_op_array(code);
	efree_size(code, sizeof(*code));
}

static zend_op_array *compile(const char *path)
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

/* False: the request ends here, by exit() or an exception. */
static bool run(const char *path)
{
	/* Warm-ups belong to the boot. What they declared could not be declared again. */
	if (!path || (surus_self->outbox.discards && !surus_self->child)) {
		return true;
	}
	zend_op_array *code = compile(path);
	if (code) {
		execute(code);
	}
	bool goes_on = surus_handle_exception();
	if (code) {
		destroy(code);
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
		if (name && !(known && zend_hash_exists(known, name)) && !zend_hash_exists(CG(auto_globals), name)) {
			zend_hash_add_empty_element(names, name);
		}
	} ZEND_HASH_FOREACH_END();
}

bool surus_auto_prepend(void)
{
	HashTable before;

	if (!prepended || surus_settings.engine != SURUS_WORKER) {
		return run(prepended);
	}
	zend_hash_init(&before, 32, NULL, NULL, 0);
	note_globals(&before, NULL);
	bool goes_on = run(prepended);
	note_globals(&its_globals, &before);
	zend_hash_destroy(&before);
	return goes_on;
}

void surus_auto_files_end(void)
{
	zend_string *name;

	if (!prepended) {
		return;
	}
	ZEND_HASH_FOREACH_STR_KEY(&its_globals, name) {
		zend_hash_del_ind(&EG(symbol_table), name);
	} ZEND_HASH_FOREACH_END();
	zend_hash_clean(&its_globals);
}

void surus_auto_append(void)
{
	run(appended);
}

/* --- on `worker`, where every request runs in what the requests before have declared --- */

static bool is_define(const zend_op *op)
{
	/* Literals of a call: the name as written, unless it is known when compiled, and in lower case. */
	int count = op->opcode == ZEND_INIT_NS_FCALL_BY_NAME ? 3 : op->opcode == ZEND_INIT_FCALL_BY_NAME ? 2 : 1;

	for (int i = 0; i < count; i++) {
		if (zend_string_equals_literal_ci(Z_STR_P(RT_CONSTANT(op, op->op2) + i), "define")) {
			return true;
		}
	}
	return false;
}

/* What in this code takes effect only the first time in a process, or cannot be looked into; NULL when
 * nothing does. Guards count too: a file that includes its firewall once runs it once. */
static const char *find_unrepeatable(const zend_op_array *code, uint32_t *line)
{
	const char *found = NULL;

	for (const zend_op *op = code->opcodes; op < code->opcodes + code->last && !found; op++) {
		*line = op->lineno;
		switch (op->opcode) {
		case ZEND_DECLARE_FUNCTION:
			found = "declares a function";
			break;
		case ZEND_DECLARE_CLASS:
		case ZEND_DECLARE_CLASS_DELAYED:
		case ZEND_DECLARE_ANON_CLASS:
			found = "declares a class";
			break;
		case ZEND_DECLARE_CONST:
			found = "declares a constant";
			break;
		case ZEND_INCLUDE_OR_EVAL:
			found = "includes a file or evaluates code";
			break;
		case ZEND_INIT_FCALL:
		case ZEND_INIT_FCALL_BY_NAME:
		case ZEND_INIT_NS_FCALL_BY_NAME:
			found = is_define(op) ? "declares a constant" : NULL;
			break;
		}
	}
	for (uint32_t i = 0; i < code->num_dynamic_func_defs && !found; i++) {
		found = find_unrepeatable(code->dynamic_func_defs[i], line);
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
	zend_op_array *code = compile(path);
	if (!code) {
		surus_handle_exception();
		return false;
	}
	/* PHP declares those that stand outside of all blocks when it compiles the file. */
	if (zend_hash_num_elements(EG(function_table)) > functions) {
		found = "declares a function";
	} else if (zend_hash_num_elements(EG(class_table)) > classes) {
		found = "declares a class";
	} else {
		found = find_unrepeatable(code, &line);
		snprintf(where, sizeof(where), " in line %u", line);
	}
	destroy(code);
	if (found) {
		fprintf(stderr,
		        "surus-php: %s cannot run for every request on the engine `worker`: %s %s%s, which would "
		        "take effect for the first request of each worker only; choose rewind, fork or standby "
		        "(engine.name), or unset it (%s = \"\" in .user.ini or under [php])\n",
		        name, path, found, where, name);
	}
	return !found;
}

bool surus_auto_files_are_repeatable(void)
{
	return surus_settings.engine != SURUS_WORKER ||
	       (is_repeatable("auto_prepend_file", prepended) && is_repeatable("auto_append_file", appended));
}
