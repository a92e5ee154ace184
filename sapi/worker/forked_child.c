/* A process that a script has forked (pcntl_fork): a copy of a worker, with its event, its outbox
 * and its line. It may run on, but it is nobody's worker: what it prints goes nowhere, and it ends
 * where its script does. */
#include "worker/forked_child.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <php.h>
#include <php_main.h>

#include "base/descriptors.h"
#include "base/process_state.h"
#include "base/scoreboard_layout.h"
#include "ipc/inbox.h"
#include "ipc/outbox.h"
#include "php/random_seed.h"
#include "php/request_timeout.h"

/* Runs in every child, of proc_open() too, which is about to become another program. */
static void cut_off(void)
{
	if (surus_self->forks_workers || surus_self->child) {
		return;
	}
	surus_self->child = surus_self->line == &surus_self->nowhere ? SURUS_CHILD_OF_TEMPLATE
	        : SURUS_CHILD_OF_WORKER;
	surus_outbox_leave();
	/* Whoever waits until nobody has these any more, must not wait for us. */
	surus_inbox_leave();
	close(SURUS_FD_BELL);
	if (surus_self->child == SURUS_CHILD_OF_TEMPLATE) {
		close(SURUS_FD_CONTROL);
	} else {
		surus_self->line = &surus_self->nowhere;
	}
	surus_stop_leave();
	surus_random_forget();
}

bool surus_child_watch(void)
{
	if (pthread_atfork(NULL, NULL, cut_off) != 0) {
		fprintf(stderr, "surus-php: no memory: %m\n");
		return false;
	}
	return true;
}
