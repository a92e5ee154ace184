/* Notices which files PHP opens, asks about and changes during the boot.
 *
 * All files that PHP opens pass through the wrapper of plain files: scripts, `fopen()`,
 * `file_get_contents()`. The functions that ask about files take shorter ways and a cache, so they
 * have hooks of their own. */
#include "php/file_hooks.h"

#include <stdbool.h>
#include <string.h>

#include <php.h>
#include <php_streams.h>

#include "php/boot_files.h"

static const php_stream_wrapper_ops *plain; /* NULL: not installed */
static php_stream_wrapper_ops hooked;
static bool scripts_only;

static ZEND_FUNCTION(surus_asked);

static struct question {
	const char *name;
	enum surus_file_use use;
	zend_function *function;
	zif_handler handler;
} questions[] = {
	{"file_exists", SURUS_FILE_SEEN, NULL, NULL},
	{"is_dir", SURUS_FILE_SEEN, NULL, NULL},
	{"is_file", SURUS_FILE_SEEN, NULL, NULL},
	{"is_readable", SURUS_FILE_SEEN, NULL, NULL},
	{"is_writable", SURUS_FILE_SEEN, NULL, NULL},
	{"filectime", SURUS_FILE_READ, NULL, NULL},
	{"filemtime", SURUS_FILE_READ, NULL, NULL},
	{"filesize", SURUS_FILE_READ, NULL, NULL},
	{"stat", SURUS_FILE_READ, NULL, NULL},
};

enum { QUESTIONS = sizeof(questions) / sizeof(*questions) };

static ZEND_FUNCTION(surus_asked)
{
	for (size_t i = 0; i < QUESTIONS; i++) {
		const struct question *question = &questions[i];
		if (question->function != EX(func)) {
			continue;
		}
		if (!scripts_only && EX_NUM_ARGS() > 0) {
			zval *name = ZEND_CALL_ARG(execute_data, 1);
			ZVAL_DEREF(name);
			if (Z_TYPE_P(name) == IS_STRING && strlen(Z_STRVAL_P(name)) == Z_STRLEN_P(name)) {
				surus_boot_files_save(Z_STRVAL_P(name), question->use, NULL);
			}
		}
		question->handler(INTERNAL_FUNCTION_PARAM_PASSTHRU);
		return;
	}
}

static php_stream *open_file(php_stream_wrapper *wrapper, const char *name, const char *mode,
        int options, zend_string **opened, php_stream_context *context STREAMS_DC)
{
	php_stream *stream = plain->stream_opener(wrapper, name, mode, options, opened,
	        context STREAMS_REL_CC);
	php_stream_statbuf state;

	if (strpbrk(mode, "waxc+")) {
		surus_boot_files_forget(name);
	} else if (!scripts_only || options & STREAM_OPEN_FOR_INCLUDE) {
		bool is_known = stream && php_stream_stat(stream, &state) == 0;
		if (!is_known || S_ISREG(state.sb.st_mode)) {
			surus_boot_files_save(name, SURUS_FILE_READ, is_known ? &state.sb : NULL);
		}
	}
	return stream;
}

static php_stream *open_directory(php_stream_wrapper *wrapper, const char *name, const char *mode,
        int options, zend_string **opened, php_stream_context *context STREAMS_DC)
{
	if (!scripts_only) {
		surus_boot_files_save(name, SURUS_FILE_READ, NULL);
	}
	return plain->dir_opener(wrapper, name, mode, options, opened, context STREAMS_REL_CC);
}

static int unlink_file(php_stream_wrapper *wrapper, const char *name, int options,
        php_stream_context *context)
{
	surus_boot_files_forget(name);
	return plain->unlink(wrapper, name, options, context);
}

static int rename_file(php_stream_wrapper *wrapper, const char *from, const char *to, int options,
        php_stream_context *context)
{
	surus_boot_files_forget(from);
	surus_boot_files_forget(to);
	return plain->rename(wrapper, from, to, options, context);
}

static int make_directory(php_stream_wrapper *wrapper, const char *name, int mode, int options,
        php_stream_context *context)
{
	surus_boot_files_forget(name);
	return plain->stream_mkdir(wrapper, name, mode, options, context);
}

static int remove_directory(php_stream_wrapper *wrapper, const char *name, int options,
        php_stream_context *context)
{
	surus_boot_files_forget(name);
	return plain->stream_rmdir(wrapper, name, options, context);
}

/* touch(), chmod() and the like */
static int change_metadata(php_stream_wrapper *wrapper, const char *name, int option, void *value,
        php_stream_context *context)
{
	surus_boot_files_forget(name);
	return plain->stream_metadata(wrapper, name, option, value, context);
}

void surus_file_hooks_install(void)
{
	if (!surus_boot_files_are_recorded()) {
		return;
	}
	plain = php_plain_files_wrapper.wops;
	hooked = *plain;
	hooked.stream_opener = open_file;
	hooked.dir_opener = open_directory;
	hooked.unlink = unlink_file;
	hooked.rename = rename_file;
	hooked.stream_mkdir = make_directory;
	hooked.stream_rmdir = remove_directory;
	hooked.stream_metadata = change_metadata;
	php_plain_files_wrapper.wops = &hooked;
	for (size_t i = 0; i < QUESTIONS; i++) {
		zend_function *function = zend_hash_str_find_ptr(CG(function_table), questions[i].name,
		        strlen(questions[i].name));
		if (function && function->type == ZEND_INTERNAL_FUNCTION) {
			questions[i].function = function;
			questions[i].handler = function->internal_function.handler;
			function->internal_function.handler = ZEND_FN(surus_asked);
		}
	}
}

void surus_file_hooks_leave_data(void)
{
	scripts_only = true;
}

void surus_file_hooks_remove(void)
{
	if (!plain) {
		return;
	}
	php_plain_files_wrapper.wops = plain;
	plain = NULL;
	for (size_t i = 0; i < QUESTIONS; i++) {
		if (questions[i].function) {
			/* Code that was compiled in the boot may keep this hook, so `question.function`
			 * stays. */
			questions[i].function->internal_function.handler = questions[i].handler;
		}
	}
	scripts_only = true;
}
