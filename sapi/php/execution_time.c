/* Enforces max_execution_time on `rewind`: CPU time of each request, by PHP's timer.
 *
 * Setting and stopping the timer takes two system calls per request. So the timer keeps running
 * between requests, and its handler checks how long the current request has run.
 * rewind/memory/pages.c reads the CPU time after each request anyway, with the page faults. */
#include "php/execution_time.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/single_threaded.h>
#include <sys/time.h>

#include <php.h>

#include "base/persistent_map.h"
#include "base/process_state.h"
#include "base/settings.h"
#include "base/syscall_gate.h"
#include "ipc/request_decode.h"

/* In persistent memory. */
static struct limit {
	/* CPU time of the running timer, which spans requests; 0: none runs */
	int64_t seconds;
	bool is_installed; /* this file's signal handler is installed */
	uint64_t set_at; /* when the timer was set, in microseconds of CPU time of this process */
	uint64_t began; /* when the current request began */
	uint64_t others; /* CPU time of threads that have ended */
} *limit;

bool surus_execution_time_create(void)
{
	limit = surus_persistent_alloc(sizeof(*limit));
	return limit != NULL;
}

/* PHP's handler, set from PHP's start on. Set in a worker, before the checkpoint. */
static struct sigaction plain;

static uint64_t micros(const struct rusage *usage)
{
	return (uint64_t)(usage->ru_utime.tv_sec + usage->ru_stime.tv_sec) * 1000000 +
	       (uint64_t)(usage->ru_utime.tv_usec + usage->ru_stime.tv_usec);
}

static uint64_t used_by(int who)
{
	struct rusage usage;

	getrusage(who, &usage);
	return micros(&usage);
}

void surus_execution_time_save(int who, const struct rusage *usage)
{
	limit->began = micros(usage) + (who == RUSAGE_THREAD ? limit->others : 0);
}

void surus_execution_time_save_threads(void)
{
	if (!__libc_single_threaded) {
		uint64_t own = used_by(RUSAGE_THREAD), all = used_by(RUSAGE_SELF);
		limit->others = all - own;
	}
}

static void run(uint64_t us)
{
	struct itimerval timer = {.it_value =
	        {.tv_sec = (time_t)(us / 1000000), .tv_usec = (suseconds_t)(us % 1000000)}};

	setitimer(ITIMER_PROF, &timer, NULL);
}

/* How many microseconds the current request has left. */
static uint64_t left(uint64_t seconds)
{
	uint64_t used = used_by(RUSAGE_SELF) - limit->began;

	return used < seconds * 1000000 ? seconds * 1000000 - used : 0;
}

static void on_time(int number, siginfo_t *info, void *context)
{
	zend_long seconds = EG(timeout_seconds);
	int saved = errno;

	/* A process that the script has forked has a time of its own. */
	if (!surus_process->child) {
		bool runs = surus_request->id && seconds > 0;
		uint64_t us = runs ? left((uint64_t)seconds) : 0;
		if (us > 0) {
			run(us);
			errno = saved;
			return;
		}
		limit->seconds = 0;
		if (!runs) {
			return;
		}
		/* From here on PHP sets a timer and its own handler again. */
		limit->is_installed = false;
	}
	if (plain.sa_flags & SA_SIGINFO) {
		plain.sa_sigaction(number, info, context);
	} else {
		plain.sa_handler(number);
	}
}

void surus_execution_time_prepare(void)
{
	sigaction(SIGPROF, NULL, &plain);
}

void surus_execution_time_begin(void)
{
	zend_long seconds = EG(timeout_seconds);
	bool goes_on = surus_settings.engine == SURUS_REWIND && plain.sa_handler != SIG_DFL &&
	        plain.sa_handler != SIG_IGN;

	if (seconds <= 0) {
		return;
	}
	/* Set again when half of it is over, so that the timer hardly ever interrupts a long
	 * request. */
	if (goes_on && seconds == limit->seconds &&
	        limit->began - limit->set_at < (uint64_t)seconds * 1000000 / 2) {
		return;
	}
	unsigned char before = surus_syscall_gate_pause();
	if (goes_on && !limit->is_installed) {
		struct sigaction own = plain;
		own.sa_sigaction = on_time;
		/* PHP without ZEND_SIGNALS has its handler called only once. */
		own.sa_flags = (own.sa_flags & ~(SA_RESETHAND | SA_NODEFER)) | SA_SIGINFO | SA_RESTART;
		sigaction(SIGPROF, &own, NULL);
		limit->is_installed = true;
	}
	zend_set_timeout(seconds, 0);
	limit->seconds = goes_on ? seconds : 0;
	limit->set_at = limit->began;
	surus_syscall_gate_resume(before);
}

void surus_execution_time_end(void)
{
	zend_long seconds = EG(timeout_seconds);

	/* From here on the timer interrupts nothing, and a new limit can be detected. */
	EG(timeout_seconds) = SURUS_NO_LIMIT;
	atomic_signal_fence(memory_order_seq_cst);
	if (seconds != limit->seconds) {
		/* The script has set another limit, or the limit was reached. */
		unsigned char before = surus_syscall_gate_pause();
		run(0);
		surus_syscall_gate_resume(before);
		limit->seconds = 0;
	}
	zend_atomic_bool_store_ex(&EG(timed_out), false);
}
