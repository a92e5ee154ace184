/* Gives workers the boot's signal mask and handlers, and keeps its signals away from the prototype
 * process. */
#include "rewind/kernel/signals.h"

#include <signal.h>
#include <unistd.h>

#include <php.h>

static sigset_t blocked; /* by the boot; in a worker without those that Surus needs */
static sigset_t caught; /* signals with a handler of the script */
static struct sigaction boot_sigchld_action;
static bool catches, blocks;

/* Whether the signal is caused by the process's own instruction, so that it cannot be blocked. */
static bool is_fault(int number)
{
	return number == SIGSEGV || number == SIGBUS || number == SIGILL || number == SIGFPE ||
	        number == SIGTRAP || number == SIGSYS ||
	       number == SIGABRT;
}

/* Whether the script has a handler for the signal. */
static bool is_caught(int number)
{
	struct sigaction action;
	const void *handler;

	if (number == SIGPROF || is_fault(number) || sigaction(number, NULL, &action) != 0) {
		return false; /* SIGPROF is PHP's own, for max_execution_time */
	}
	handler = (const void *)(uintptr_t)action.sa_handler;
#ifdef ZEND_SIGNALS
	/* PHP's handler calls the script's for these. */
	if (number == SIGHUP || number == SIGINT || number == SIGQUIT || number == SIGTERM ||
	        number == SIGUSR1 || number == SIGUSR2) {
		handler = SIGG(handlers)[number - 1].handler;
	}
#endif
	return handler != (const void *)SIG_DFL && handler != (const void *)SIG_IGN;
}

void surus_signals_save(void)
{
	sigset_t held;

	/* Forks do not inherit an alarm, and this process has no use for it. */
	alarm(0);
	sigemptyset(&caught);
	for (int number = 1; number <= SIGRTMAX; number++) {
		if (is_caught(number)) {
			sigaddset(&caught, number);
			catches = true;
		}
	}
	/* PHP would call a signal that is pending here in every worker that is forked later. */
	held = caught;
	sigaddset(&held, SIGCHLD);
	/* A worker may send it. PHP would record a timeout, and each worker forked later would reject
	 * its requests. */
	sigaddset(&held, SIGPROF);
	sigprocmask(SIG_BLOCK, &held, &blocked);
	if (zend_atomic_bool_load_ex(&EG(timed_out))) {
		/* It arrived after the boot's last instruction. */
		zend_atomic_bool_store_ex(&EG(timed_out), false);
		zend_atomic_bool_store_ex(&EG(vm_interrupt), false);
	}
	/* The boot may ignore SIGCHLD; this process needs it for its workers. */
	sigaction(SIGCHLD, NULL, &boot_sigchld_action);
	signal(SIGCHLD, SIG_DFL);
}

void surus_signals_apply(void)
{
	sigdelset(&blocked, SIGRTMIN);
	sigdelset(&blocked, SIGRTMIN + 1);
	sigdelset(&blocked, SIGPROF);
	sigdelset(&blocked, SIGSYS);
	blocks = !sigisemptyset(&blocked);
	sigaction(SIGCHLD, &boot_sigchld_action, NULL);
	sigprocmask(SIG_SETMASK, &blocked, NULL);
}

bool surus_signals_are_pending(void)
{
	sigset_t waiting;

	return blocks && sigpending(&waiting) == 0 && sigandset(&waiting, &waiting, &blocked) == 0 &&
	        !sigisemptyset(&waiting);
}

bool surus_signals_block(void)
{
	if (catches) {
		sigprocmask(SIG_BLOCK, &caught, NULL);
	}
	return catches;
}
