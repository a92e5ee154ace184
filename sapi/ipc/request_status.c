/* Tells whether the client of the current request has closed it, or Surus wants to stop the
 * request. */
#include "ipc/request_status.h"

#include <unistd.h>
#include <stdlib.h>
#include <fcntl.h>
#include <sys/socket.h>

#include <php.h>
#include <SAPI.h>
#include <php_main.h>
#include <php_variables.h>
#include <zend_exceptions.h>

#include "base/process_state.h"
#include "base/scoreboard.h"
#include "base/scoreboard_layout.h"
#include "ipc/request_decode.h"

bool surus_request_status_is_closed(void)
{
	if (surus_process->has_no_client) {
		return false;
	}
	const struct surus_request *request = surus_request;
	uint64_t word = atomic_load_explicit(&surus_tickets[request->id], memory_order_relaxed);

	return (request->ticket && word == surus_scoreboard_ticket_end(request->ticket)) ||
	       surus_request_status_has_stop();
}

bool surus_request_status_has_stop(void)
{
	uint64_t ticket = surus_request->ticket;

	return ticket != 0 && atomic_load_explicit(&surus_process->line->stop, memory_order_relaxed) ==
	        surus_scoreboard_ticket_end(ticket);
}

void surus_request_status_rewrite(void)
{
	const struct surus_request *request = surus_request;

	atomic_store_explicit(&surus_process->line->pid, (uint32_t)surus_process->pid,
	        memory_order_relaxed);
	atomic_store_explicit(&surus_process->line->slot, request->id, memory_order_relaxed);
	atomic_store_explicit(&surus_process->line->tag, request->tag, memory_order_relaxed);
	atomic_store_explicit(&surus_process->line->state, surus_process->state, memory_order_release);
	/* If a script has written the ticket back, another worker could run the request that this one
	 * has claimed. */
	uint64_t ticket = request->ticket;
	if (request->id && ticket != SURUS_CLAIMED) {
		atomic_compare_exchange_strong(&surus_tickets[request->id], &ticket, SURUS_CLAIMED);
	}
}
