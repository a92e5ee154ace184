/* Ends the boot: checks what it has left, takes the checkpoint, and starts to serve. */
#include "app/boot_complete.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <php.h>
#include <SAPI.h>
#include <php_main.h>
#include <php_output.h>
#include <zend_exceptions.h>

#include "app/request_shutdown.h"
#include "base/exit_status.h"
#include "base/process_state.h"
#include "base/settings.h"
#include "base/startup_trace.h"
#include "master/supervisor.h"
#include "php/pcre_cache.h"
#include "php/random_seed.h"
#include "rewind/boot_check.h"
#include "rewind/kernel/log_fds.h"
#include "rewind/rewind.h"

zend_file_handle surus_boot_script;

static bool done; /* the script has come to serve */

bool surus_boot_is_done(void)
{
	return done;
}

/* A descriptor less that workers would have to look after. */
static void close_script(void)
{
	zend_stream *stream = &surus_boot_script.handle.stream;
	zend_llist_position at;

	if (surus_boot_script.type != ZEND_HANDLE_STREAM || !stream->closer || !stream->handle) {
		return;
	}
	for (zend_file_handle *noted = zend_llist_get_first_ex(&CG(open_files), &at); noted;
	        noted = zend_llist_get_next_ex(&CG(open_files), &at)) {
		if (noted->type == ZEND_HANDLE_STREAM && noted->handle.stream.handle == stream->handle) {
			noted->handle.stream.handle = NULL;
		}
	}
	stream->closer(stream->handle);
	stream->handle = NULL;
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
