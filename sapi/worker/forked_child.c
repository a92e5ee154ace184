/* Detaches a process that a script has forked (pcntl_fork) from Surus. The copy of the worker may
 * run on, but its output is discarded and it exits when its script ends. */
#include "worker/forked_child.h"

#include <pthread.h>
#include <stdio.h>
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

/* Runs in every child, also in one of proc_open() that is about to execute another program. */
static void cut_off(void)
{
	if (surus_process->forks_workers || surus_process->child) {
		return;
	}
	surus_process->child = surus_process->line == &surus_process->nowhere ? SURUS_CHILD_OF_MASTER
	        : SURUS_CHILD_OF_WORKER;
	surus_outbox_leave();
	/* Surus detects the end of all workers by the end of these descriptors, so this process must
	 * not keep them open. */
	surus_inbox_leave();
	close(SURUS_FD_DOORBELL);
	if (surus_process->child == SURUS_CHILD_OF_MASTER) {
		close(SURUS_FD_CONTROL);
	} else {
		surus_process->line = &surus_process->nowhere;
	}
	surus_request_timeout_leave();
	surus_random_discard();
}

bool surus_child_watch(void)
{
	if (pthread_atfork(NULL, NULL, cut_off) != 0) {
		fprintf(stderr, "surus-php: cannot register a fork handler: %m\n");
		return false;
	}
	return true;
}
