/* Interrupts a request at its deadline.
 *
 * Surus writes the end of the request's ticket into this worker's line of the scoreboard and sends
 * the stop signal. PHP's virtual machine then raises a fatal error at the next loop or call, with a
 * backtrace in the log. If the code never returns to the virtual machine, Surus kills the worker a
 * moment later. */
#include "php/request_timeout.h"

#include <errno.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <php.h>
#include <zend_builtin_functions.h>
#include <zend_exceptions.h>

#include "base/exit_status.h"
#include "base/process_state.h"
#include "ipc/outbox.h"
#include "ipc/request_decode.h"
#include "ipc/request_status.h"
#include "php/slow_request.h"

static volatile sig_atomic_t stop_requested;
static uint64_t reported; /* ticket of the request whose interruption has been reported */
static void (*next_interrupt)(zend_execute_data *frame);

static void on_stop(int signal)
{
	(void)signal;
	/* Surus also sends this signal to find the holder of a request, because this line may have been
	 * overwritten, and to make a waiting worker check the request socket. */
	surus_request_status_rewrite();
	/* Without a request, memory may be about to be restored and must not be written to. */
	if (surus_request->id && surus_request_status_has_stop()) {
		stop_requested = 1;
		zend_atomic_bool_store_ex(&EG(vm_interrupt), true);
	}
}

/* Checks every second from here on. SIGALRM and alarm()'s timer belong to the script. */
static void check_regularly(void)
{
	struct sigevent sigevent = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN + 1};
	struct itimerspec every = {.it_interval.tv_sec = 1, .it_value.tv_sec = 1};
	int timer; /* libc's function may allocate memory, which a handler must not */

	if (syscall(SYS_timer_create, CLOCK_MONOTONIC, &sigevent, &timer) == 0) {
		syscall(SYS_timer_settime, timer, 0, &every, NULL);
	}
}

/* The master process has exited. If Surus has exited, too, so does this worker; otherwise Surus
 * takes care of it. */
static void on_orphaned(int signal, siginfo_t *info, void *context)
{
	int saved = errno;
	(void)signal;
	(void)context;
	if (surus_outbox_is_closed()) {
		_exit(SURUS_EXIT_DRAINED);
	}
	if (info->si_code != SI_TIMER) {
		check_regularly();
	}
	errno = saved;
}

/* Without a handler, an alarm would end the process, possibly during another request than the one
 * that has set it. */
static void on_alarm(int signal)
{
	(void)signal;
}

static void on_interrupt(zend_execute_data *frame)
{
	surus_process->was_interrupted = true;
	if (stop_requested) {
		stop_requested = 0;
		uint64_t request = surus_request->ticket;
		if (surus_request->id && surus_request_status_has_stop() && reported != request) {
			zval trace;
			zend_string *text;

			reported = request;
			zend_fetch_debug_backtrace(&trace, 0, DEBUG_BACKTRACE_IGNORE_ARGS, 0);
			text = zend_trace_to_string(Z_ARRVAL(trace), true);
			zend_string *message =
			    strpprintf(0, "Stopped at its deadline. Stack trace:\n%s", ZSTR_VAL(text));
			surus_outbox_log(ZSTR_VAL(message), ZSTR_LEN(message));
			zend_string_release(message);
			zend_string_release(text);
			zval_ptr_dtor(&trace);
			zend_error_noreturn(E_ERROR, "Request timeout exceeded (http.request_timeout; of jobs, "
			                             "queue.timeout or their own; on Lambda, the function's)");
		}
	}
	surus_slow_request_check();
	if (next_interrupt) {
		next_interrupt(frame);
	}
}

void surus_request_timeout_install(void)
{
	/* Without SA_RESTART, so that a sleep or a read of PHP ends. */
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

void surus_request_timeout_leave(void)
{
	struct sigaction action;

	/* As in php-fpm's children, unless the script has changed it. */
	if (sigaction(SIGALRM, NULL, &action) == 0 && action.sa_handler == on_alarm) {
		signal(SIGALRM, SIG_DFL);
	}
}

void surus_request_timeout_hook(void)
{
	next_interrupt = zend_interrupt_function;
	zend_interrupt_function = on_interrupt;
}
