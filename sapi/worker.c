/* The life of a worker: takes an event from the inbox, has PHP serve it, and takes the next. */
#include "surus.h"

#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

struct surus_line *surus_line;
_Atomic uint8_t *surus_gone;

uint64_t surus_now(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

void surus_set_state(enum surus_state state)
{
	atomic_store_explicit(&surus_line->since, surus_now(), memory_order_relaxed);
	atomic_store_explicit(&surus_line->state, state, memory_order_release);
}

/* Becomes the configured user, for good. */
static bool drop_privileges(void)
{
	if (!surus_settings.user) {
		return true;
	}
	const char *failed = setgid(surus_settings.gid) != 0                                 ? "setgid"
	                     : initgroups(surus_settings.user, surus_settings.gid) != 0 ? "initgroups"
	                     : setuid(surus_settings.uid) != 0                          ? "setuid"
	                                                                                : NULL;
	if (failed) {
		fprintf(stderr,
		        "surus-php: cannot become user %s (engine.user): %s: %m; start Surus as that user, or as root with the "
		        "capabilities CAP_SETUID and CAP_SETGID\n",
		        surus_settings.user, failed);
	}
	return !failed;
}

/* As php-fpm with clear_env: what is configured, and whose home this is. */
static void set_environment(void)
{
	struct passwd *user = getpwuid(getuid());

	if (surus_settings.clear_env) {
		clearenv();
	}
	if (user && user->pw_name && user->pw_dir) {
		setenv("USER", user->pw_name, 1);
		setenv("HOME", user->pw_dir, 1);
	}
	for (char **pair = surus_settings.environment; pair && *pair; pair++) {
		putenv(*pair);
	}
}

/* Resident memory in bytes. */
static uint64_t resident(void)
{
	static int statm = -1;
	char text[64];
	unsigned long pages = 0;
	ssize_t len;

	if (statm < 0) {
		statm = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
	}
	len = pread(statm, text, sizeof(text) - 1, 0);
	if (len > 0) {
		text[len] = '\0';
		sscanf(text, "%*u %lu", &pages);
	}
	return (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* Should this worker end before it takes another event? Exits if so. */
static void retire_if_due(uint64_t taken)
{
	/* Reading the memory costs about 2 us, so it is spread over 16 events. */
	if (taken % 16 == 1) {
		uint64_t memory = resident();
		atomic_store_explicit(&surus_line->memory, memory, memory_order_relaxed);
		if (surus_settings.max_memory && memory > surus_settings.max_memory) {
			surus_set_state(SURUS_RETIRED);
			exit(SURUS_EXIT_MAX_MEMORY);
		}
	}
	if (surus_settings.max_events && taken >= surus_settings.max_events) {
		surus_set_state(SURUS_RETIRED);
		exit(SURUS_EXIT_MAX_EVENTS);
	}
}

_Noreturn void surus_worker_run(uint32_t index, int outbox, int log)
{
	uint64_t taken = 0;

	(void)index;
	surus_outbox_open(outbox);
	prctl(PR_SET_NAME, "surus worker");
	/* Said on the template's stderr, which surus quotes when a boot fails. */
	if (!drop_privileges()) {
		exit(SURUS_EXIT_SETUP);
	}
	dup2(log, STDOUT_FILENO);
	dup2(log, STDERR_FILENO);
	close(log);
	/* Changing the user has cleared the parent-death signal, and with it the right to be dumped into a core file. */
	surus_stop_install();
	set_environment();
	surus_php_after_fork();
	for (;;) {
		surus_set_state(SURUS_IDLE);
		int received = surus_event_receive(&surus_event);
		if (received == 0) {
			surus_set_state(SURUS_RETIRED);
			exit(SURUS_EXIT_INBOX_CLOSED);
		}
		if (received < 0) {
			continue;
		}
		atomic_store_explicit(&surus_line->request, surus_event.id, memory_order_relaxed);
		/* From here on our death is known to cost this event: the request id is there, and the number is one more than
		 * the events that surus has seen the end of. */
		atomic_store_explicit(&surus_line->taken, ++taken, memory_order_release);
		surus_set_state(SURUS_RECEIVED);
		if (surus_client_gone() || (surus_event.deadline && surus_now() >= surus_event.deadline)) {
			surus_outbox_begin(surus_event.id);
			surus_outbox_end(SURUS_NOT_BEGUN, 0);
			surus_event_close(&surus_event);
			continue;
		}
		surus_php_serve();
		retire_if_due(taken);
	}
}
