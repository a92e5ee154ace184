/* The script that runs once, ahead of the events that it serves: in the template or in every worker, as the engine wants. */
#include "opcache.h"
#include "surus.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <php.h>
#include <SAPI.h>
#include <php_main.h>
#include <php_output.h>
#include <zend_exceptions.h>

#include "rewind.h"
#include "snapshot.h"

static bool done; /* the script has come to serve */
static bool is_refused; /* it was not run, and why has been said */
static zend_file_handle script; /* it is compiled when it runs, and so nobody reads it any more */

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
	PG(during_request_startup) = 0;
	is_refused = true; /* also where PHP ends the look at them by a fatal error */
	is_refused = !surus_auto_files_are_repeatable();
	if (is_refused) {
		return;
	}
	zend_stream_init_filename(&script, path);
	script.primary_script = 1;
	surus_serve_script_ended(php_execute_script(&script));
	zend_destroy_file_handle(&script);
}

/* A descriptor less that workers would have to look after. */
static void close_script(void)
{
	zend_stream *stream = &script.handle.stream;
	zend_llist_position at;

	if (script.type != ZEND_HANDLE_STREAM || !stream->closer || !stream->handle) {
		return;
	}
	for (zend_file_handle *noted = zend_llist_get_first_ex(&CG(open_files), &at); noted; noted = zend_llist_get_next_ex(&CG(open_files), &at)) {
		if (noted->type == ZEND_HANDLE_STREAM && noted->handle.stream.handle == stream->handle) {
			noted->handle.stream.handle = NULL;
		}
	}
	stream->closer(stream->handle);
	stream->handle = NULL;
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
	status = done ? surus_self->exit_status : SURUS_EXIT_BOOT;
	surus_serve_before_shutdown();
	php_request_shutdown(NULL);
	if (surus_self->child) {
		surus_child_exit();
	}
	if (surus_self->event.id) {
		/* What has ended the script has ended the event in its hands. */
		SG(server_context) = NULL;
		surus_outbox_end(SURUS_COMPLETE, EG(exit_status));
		surus_event_close(&surus_self->event);
		surus_set_state(SURUS_RETIRED);
		if (status == SURUS_EXIT_INBOX_CLOSED) {
			bool fatal = EG(exit_status) == 255; /* php_error_cb, and where an exception is not caught */
			status = surus_serves_one() ? SURUS_EXIT_SERVED : fatal ? SURUS_EXIT_FAILED : SURUS_EXIT_ENDED;
		}
	}
	if (is_refused || surus_serve_called()) {
		/* Said where it was refused. */
	} else if (EG(exit_status) == 255) {
		/* Without log_errors this is all that anybody hears. */
		fprintf(stderr, "surus-php: %s ended with a fatal error, or an exception that nothing caught, before it served anything\n", path);
	} else {
		fprintf(stderr,
		        "surus-php: %s has ended without serving anything. A script that the engine boots calls surus_serve($handler); "
		        "one that does not belongs to the engine `classic`.\n",
		        path);
	}
	if (surus_boots_in_template()) {
		surus_php_shutdown();
	}
	return status;
}

void surus_boot_learn(void)
{
	bool rewinds = surus_settings.engine == SURUS_REWIND, learns = surus_regex_is_due() && surus_regex_try();

	/* What the template has mapped since its memory was copied, no worker could put back. */
	if (!learns && !(rewinds && surus_rewind_is_outdated())) {
		return;
	}
	if (rewinds) {
		surus_chunks_pause();
	}
	if (learns) {
		surus_regex_compile();
	}
	if (rewinds) {
		surus_rewind_checkpoint();
	}
	surus_regex_booted();
}

bool surus_boot_done(void)
{
	done = true;
	surus_profile_mark("booted");
	close_script();
	if (!surus_boots_in_template()) {
		surus_log_take();
		surus_worker_speak();
		return true;
	}
	const char *why = surus_boot_refuses();
	if (why) {
		fprintf(stderr, "surus-php: %s\n", why);
		surus_self->exit_status = SURUS_EXIT_BOOT;
		return false;
	}
	surus_ours_note();
	surus_random_note();
	surus_regex_booted();
	if (surus_settings.engine == SURUS_REWIND) {
		surus_rewind_checkpoint();
	}
	return surus_template_serve();
}
