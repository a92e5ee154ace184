/* Boots the application: runs its script up to the call that serves requests, in the prototype
 * process or in each worker. */
#include "app/boot.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <php.h>
#include <SAPI.h>
#include <php_main.h>
#include <php_output.h>
#include <zend_exceptions.h>

#include "app/auto_files.h"
#include "app/boot_complete.h"
#include "app/boot_response.h"
#include "app/boot_script.h"
#include "app/boot_shutdown.h"
#include "app/boot_time.h"
#include "app/request_includes.h"
#include "app/serve.h"
#include "app/warmup_trials.h"
#include "base/exit_status.h"
#include "base/process_state.h"
#include "base/scoreboard.h"
#include "base/scoreboard_layout.h"
#include "base/settings.h"
#include "base/startup_trace.h"
#include "ipc/outbox.h"
#include "ipc/request_decode.h"
#include "php/boot_files.h"
#include "php/file_hooks.h"
#include "php/opcache.h"
#include "php/sapi_module.h"
#include "php/user_ini.h"

static bool is_rejected; /* the script was not run; the reason is on stderr */

/* Fills SG(request_info) for the boot, which has no request. */
static void fill_request_info(void)
{
	SG(server_context) = NULL;
	SG(sapi_headers).http_response_code = 200;
	SG(request_info).request_method = NULL;
	SG(request_info).query_string = NULL;
	SG(request_info).request_uri = NULL;
	SG(request_info).content_type = "";
	SG(request_info).content_length = 0;
	SG(request_info).path_translated = surus_settings.script;
}

/* Names what to run: the script, or the code that Surus has sent in its place. OPcache does not
 * cache code with such a name. */
static void open_script(zend_file_handle *handle, char *path)
{
	const char *code = surus_settings.code;

	zend_stream_init_filename(handle, code ? surus_settings.code_name : path);
	if (code) {
		size_t len = strlen(code);
		/* as zend_stream_fixup() does; zend_destroy_file_handle() frees it */
		handle->buf = ecalloc(1, len + ZEND_MMAP_AHEAD);
		handle->len = len;
		memcpy(handle->buf, code, len);
	}
	handle->primary_script = 1;
}

/* Applies .user.ini as to a request for the document root's index.php, also if the script lies
 * elsewhere. The settings of the script's own directory come first. */
static void activate_user_ini(const char *script, const char *root)
{
	char front[MAXPATHLEN];
	size_t len = root ? strlen(root) : 0;

	surus_user_ini_activate(script, root);
	while (len > 0 && root[len - 1] == '/') {
		len--;
	}
	if (root && (strncmp(script, root, len) != 0 || script[len] != '/') &&
	        (size_t)snprintf(front, sizeof(front), "%.*s/index.php", (int)len, root) <
	        sizeof(front)) {
		surus_user_ini_activate(front, root);
	}
}

static void execute(char *path)
{
	char directory[MAXPATHLEN];
	const char *slash = strrchr(path, '/');
	size_t len = slash ? (size_t)(slash - path) : 0;

	/* Where php-fpm runs the front controller. */
	if (surus_settings.document_root && chdir(surus_settings.document_root) == 0) {
		surus_auto_files_pin(false);
	}
	if (len > 0 && len < sizeof(directory)) {
		memcpy(directory, path, len);
		directory[len] = '\0';
		if (chdir(directory) != 0) {
			/* As php_execute_script(): the script then runs in the current directory. */
		}
	}
	surus_auto_files_pin(true);
	PG(during_request_startup) = 0;
	is_rejected = true; /* also if the check ends in a fatal error */
	is_rejected = !surus_auto_files_are_repeatable();
	if (is_rejected) {
		return;
	}
	open_script(&surus_boot_script, path);
	surus_serve_script_ended(php_execute_script(&surus_boot_script));
	zend_destroy_file_handle(&surus_boot_script);
}

int surus_boot_run(void)
{
	char *path = surus_settings.script;
	int status;

	if (access(path, R_OK) != 0) {
		fprintf(stderr, "surus-php: cannot read the script %s: %m\n", path);
		return SURUS_EXIT_BOOT_FAILED;
	}
	surus_startup_trace_mark("boot");
	zend_first_try {
		fill_request_info();
		if (php_request_startup() == SUCCESS) {
			/* As OPcache does: code must not contain constants that surus_renew_constant() may
			 * change. */
			CG(compiler_options) |= ZEND_COMPILE_NO_CONSTANT_SUBSTITUTION;
			surus_opcache_boot_begin();
			surus_boot_time_begin();
			surus_boot_response_begin();
			surus_warmup_trials_boot_begins();
			surus_boot_files_begin();
			surus_file_hooks_install();
			activate_user_ini(path, surus_settings.document_root);
			surus_auto_files_take();
			zend_try {
				execute(path);
			} zend_end_try();
		}
	} zend_catch {
	} zend_end_try();
	status = surus_boot_is_complete() ? surus_process->exit_status : SURUS_EXIT_BOOT_FAILED;
	surus_boot_shutdown_script_ended();
	uint32_t includes = surus_request_includes_count();
	php_request_shutdown(NULL);
	if (surus_process->child) {
		/* _exit(): the exit handlers of libraries belong to the worker */
		_exit(EG(exit_status));
	}
	if (surus_request->id) {
		/* The end of the script was the end of the current request, too. */
		SG(server_context) = NULL;
		surus_outbox_end(SURUS_COMPLETE, includes);
		surus_request_close(surus_request);
		surus_scoreboard_set_state(SURUS_EXITING);
		if (status == SURUS_EXIT_DRAINED) {
			/* set by php_error_cb() and by an uncaught exception */
			bool fatal = EG(exit_status) == 255;
			status = surus_engine_serves_one() ? SURUS_EXIT_SINGLE_USE
			         : fatal                   ? SURUS_EXIT_FATAL_ERROR
			                                   : SURUS_EXIT_SCRIPT_RETURNED;
		}
	}
	if (is_rejected || surus_serve_called()) {
		/* The reason has been reported. */
	} else if (EG(exit_status) == 255) {
		/* Without log_errors, this is the only message. */
		fprintf(stderr,
		        "surus-php: %s ended with a fatal error or an uncaught exception before it served "
		        "a request\n", path);
	} else {
		const char *name = surus_settings.code ? surus_settings.code_name : path;
		fprintf(stderr,
		        "surus-php: %s has ended without serving anything; a script that the engine boots "
		        "must call surus_serve($handler); otherwise choose the engine `classic` "
		        "(engine.name)\n",
		        name);
	}
	if (surus_engine_boots_in_prototype()) {
		surus_php_shutdown();
	}
	return status;
}
