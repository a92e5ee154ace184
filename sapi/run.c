/* Runs a surus-php process from its start: the master process, and each worker that it forks. */
#include "run.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>
#include <sys/wait.h>

#include "app/boot.h"
#include "app/boot_time.h"
#include "app/functions.h"
#include "app/warmup_trials.h"
#include "base/clock.h"
#include "base/descriptors.h"
#include "base/exit_status.h"
#include "base/process_state.h"
#include "base/scoreboard.h"
#include "base/scoreboard_layout.h"
#include "base/settings.h"
#include "base/startup_trace.h"
#include "base/syscall_gate.h"
#include "ipc/inbox.h"
#include "ipc/outbox.h"
#include "ipc/rings.h"
#include "master/inherited.h"
#include "master/supervisor.h"
#include "php/boot_files.h"
#include "php/direct_binding.h"
#include "php/execution_time.h"
#include "php/ini_files.h"
#include "php/opcache.h"
#include "php/pcre_cache.h"
#include "php/random_seed.h"
#include "php/sapi_module.h"
#include "php/startup_report.h"
#include "rewind/kernel/kernel_state.h"
#include "rewind/rewind.h"
#include "rewind/syscall_watch.h"
#include "worker/forked_child.h"
#include "worker/privileges.h"
#include "worker/worker.h"

/* Allocates the persistent state. It must exist before the first snapshot, because a rewind does
 * not restore it. */
static bool create_state(void)
{
	return surus_process_create() && surus_syscall_gate_create() && surus_request_create() &&
	       surus_inbox_create() && surus_worker_create() &&
	       surus_outbox_create() && surus_execution_time_create() && surus_random_create() &&
	       surus_syscall_watch_create() && surus_boot_files_create() &&
	       surus_master_create();
}

/* Runs a worker that was forked before an application booted. */
static _Noreturn void run_worker(void)
{
	if (surus_engine_boots_app()) {
		exit(surus_boot_run());
	}
	while (surus_worker_take()) {
		surus_php_serve();
	}
	exit(surus_process->exit_status);
}

int surus_master_run(const char *program)
{
	uint64_t started = surus_clock_now();

	prctl(PR_SET_NAME, "surus master");
	if (!surus_settings_read(SURUS_FD_SETTINGS)) {
		return 64;
	}
	/* Before other processes of the same user can change them. */
	surus_inherited_save();
	if (!surus_drop_privileges()) {
		return SURUS_EXIT_SETUP_FAILED;
	}
	if (!surus_startup_trace_open(started)) {
		return 71;
	}
	if (!surus_scoreboard_open(SURUS_FD_SCOREBOARD)) {
		fprintf(stderr, "surus-php: cannot map the scoreboard: %m\n");
		return 71;
	}
	if (!create_state()) {
		fprintf(stderr, "surus-php: cannot allocate the state of the processes: %m\n");
		return 71;
	}
	if (!surus_rings_open(SURUS_FD_RINGS)) {
		return 71;
	}
	if (!surus_child_watch()) {
		return 71;
	}
	close(SURUS_FD_SCOREBOARD);
	close(SURUS_FD_RINGS);
	fcntl(SURUS_FD_CONTROL, F_SETFD, FD_CLOEXEC);
	fcntl(SURUS_FD_INBOX, F_SETFD, FD_CLOEXEC);
	fcntl(SURUS_FD_WAITING, F_SETFD, FD_CLOEXEC);
	fcntl(SURUS_FD_DOORBELL, F_SETFD, FD_CLOEXEC);
	signal(SIGPIPE, SIG_IGN);
	/* A terminal's Ctrl-C reaches the whole process group; Surus decides what it means. */
	signal(SIGINT, SIG_IGN);
	signal(SIGHUP, SIG_IGN);

	if (surus_settings.direct_binding) {
		surus_direct_binding_apply();
		surus_startup_trace_mark("direct binding");
	}
	surus_master_php_starting();
	if (surus_settings.engine == SURUS_REWIND) {
		surus_rewind_configure_malloc();
	}
	if (!surus_php_startup(program, &surus_module_entry)) {
		surus_opcache_explain_preload();
		return 70;
	}
	if (!surus_ini_check()) {
		return 70;
	}
	surus_master_php_started();
	surus_startup_trace_mark("reported");
	if ((surus_engine_boots_in_prototype() &&
	     (!surus_kernel_install() || !surus_pcre_cache_create())) ||
	    (surus_settings.engine == SURUS_REWIND && !surus_rewind_start())) {
		fprintf(stderr,
		        "surus-php: cannot allocate the memory for the boot (engine fork or rewind): %m\n");
		return 71;
	}
	if (surus_engine_boots_app() &&
	    (!surus_boot_time_start() || !surus_warmup_trials_start())) {
		fprintf(stderr, "surus-php: cannot allocate the memory for warm-ups: %m\n");
		return 71;
	}
	if (surus_engine_boots_app()) {
		surus_random_install();
	}
	if (surus_engine_boots_in_prototype()) {
		surus_set_environment();
		return surus_boot_run();
	}
	if (surus_master_serve("")) {
		run_worker();
	}
	surus_php_shutdown();
	return 0;
}
