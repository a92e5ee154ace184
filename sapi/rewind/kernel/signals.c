/* Signals of the boot: what it has blocked, and for what it has set a handler, its workers have
 * too. */
#include "rewind/kernel/signals.h"

#include <signal.h>
#include <unistd.h>

#include <php.h>
#include <zend_signal.h>

static sigset_t blocked;        /* by the boot; in a worker without those that Surus needs */
static sigset_t caught;         /* by functions of the script */
static struct sigaction at_end; /* of a child: how the boot has it */
static bool catches, blocks;

/* Signals that come from what is done, and not from another: they cannot wait. */
static bool is_fault(int number)
{
	return number == SIGSEGV || number == SIGBUS || number == SIGILL || number == SIGFPE ||
	        number == SIGTRAP || number == SIGSYS ||
	       number == SIGABRT;
}

/* Do functions of the script handle it? */
static bool is_caught(int number)
{
	struct sigaction action;
	const void *handler;

	if (number == SIGPROF || is_fault(number) || sigaction(number, NULL, &action) != 0) {
		return false; /* PHP's own, for max_execution_time */
	}
	handler = (const void *)(uintptr_t)action.sa_handler;
#ifdef ZEND_SIGNALS
	/* PHP stands before these, and knows who is behind it. */
	if (number == SIGHUP || number == SIGINT || number == SIGQUIT || number == SIGTERM ||
	        number == SIGUSR1 || number == SIGUSR2) {
		handler = SIGG(handlers)[number - 1].handler;
	}
#endif
	return handler != (const void *)SIG_DFL && handler != (const void *)SIG_IGN;
}

void surus_signals_keep(void)
{
	sigset_t held;

	/* No fork has it, and here nobody would hear it. */
	alarm(0);
	sigemptyset(&caught);
	for (int number = 1; number <= SIGRTMAX; number++) {
		if (is_caught(number)) {
			sigaddset(&caught, number);
			catches = true;
		}
	}
	/* What PHP noted here would be called in every worker that is forked later. */
	held = caught;
	sigaddset(&held, SIGCHLD);
	/* A worker may send it. PHP would note that the time is over, and each worker forked later
	 * would refuse its requests. */
	sigaddset(&held, SIGPROF);
	sigprocmask(SIG_BLOCK, &held, &blocked);
	if (zend_atomic_bool_load_ex(&EG(timed_out))) {
		/* It came after the boot's last instruction. */
		zend_atomic_bool_store_ex(&EG(timed_out), false);
		zend_atomic_bool_store_ex(&EG(vm_interrupt), false);
	}
	/* A boot that does not want to hear of its children, is not to be told of ours; but we are. */
	sigaction(SIGCHLD, NULL, &at_end);
	signal(SIGCHLD, SIG_DFL);
}

void surus_signals_take(void)
{
	sigdelset(&blocked, SIGRTMIN);
	sigdelset(&blocked, SIGRTMIN + 1);
	sigdelset(&blocked, SIGPROF);
	sigdelset(&blocked, SIGSYS);
	blocks = !sigisemptyset(&blocked);
	sigaction(SIGCHLD, &at_end, NULL);
	sigprocmask(SIG_SETMASK, &blocked, NULL);
}

bool surus_signals_wait(void)
{
	sigset_t waiting;

	return blocks && sigpending(&waiting) == 0 && sigandset(&waiting, &waiting, &blocked) == 0 &&
	        !sigisemptyset(&waiting);
}

bool surus_signals_hold(void)
{
	if (catches) {
		sigprocmask(SIG_BLOCK, &caught, NULL);
	}
	return catches;
}
