/* Tells whether the client of the request in hand has gone, or Surus has asked to stop it. */
#include "ipc/request_status.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <http_status_codes.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <php.h>
#include <SAPI.h>
#include <php_ini.h>
#include <php_main.h>
#include <php_output.h>
#include <php_variables.h>
#include <zend_exceptions.h>
#include <zend_signal.h>
#include <zend_builtin_functions.h>

#include "base/process_state.h"
#include "base/scoreboard.h"
#include "base/scoreboard_layout.h"
#include "ipc/request_decode.h"

bool surus_client_gone(void)
{
	if (surus_self->has_no_client) {
		return false;
	}
	const struct surus_event *event = surus_request;
	uint64_t word = atomic_load_explicit(&surus_tickets[event->id], memory_order_relaxed);

	return (event->ticket && word == surus_ticket_end(event->ticket)) || surus_stop_requested();
}

bool surus_stop_requested(void)
{
	uint64_t ticket = surus_request->ticket;

	return ticket != 0 && atomic_load_explicit(&surus_self->line->stop, memory_order_relaxed) ==
	        surus_ticket_end(ticket);
}

void surus_say_again(void)
{
	const struct surus_event *event = surus_request;

	atomic_store_explicit(&surus_self->line->pid, (uint32_t)surus_self->pid, memory_order_relaxed);
	atomic_store_explicit(&surus_self->line->request, event->id, memory_order_relaxed);
	atomic_store_explicit(&surus_self->line->tag, event->tag, memory_order_relaxed);
	atomic_store_explicit(&surus_self->line->state, surus_self->state, memory_order_release);
	/* A ticket that a script has written back would let another worker run the request that we have
	 * claimed. */
	uint64_t ticket = event->ticket;
	if (event->id && ticket != SURUS_CLAIMED) {
		atomic_compare_exchange_strong(&surus_tickets[event->id], &ticket, SURUS_CLAIMED);
	}
}
