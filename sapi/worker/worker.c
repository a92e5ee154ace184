/* Runs a worker: takes requests, claims their tickets, decides when the worker exits. */
#include "worker/worker.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/descriptors.h"
#include "base/exit_status.h"
#include "base/persistent_map.h"
#include "base/process_state.h"
#include "base/scoreboard.h"
#include "base/scoreboard_layout.h"
#include "base/settings.h"
#include "ipc/inbox.h"
#include "ipc/outbox.h"
#include "ipc/request_decode.h"
#include "ipc/request_status.h"
#include "php/direct_binding.h"
#include "php/request_timeout.h"
#include "php/sapi_module.h"
#include "worker/privileges.h"

/* In persistent memory. */
static struct worker {
	int autogroup; /* /proc/self/autogroup; -1 on a kernel without it */
	char session[64]; /* its content when this worker started */
	uint64_t session_read_at;
	bool reported_waiting; /* Surus knows that this worker waits for requests */
	bool exits_after_request;
} *worker;

bool surus_worker_create(void)
{
	worker = surus_persistent_alloc(sizeof(*worker));
	return worker != NULL;
}

bool surus_worker_exit_after_request(void)
{
	bool is_new = !worker->exits_after_request;

	worker->exits_after_request = true;
	return is_new;
}

/* Resident bytes of this process alone, without files, OPcache and the memory that all workers
 * share. */
static uint64_t resident(void)
{
	char text[64];
	unsigned long pages = 0, shared = 0, page = (unsigned long)sysconf(_SC_PAGESIZE);
	ssize_t len = pread(surus_process->statm, text, sizeof(text) - 1, 0);

	if (len > 0) {
		text[len] = '\0';
		sscanf(text, "%*u %lu %lu", &pages, &shared);
	}
	/* All workers share that, too. */
	shared += surus_direct_binding_bytes() / page;
	return pages > shared ? (uint64_t)(pages - shared) * page : 0;
}

static bool exit_with(int status)
{
	surus_scoreboard_set_state(SURUS_EXITING);
	surus_process->exit_status = status;
	return true;
}

/* Whether the application leaves so many descriptors open that its requests would soon fail with
 * EMFILE. An eighth of the limit stays free for the next request. */
static bool lacks_descriptors(void)
{
	static bool is_near; /* half of the limit is in use, so every request checks */
	struct rlimit limit;
	int lowest;
	/* On `worker`, requests keep what they open. On `classic`, only libraries do. */
	bool is_rare = surus_settings.engine != SURUS_WORKER && !is_near;

	if (surus_engine_boots_in_prototype() || (is_rare && surus_process->taken % 16 != 1) ||
	    getrlimit(RLIMIT_NOFILE, &limit) != 0) {
		return false;
	}
	lowest = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0);
	if (lowest >= 0) {
		close(lowest);
		is_near = (rlim_t)lowest >= limit.rlim_cur / 2;
		if ((rlim_t)lowest < limit.rlim_cur - limit.rlim_cur / 8) {
			return false;
		}
	} else if (errno != EMFILE) {
		return false; /* stderr is closed */
	}
	fprintf(stderr,
	        "surus-php: the application leaves descriptors open, and nearly all of the %llu that a "
	        "process may have are in use; another worker takes this one's place; close what "
	        "requests open, or raise the limit (RLIMIT_NOFILE: LimitNOFILE= of systemd, ulimit "
	        "-n)\n",
	        (unsigned long long)limit.rlim_cur);
	return true;
}

/* Whether a script has changed the nice value of its session, which acts on all processes of the
 * pool at once. The master process compares the same file, but sleeps while no worker exits. */
static bool is_session_changed(void)
{
	enum { PAUSE = 1000000 };
	char text[sizeof(worker->session)] = {0};

	if (surus_process->taken_at - worker->session_read_at < PAUSE) {
		return false;
	}
	worker->session_read_at = surus_process->taken_at;
	return pread(worker->autogroup, text, sizeof(text), 0) > 0 &&
	       memcmp(text, worker->session, sizeof(text)) != 0;
}

/* Whether this worker must exit before it takes another request. */
static bool must_exit(void)
{
	uint64_t taken = surus_process->taken;

	if ((surus_process->served > 0 && surus_engine_serves_one()) || worker->exits_after_request) {
		return exit_with(SURUS_EXIT_SINGLE_USE);
	}
	/* Reading the memory costs about 2 us, so only every sixteenth request does. */
	if (taken % 16 == 1) {
		uint64_t memory = resident();
		atomic_store_explicit(&surus_process->line->memory, memory, memory_order_relaxed);
		if (surus_settings.max_memory && memory > surus_settings.max_memory) {
			return exit_with(SURUS_EXIT_MAX_MEMORY);
		}
	}
	if (is_session_changed()) {
		return exit_with(SURUS_EXIT_PRIORITY_CHANGED);
	}
	if (lacks_descriptors()) {
		return exit_with(SURUS_EXIT_NO_DESCRIPTORS);
	}
	return surus_settings.max_requests && taken >= surus_settings.max_requests &&
	        exit_with(SURUS_EXIT_MAX_REQUESTS);
}

/* While Surus boots, it reads the scoreboard after this message. Later it does not read such
 * messages. */
static void say_waiting(void)
{
	if (!worker->reported_waiting) {
		worker->reported_waiting = true;
		send(SURUS_FD_WAITING, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
	}
}

/* Claims the request. False: another worker has it, Surus has revoked it, or the entry of the ring
 * was stale. */
static bool claim(struct surus_request *request)
{
	_Atomic uint64_t *word = &surus_tickets[request->id];
	uint64_t ticket = atomic_load(word);

	if (ticket == SURUS_CLAIMED || (uint32_t)ticket != request->tag ||
	        !atomic_compare_exchange_strong(word, &ticket, SURUS_CLAIMED)) {
		return false;
	}
	request->ticket = ticket;
	return true;
}

bool surus_worker_take(void)
{
	struct surus_request *request = surus_request;

	while (!must_exit()) {
		surus_scoreboard_set_state(SURUS_IDLE);
		say_waiting();
		int received = surus_inbox_receive(request);
		if (received == 0) {
			exit_with(SURUS_EXIT_DRAINED);
			break;
		}
		if (received < 0) {
			if (surus_outbox_is_released()) {
				exit_with(SURUS_EXIT_SCALED_DOWN);
				break;
			}
			continue;
		}
		if (!claim(request)) {
			surus_request_close(request);
			continue;
		}
		atomic_store_explicit(&surus_process->line->slot, request->id, memory_order_relaxed);
		atomic_store_explicit(&surus_process->line->tag, request->tag, memory_order_relaxed);
		atomic_store_explicit(&surus_process->line->taken, ++surus_process->taken,
		        memory_order_relaxed);
		/* If this worker crashes from here on, Surus knows which request is lost. */
		surus_scoreboard_set_state(SURUS_RECEIVED);
		surus_process->taken_at = surus_process->since;
		if (received == 1 && !surus_request_status_is_closed() &&
		        !(request->deadline && surus_clock_now() >= request->deadline)) {
			surus_process->served++;
			return true;
		}
		surus_outbox_begin(request);
		surus_outbox_end(SURUS_NOT_BEGUN, 0);
		surus_request_close(request);
		if (received == 2) {
			exit_with(SURUS_EXIT_NO_DESCRIPTORS);
			break;
		}
	}
	return false;
}

void surus_worker_become(int outbox, int log)
{
	surus_outbox_open(outbox);
	prctl(PR_SET_NAME, "surus worker");
	/* The prototype process has set its environment before it ran the application's code. */
	if (!surus_engine_boots_in_prototype()) {
		surus_set_environment();
	}
	surus_process->log = log;
	/* Until then, errors go to the master process's stderr, which Surus quotes if a boot fails. */
	if (!surus_engine_boots_app() || surus_engine_boots_in_prototype()) {
		surus_process_redirect_stdio();
	}
	/* Changing the user has cleared the parent-death signal and the permission to dump core. */
	surus_request_timeout_install();
	surus_process->statm = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
	worker->autogroup = open("/proc/self/autogroup", O_RDONLY | O_CLOEXEC);
	(void)!pread(worker->autogroup, worker->session, sizeof(worker->session), 0);
	surus_inbox_open();
	surus_php_after_fork();
}
