/* The script that runs once, ahead of the events that it serves: in the template or in every
 * worker, as the engine wants. */
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
#include "app/boot_shutdown.h"
#include "app/boot_time.h"
#include "app/serve.h"
#include "base/exit_status.h"
#include "base/process_state.h"
#include "base/scoreboard.h"
#include "base/scoreboard_layout.h"
#include "base/settings.h"
#include "base/startup_trace.h"
#include "ipc/outbox.h"
#include "ipc/request_decode.h"
#include "php/opcache.h"
#include "php/sapi_module.h"
#include "php/user_ini.h"

static bool is_refused; /* it was not run, and why has been said */

/* What a script finds in SG(request_info) while no event is there. */
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

static void execute(char *path)
{
	char directory[MAXPATHLEN];
	const char *slash = strrchr(path, '/');
	size_t len = slash ? (size_t)(slash - path) : 0;

	if (len > 0 && len < sizeof(directory)) {
		memcpy(directory, path, len);
		directory[len] = '\0';
		if (chdir(directory) != 0) {
			/* As php_execute_script: the script then runs where we are. */
		}
	}
	surus_auto_files_pin();
	PG(during_request_startup) = 0;
	is_refused = true; /* also where PHP ends the look at them by a fatal error */
	is_refused = !surus_auto_files_are_repeatable();
	if (is_refused) {
		return;
	}
	zend_stream_init_filename(&surus_boot_script, path);
	surus_boot_script.primary_script = 1;
	surus_serve_script_ended(php_execute_script(&surus_boot_script));
	zend_destroy_file_handle(&surus_boot_script);
}

int surus_boot_run(void)
{
	char *path = surus_settings.script;
	int status;

	if (access(path, R_OK) != 0) {
		fprintf(stderr, "surus-php: cannot read the script %s: %m\n", path);
		return SURUS_EXIT_BOOT;
	}
	surus_profile_mark("boot");
	zend_first_try {
		fill_request_info();
		if (php_request_startup() == SUCCESS) {
			surus_opcache_booting();
			surus_boot_time_begin();
			surus_user_ini_activate(path, surus_settings.document_root);
			surus_auto_files_take();
			zend_try {
				execute(path);
			} zend_end_try();
		}
	} zend_catch {
	} zend_end_try();
	status = surus_boot_is_done() ? surus_self->exit_status : SURUS_EXIT_BOOT;
	surus_serve_before_shutdown();
	php_request_shutdown(NULL);
	if (surus_self->child) {
		/* without what libraries have registered for the end of the worker */
		_exit(EG(exit_status));
	}
	if (surus_request->id) {
		/* What has ended the script has ended the event in its hands. */
		SG(server_context) = NULL;
		surus_outbox_end(SURUS_COMPLETE, EG(exit_status));
		surus_event_close(surus_request);
		surus_set_state(SURUS_RETIRED);
		if (status == SURUS_EXIT_INBOX_CLOSED) {
			/* php_error_cb, and where an exception is not caught */
			bool fatal = EG(exit_status) == 255;
			status = surus_serves_one() ? SURUS_EXIT_SERVED : fatal ? SURUS_EXIT_FAILED
			        : SURUS_EXIT_ENDED;
		}
	}
	if (is_refused || surus_serve_called()) {
		/* Said where it was refused. */
	} else if (EG(exit_status) == 255) {
		/* Without log_errors this is all that anybody hears. */
		fprintf(stderr,
		        "surus-php: %s ended with a fatal error, or an exception that nothing caught, "
		        "before it served anything\n", path);
	} else {
		fprintf(stderr,
		        "surus-php: %s has ended without serving anything. A script that the engine boots "
		        "calls surus_serve($handler); one that does not belongs to the engine `classic`.\n",
		        path);
	}
	if (surus_boots_in_template()) {
		surus_php_shutdown();
	}
	return status;
}
