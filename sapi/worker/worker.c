/* The life of a worker: takes an event from the inbox, has PHP serve it, and takes the next. */
#include "worker/worker.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/descriptors.h"
#include "base/exit_status.h"
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

/* Resident memory in bytes that is this process's own: without what it has of files, of OPcache and
 * of what all workers share. */
static uint64_t resident(void)
{
	char text[64];
	unsigned long pages = 0, shared = 0, page = (unsigned long)sysconf(_SC_PAGESIZE);
	ssize_t len = pread(surus_self->statm, text, sizeof(text) - 1, 0);

	if (len > 0) {
		text[len] = '\0';
		sscanf(text, "%*u %lu %lu", &pages, &shared);
	}
	/* All workers share that, too. */
	shared += surus_direct_replaced() / page;
	return pages > shared ? (uint64_t)(pages - shared) * page : 0;
}

static bool retire(int status)
{
	surus_set_state(SURUS_RETIRED);
	surus_self->exit_status = status;
	return true;
}

/* Does the application leave so many descriptors open that its requests would soon fail for lack of
 * them? An eighth of the limit is kept free, as a request may need some at once. */
static bool lacks_descriptors(void)
{
	static bool is_near; /* half of the limit is reached, so that each event looks */
	struct rlimit limit;
	int lowest;

	if (surus_boots_in_template() || (!is_near && surus_self->taken % 16 != 1) ||
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
		return false; /* there is no stderr */
	}
	fprintf(stderr,
	        "surus-php: the application leaves descriptors open, and nearly all of the %llu that a "
	        "process may have are in use; another worker takes this one's place; close what "
	        "requests open, or raise the limit (RLIMIT_NOFILE: LimitNOFILE= of systemd, ulimit "
	        "-n)\n",
	        (unsigned long long)limit.rlim_cur);
	return true;
}

/* Should this worker end before it takes another event? */
static bool retires(void)
{
	uint64_t taken = surus_self->taken;

	if ((surus_self->served > 0 && surus_serves_one()) || surus_self->is_spent) {
		return retire(SURUS_EXIT_SERVED);
	}
	/* Reading the memory costs about 2 us, so it is spread over 16 events. */
	if (taken % 16 == 1) {
		uint64_t memory = resident();
		atomic_store_explicit(&surus_self->line->memory, memory, memory_order_relaxed);
		if (surus_settings.max_memory && memory > surus_settings.max_memory) {
			return retire(SURUS_EXIT_MAX_MEMORY);
		}
	}
	if (lacks_descriptors()) {
		return retire(SURUS_EXIT_DESCRIPTORS);
	}
	return surus_settings.max_requests && taken >= surus_settings.max_requests &&
	        retire(SURUS_EXIT_MAX_REQUESTS);
}

/* Who boots us looks at the scoreboard when it hears this. Nobody listens any more when a worker is
 * replaced later. */
static void say_waiting(void)
{
	if (!surus_self->said) {
		surus_self->said = true;
		send(SURUS_FD_WAITING, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
	}
}

/* Makes the event ours. False: it was another's already, surus has revoked it, or what lay in the
 * ring is no longer there. */
static bool claim(struct surus_event *event)
{
	_Atomic uint64_t *word = &surus_tickets[event->id];
	uint64_t ticket = atomic_load(word);

	if (ticket == SURUS_CLAIMED || (uint32_t)ticket != event->tag ||
	        !atomic_compare_exchange_strong(word, &ticket, SURUS_CLAIMED)) {
		return false;
	}
	event->ticket = ticket;
	return true;
}

bool surus_worker_take(void)
{
	struct surus_event *event = surus_request;

	while (!retires()) {
		surus_set_state(SURUS_IDLE);
		say_waiting();
		int received = surus_event_receive(event);
		if (received == 0) {
			retire(SURUS_EXIT_INBOX_CLOSED);
			break;
		}
		if (received < 0) {
			continue;
		}
		if (!claim(event)) {
			surus_event_close(event);
			continue;
		}
		atomic_store_explicit(&surus_self->line->request, event->id, memory_order_relaxed);
		atomic_store_explicit(&surus_self->line->tag, event->tag, memory_order_relaxed);
		atomic_store_explicit(&surus_self->line->taken, ++surus_self->taken, memory_order_relaxed);
		/* From here on our death is known to cost this event. */
		surus_set_state(SURUS_RECEIVED);
		surus_self->taken_at = surus_self->since;
		if (received == 1 && !surus_client_gone() &&
		        !(event->deadline && surus_now() >= event->deadline)) {
			surus_self->served++;
			return true;
		}
		surus_outbox_begin(event);
		surus_outbox_end(SURUS_NOT_BEGUN, 0);
		surus_event_close(event);
		if (received == 2) {
			retire(SURUS_EXIT_DESCRIPTORS);
			break;
		}
	}
	return false;
}

void surus_worker_become(int outbox, int log)
{
	surus_outbox_open(outbox);
	prctl(PR_SET_NAME, "surus worker");
	/* Said on the template's stderr, which surus quotes when a boot fails. */
	/* What boots in the template has done so there, before any of the application's code ran. */
	if (!surus_boots_in_template() && !surus_worker_disguise()) {
		exit(SURUS_EXIT_SETUP);
	}
	surus_self->log = log;
	if (!surus_boots() || surus_boots_in_template()) {
		surus_worker_speak();
	}
	/* Changing the user has cleared the parent-death signal, and with it the right to be dumped
	 * into a core file. */
	surus_stop_install();
	surus_self->statm = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
	surus_event_open();
	surus_php_after_fork();
}
