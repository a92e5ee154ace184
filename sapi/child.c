/* A process that a script has forked (pcntl_fork): a copy of a worker, with its event, its outbox and its line. It may run on, but it is
 * nobody's worker: what it prints goes nowhere, and it ends where its script does. */
#include "surus.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <php.h>
#include <php_main.h>

/* Runs in every child, of proc_open() too, which is about to become another program. */
static void cut_off(void)
{
	if (surus_self->forks_workers || surus_self->child) {
		return;
	}
	surus_self->child = surus_self->line == &surus_self->nowhere ? SURUS_CHILD_OF_TEMPLATE : SURUS_CHILD_OF_WORKER;
	surus_outbox_leave();
	/* Whoever waits until nobody has these any more, must not wait for us. */
	close(SURUS_FD_INBOX);
	close(SURUS_FD_BELL);
	if (surus_self->inbox >= 0) {
		close(surus_self->inbox);
	}
	if (surus_self->child == SURUS_CHILD_OF_TEMPLATE) {
		close(SURUS_FD_CONTROL);
	} else {
		surus_self->line = &surus_self->nowhere;
	}
	surus_stop_leave();
	/* What has been drawn ahead belongs to the worker. */
	surus_self->random_left = 0;
	explicit_bzero(surus_self->random, sizeof(surus_self->random));
}

bool surus_child_watch(void)
{
	if (pthread_atfork(NULL, NULL, cut_off) != 0) {
		fprintf(stderr, "surus-php: no memory: %m\n");
		return false;
	}
	return true;
}

_Noreturn void surus_child_end(void)
{
	if (surus_self->child == SURUS_CHILD_OF_WORKER && surus_boots_in_template()) {
		/* The boot's objects have nothing to end here: they live on in the workers. */
		surus_isolated_end();
	} else {
		surus_serve_before_shutdown();
		php_request_shutdown(NULL);
	}
	surus_child_exit();
}

_Noreturn void surus_child_exit(void)
{
	/* Nothing that libraries have registered for the end of the worker. */
	_exit(EG(exit_status));
}
