/* Ends an event that takes too long. surus writes so into our line of the scoreboard and sends the
 * stop signal; PHP's virtual machine then raises a fatal error at the next loop or call, with a
 * backtrace in the log. Code that never comes back to the virtual machine is killed by surus a
 * moment later. */
#include "php/request_timeout.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <php.h>
#include <zend_builtin_functions.h>
#include <zend_exceptions.h>

#include "base/exit_status.h"
#include "ipc/outbox.h"
#include "ipc/request_decode.h"
#include "ipc/request_status.h"

static volatile sig_atomic_t requested_for_us;
static uint64_t reported; /* ticket of the event whose end has been reported */
static void (*next_interrupt)(zend_execute_data *frame);

static void on_stop(int signal)
{
	(void)signal;
	/* By this signal surus also asks who has an event of which it sees no holder, since our line
	 * may have been overwritten, and has a worker that waits look at the inbox. */
	surus_say_again();
	/* Without an event memory may be about to be put back, and must not be written to. */
	if (surus_request->id && surus_stop_requested()) {
		requested_for_us = 1;
		zend_atomic_bool_store_ex(&EG(vm_interrupt), true);
	}
}

/* Every second from here on. SIGALRM and the timer that alarm() has are the script's. */
static void look_again(void)
{
	struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN + 1};
	struct itimerspec every = {.it_interval.tv_sec = 1, .it_value.tv_sec = 1};
	int timer; /* libc's own may take memory, which a handler must not */

	if (syscall(SYS_timer_create, CLOCK_MONOTONIC, &event, &timer) == 0) {
		syscall(SYS_timer_settime, timer, 0, &every, NULL);
	}
}

/* The template is gone. While surus lives it takes care of us; without it nobody is left to work
 * for. */
static void on_orphaned(int signal, siginfo_t *info, void *context)
{
	int saved = errno;
	(void)signal;
	(void)context;
	if (surus_outbox_hung_up()) {
		_exit(SURUS_EXIT_INBOX_CLOSED);
	}
	if (info->si_code != SI_TIMER) {
		look_again();
	}
	errno = saved;
}

/* An alarm that nobody handles would end the process, and perhaps another event than the one that
 * has set it. */
static void on_alarm(int signal)
{
	(void)signal;
}

static void on_interrupt(zend_execute_data *frame)
{
	if (requested_for_us) {
		requested_for_us = 0;
		uint64_t event = surus_request->ticket;
		if (surus_request->id && surus_stop_requested() && reported != event) {
			zval trace;
			zend_string *text;

			reported = event;
			zend_fetch_debug_backtrace(&trace, 0, DEBUG_BACKTRACE_IGNORE_ARGS, 0);
			text = zend_trace_to_string(Z_ARRVAL(trace), true);
			zend_string *message =
			    strpprintf(0, "Stopped at its deadline. Stack trace:\n%s", ZSTR_VAL(text));
			surus_outbox_log(ZSTR_VAL(message), ZSTR_LEN(message));
			zend_string_release(message);
			zend_string_release(text);
			zval_ptr_dtor(&trace);
			zend_error_noreturn(E_ERROR, "The time for this request is over");
		}
	}
	if (next_interrupt) {
		next_interrupt(frame);
	}
}

void surus_stop_install(void)
{
	/* Without SA_RESTART: a sleep or a read that PHP waits in shall end. */
	struct sigaction stop = {.sa_handler = on_stop};
	struct sigaction orphaned = {.sa_sigaction = on_orphaned, .sa_flags = SA_RESTART | SA_SIGINFO};
	struct sigaction alarm = {.sa_handler = on_alarm, .sa_flags = SA_RESTART}, of_boot;

	sigemptyset(&stop.sa_mask);
	sigemptyset(&orphaned.sa_mask);
	sigaction(SIGRTMIN, &stop, NULL);
	sigaction(SIGRTMIN + 1, &orphaned, NULL);
	sigemptyset(&alarm.sa_mask);
	if (sigaction(SIGALRM, NULL, &of_boot) == 0 && of_boot.sa_handler == SIG_DFL) {
		sigaction(SIGALRM, &alarm, NULL);
	}
	prctl(PR_SET_PDEATHSIG, SIGRTMIN + 1);
}

void surus_stop_leave(void)
{
	struct sigaction action;

	/* As php-fpm's children have it, unless the script has changed that. */
	if (sigaction(SIGALRM, NULL, &action) == 0 && action.sa_handler == on_alarm) {
		signal(SIGALRM, SIG_DFL);
	}
}

void surus_stop_hook(void)
{
	next_interrupt = zend_interrupt_function;
	zend_interrupt_function = on_interrupt;
}
