/* Completes the boot: checks what it leaves open, takes the snapshot, starts to serve. */
#include "app/boot_complete.h"

#include <stdio.h>

#include <php.h>
#include <SAPI.h>
#include <php_main.h>
#include <php_output.h>
#include <zend_exceptions.h>

#include "app/boot_script.h"
#include "app/request_shutdown.h"
#include "app/warmup_report.h"
#include "app/warmup_trials.h"
#include "base/exit_status.h"
#include "base/process_state.h"
#include "base/settings.h"
#include "base/startup_trace.h"
#include "master/supervisor.h"
#include "php/boot_files.h"
#include "php/file_hooks.h"
#include "php/pcre_cache.h"
#include "php/random_seed.h"
#include "rewind/boot_check.h"
#include "rewind/kernel/log_fds.h"
#include "rewind/rewind.h"

static bool done; /* the boot is complete */

bool surus_boot_is_complete(void)
{
	return done;
}

bool surus_boot_complete(void)
{
	done = true;
	surus_startup_trace_mark("booted");
	/* Workers then do not have to check the descriptor. */
	surus_boot_script_close();
	surus_file_hooks_remove();
	if (!surus_boot_files_end()) {
		surus_process->exit_status = SURUS_EXIT_BOOT_OUTDATED;
		return false;
	}
	if (!surus_engine_boots_in_prototype()) {
		surus_warmup_trials_boot_ended();
		surus_log_take();
		surus_process_redirect_stdio();
		return true;
	}
	const char *why = surus_boot_check();
	if (why) {
		fprintf(stderr, "surus-php: %s\n", why);
		surus_process->exit_status = SURUS_EXIT_BOOT_FAILED;
		return false;
	}
	surus_request_shutdown_save();
	surus_random_boot_end();
	surus_pcre_cache_save();
	if (surus_settings.engine == SURUS_REWIND) {
		surus_rewind_snapshot();
	}
	return surus_master_serve(surus_warmup_report_lines());
}
